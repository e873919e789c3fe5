"""ripgrep confined by the kernel, judged by effect: it follows no link out and runs no program, although asked to."""

import os
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from coretools.config.limits import Limits
from coretools.confinement import landlock
from coretools.confinement.confined_thread import ConfinedThread, ConfinedThreadPool
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.environment import child_environment
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.search.engines import readable_paths
from tests.tools.search.world import needs_ripgrep, planted, searching

needs_landlock = pytest.mark.skipif(landlock.abi() < landlock.ABI_REQUIRED, reason="Landlock (Linux 6.2)")


@needs_landlock
@needs_ripgrep
async def test_ripgrep_reads_its_root_and_starts_nothing(tmp_path: Path) -> None:
    """search-22: with a link that leads out, and a preprocessor for every file."""
    planted(tmp_path, {"root/in.txt": "needle\n", "outside/canary.txt": "needle\n", "root/pre": "#!/bin/sh\n"})
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    marker = tmp_path / "root" / "marker"
    (tmp_path / "root" / "pre").write_text(f'#!/bin/sh\necho ran >> {marker}\ncat "$1"\n')
    (tmp_path / "root" / "pre").chmod(0o755)
    argv = ("rg", "--no-config", "--follow", "--files-with-matches", "--sort=path", "needle", "./")
    runner = Runner(Limits(), child_environment(os.environ, passed=()))
    with (
        Roots([RootSpec(str(tmp_path / "root"))], deny=DenyRules(())) as roots,
        closing(ConfinedThreadPool()) as confined_threads,
    ):
        confined = ConfinedRunner(runner, confined_threads)

        async def ran(*words: str, confined_thread: ConfinedThread | None) -> Completed:
            with open_directory(roots, ".") as directory:
                return await confined.run(words, cwd=directory, options=RunOptions(confined_thread=confined_thread))

        with anyio.fail_after(60):
            with open_directory(roots, ".") as directory:
                confined_thread = confined.confined_thread("rg", readable_paths(directory))
            assert confined_thread is not None
            assert (await ran(*argv, confined_thread=None)).stdout.text() == "./in.txt\n./link/canary.txt\n"
            assert (await ran(*argv, confined_thread=confined_thread)).stdout.text() == "./in.txt\n"
            assert (
                "in.txt"
                in (await ran(*argv, "--pre", str(tmp_path / "root" / "pre"), confined_thread=None)).stdout.text()
            )
            assert marker.exists()
            marker.unlink()
            await ran(*argv, "--pre", str(tmp_path / "root" / "pre"), confined_thread=confined_thread)
            assert not marker.exists()
            assert confined.is_confined("rg")
    await runner.close()


@needs_ripgrep
async def test_a_search_is_confined_to_its_root(tmp_path: Path) -> None:
    """search-22: and finds the matches in it."""
    planted(tmp_path, {"one/a.txt": "needle\n", "two/sub/b.txt": "needle\n"})
    async with searching(tmp_path / "one", tmp_path / "two", engine="ripgrep") as search:
        assert [file.path for file in (await search.search_text("needle")).files] == ["a.txt"]
        found = await search.search_text("needle", path=str(tmp_path / "two" / "sub"))
        assert [file.path.rpartition("/")[2] for file in found.files] == ["b.txt"]
