"""Control groups of commands, where the machine lets this user make one."""

import os
import signal
import subprocess
from pathlib import Path

import anyio
import pytest

from coretools.process.control_group import ControlGroup, own_group
from tests.process.test_keeper import kept, needs_view
from tests.process.tree import until
from tests.serving.peer import peer

ABOVE = own_group()

pytestmark = [
    needs_view,
    pytest.mark.skipif(ABOVE is None or not os.access(ABOVE, os.W_OK), reason="needs a control group of one's own"),
]


def groups() -> set[str]:
    return {name for name in os.listdir(str(ABOVE)) if name.startswith("coretools-")}


def test_a_group_is_killed_at_once() -> None:
    """confinement-23: every member, whatever session it is in."""
    group = ControlGroup(f"{ABOVE}/coretools-test-{os.getpid()}", tasks=100, memory_bytes=1 << 30)
    child = subprocess.Popen(["sh", "-c", "read go; setsid sleep 1000 & sleep 1000"], stdin=subprocess.PIPE)
    group.add(child.pid)
    assert child.stdin is not None
    child.stdin.write(b"go\n")
    child.stdin.close()
    anyio.run(until, lambda: len(Path(group.path, "cgroup.procs").read_text().split()) >= 3)
    assert group.kill()
    assert child.wait(20) == -signal.SIGKILL
    group.close()
    assert not os.path.exists(group.path)


async def test_commands_are_in_a_group_that_goes_with_them(tmp_path: Path) -> None:
    """confinement-23: it holds the commands of a server, and is removed with it, and when another one takes over."""
    before = groups()
    async with kept(tmp_path) as place:
        said = await place.sh("cat /proc/self/cgroup")
        [mine] = groups() - before
        assert mine.startswith(os.path.basename(place.keeper.scratch))
        assert "0::/" in said
        (tmp_path / ".env").touch()
        await place.sh("true")
        await until(lambda: place.keeper._drop_old() or len(groups() - before) == 1)
    assert groups() - before == set()


def test_the_group_of_a_killed_server(tmp_path: Path) -> None:
    """confinement-23: removed by the guard."""
    before = groups()
    with peer(tmp_path) as client:
        client.start_session()
        client.call("run_command", command="true")
        assert len(groups() - before) == 1
        client.process.kill()
    anyio.run(until, lambda: groups() - before == set())
