"""What all server contexts of one process share."""

import os
from pathlib import Path

import anyio
import pytest

from coretools.app.assembly import Assembly, SharedResources, open_assembly, open_successor
from coretools.config.settings import Settings
from coretools.operations.call import SilentCall
from coretools.tools.filesystem.reading_tools import LARGE_BYTES

pytestmark = pytest.mark.anyio


async def read(assembly: Assembly, path: str, done: anyio.Event) -> None:
    command = assembly.catalog.current.find("read_file")
    assert command is not None
    outcome = await assembly.dispatcher.dispatch(command, {"path": path, "head": 1}, SilentCall())
    assert outcome.error is None
    done.set()


async def test_all_roles_and_their_successors_share_the_limit_on_reading_large_files(tmp_path: Path) -> None:
    """filesystem-10."""
    (tmp_path / "large.txt").write_bytes(("line\n" * (LARGE_BYTES // 5 + 1)).encode("utf-16"))
    (tmp_path / "small.txt").write_bytes(b"small")
    shared, settings, environment = SharedResources(), Settings(roots=(str(tmp_path),)), dict(os.environ)
    with anyio.fail_after(60):
        async with (
            open_assembly(settings, environment, shared=shared) as one,
            open_assembly(settings, environment, shared=shared) as other,
            anyio.create_task_group() as group,
        ):
            successor = await open_successor(one, settings, environment)
            large = [anyio.Event() for _ in range(3)]
            with shared.large_reads, shared.large_reads:
                for assembly, done in zip((one, other, successor), large, strict=True):
                    group.start_soon(read, assembly, "large.txt", done)
                for assembly in (one, other, successor):
                    await read(assembly, "small.txt", anyio.Event())
                assert not any(done.is_set() for done in large)
            for done in large:
                await done.wait()
            await successor.retire()
