"""Programs that can be confined, and those that cannot: the latter run unconfined, and the result reports it."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.confinement import landlock
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.confinement.landlock import READ
from coretools.errors import CannotStart
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots

pytestmark = pytest.mark.skipif(landlock.abi() < landlock.ABI_REQUIRED, reason="Landlock (Linux 6.2)")


class Place:
    """One `ConfinedRunner` in a directory."""

    def __init__(self, confined: ConfinedRunner, roots: Roots) -> None:
        self.confined = confined
        self.roots = roots

    async def run(self, *argv: str, readable: str = "") -> Completed:
        rules = ((readable, READ),) if readable else ()
        options = RunOptions(confined_thread=self.confined.confined_thread(argv[0], rules))
        with open_directory(self.roots, ".") as directory:
            return await self.confined.run(argv, cwd=directory, options=options)


@asynccontextmanager
async def confined_runner(root: Path, *, path: str | None = None) -> AsyncIterator[Place]:
    runner = Runner(Limits(), {"PATH": path or os.environ["PATH"]})
    with Roots([RootSpec(str(root))], deny=DenyRules(())) as roots, closing(ConfinedThreadPool()) as confined_threads:
        try:
            yield Place(ConfinedRunner(runner, confined_threads), roots)
        finally:
            await runner.close()


async def test_a_program_reads_what_it_was_granted_and_no_more(tmp_path: Path) -> None:
    """confined-threads-2: the program's exit code is an ordinary result."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("content")
    async with confined_runner(tmp_path) as place:
        assert (await place.run("cat", "in/file", readable=str(tmp_path / "in"))).stdout.text() == "content"
        refused = await place.run("cat", "in/file")
        assert refused.exit_code == 1
        assert "Permission denied" in refused.stderr.text()
        assert place.confined.is_confined("cat")


async def test_a_script_runs_unconfined_and_the_result_reports_it(tmp_path: Path) -> None:
    """confined-threads-6: a wrapper script in the operator's PATH keeps working."""
    script = tmp_path / "bin" / "git"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho from the script\n")
    script.chmod(0o755)
    async with confined_runner(tmp_path, path=f"{script.parent}:{os.environ['PATH']}") as place:
        assert (await place.run("git")).stdout.text() == "from the script\n"
        assert not place.confined.is_confined("git")


async def test_a_program_that_can_not_start_confined_runs_unconfined(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """confined-threads-8: detected by a failed start, once, and logged."""
    program = tmp_path / "bin" / "launcher"
    program.parent.mkdir()
    # A binary that executes another program: a confined env may not execute its argument.
    env = shutil.which("env")
    assert env is not None
    shutil.copy(env, program)
    async with confined_runner(tmp_path, path=f"{program.parent}:{os.environ['PATH']}") as place:
        assert (await place.run("launcher", "true")).exit_code == 126
        assert place.confined.is_confined("launcher")
        assert "unconfined" not in caplog.text
    broken = tmp_path / "bin" / "broken"
    shutil.copy(env, broken)
    data = broken.read_bytes()
    assert b"libc.so.6\0" in data
    (tmp_path / "libraries").mkdir()
    broken.write_bytes(data.replace(b"libc.so.6\0", b"libq.so.6\0"))
    async with confined_runner(tmp_path, path=f"{broken.parent}:{os.environ['PATH']}") as place:
        assert (await place.run("broken", "true")).exit_code == 127
        assert not place.confined.is_confined("broken")
        assert caplog.text.count("unconfined") == 1


async def test_a_removed_directory_does_not_disable_confinement(tmp_path: Path) -> None:
    """confined-threads-8: a process that removes the working directory does not cause git to run unconfined."""
    (tmp_path / "here").mkdir()
    async with confined_runner(tmp_path / "here") as place:
        options = RunOptions(confined_thread=place.confined.confined_thread("cat", ()))
        with open_directory(place.roots, ".") as directory:
            (tmp_path / "here").rmdir()
            with pytest.raises(CannotStart, match="gone"):
                await place.confined.run(("cat", "file"), cwd=directory, options=options)
        assert place.confined.is_confined("cat")


async def test_a_missing_program_is_missing(tmp_path: Path) -> None:
    """confined-threads-8: the error does not mention confined threads."""
    async with confined_runner(tmp_path) as place:
        with pytest.raises(CannotStart, match="not found"):
            await place.run("no-such-program")
        assert not place.confined.is_confined("no-such-program")


async def test_a_replaced_program_is_confined_by_its_new_file(tmp_path: Path) -> None:
    """confined-threads-5: git is updated while the server runs."""
    cat = str(shutil.which("cat"))
    program = tmp_path / "bin" / "updated"
    program.parent.mkdir()
    async with confined_runner(tmp_path, path=f"{program.parent}:{os.environ['PATH']}") as place:
        for _ in range(2):
            shutil.copy(cat, tmp_path / "new")
            (tmp_path / "new").replace(program)
            assert (await place.run("updated", "--version")).ok
            assert place.confined.is_confined("updated")
