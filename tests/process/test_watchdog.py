"""The watchdog ends what a killed server leaves behind (docs/specs/process.md)."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import InputOutput
from coretools.process.children import reaper
from coretools.process.runner import Runner
from coretools.roots.root import Directory
from tests import checkout
from tests.process.tree import TREE, Tree, alive, until, until_exists, until_exited

NEEDS_PROC = pytest.mark.skipif(not reaper.can_list_processes(), reason="needs marker-sweep")

SERVER = """
import json, os, sys
import anyio
from coretools.process.runner import Runner
from coretools.config.settings import Limits
from tests.process.tree import opened

async def main():
    folder = sys.argv[1]
    here = opened(folder)
    runner = Runner(Limits(grace_seconds=0.3), {"PATH": os.environ["PATH"]})
    async with anyio.create_task_group() as tasks:
        async for line in anyio.wrap_file(sys.stdin):
            tasks.start_soon(lambda script=json.loads(line): runner.run(["sh", "-c", script], cwd=here))

anyio.run(main)
"""
"""Runs every script that it reads from its standard input, concurrently."""


@contextmanager
def server(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A server process in a session of its own; killed at the end of the block."""
    arguments = [sys.executable, "-c", SERVER, str(folder)]
    with subprocess.Popen(arguments, cwd=checkout.TREE, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run_there(process: "subprocess.Popen[bytes]", script: str) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(script).encode() + b"\n")
    process.stdin.flush()


def watchdogs_of(parent: int) -> list[int]:
    """The live watchdogs that a process has started."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            line = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if int(stat[1]) == parent and stat[0] != b"Z" and b"reaper.py" in line:
            found.append(int(name))
    return found


def ignores(pid: int, number: signal.Signals) -> bool:
    """Whether a process ignores the signal (proc(5), SigIgn)."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) & (1 << (number - 1)))


@NEEDS_PROC
@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["alone", "with its group"])
async def test_a_killed_server_leaves_no_process(tmp_path: Path, kill: Callable[[int, int], None]) -> None:
    """process-21: neither in the group nor outside it, neither one that ignores TERM nor one without the marker
    variable."""
    tree = Tree(tmp_path)
    with server(tmp_path) as process:
        run_there(process, TREE)
        await tree.until_complete()
        kill(process.pid, signal.SIGKILL)
        await until_exited(tree.remaining)


@NEEDS_PROC
async def test_a_server_that_ends_without_closing_leaves_no_process(tmp_path: Path) -> None:
    """process-21: the watchdog acts on any kind of end."""
    tree = Tree(tmp_path)
    with server(tmp_path) as process:
        run_there(process, TREE)
        await tree.until_complete()
        process.send_signal(signal.SIGTERM)
        await until_exited(tree.remaining)


@NEEDS_PROC
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_the_watchdog_outlives_what_ends_a_server(
    runner: Runner, here: Directory, number: signal.Signals
) -> None:
    """process-21: a signal to every process of a session does not end the watchdog before the server."""
    await runner.run(["true"], cwd=here)
    await until(lambda: watchdogs_of(os.getpid()))  # a child that was not yet scheduled shows no command line
    (watchdog,) = watchdogs_of(os.getpid())
    await until(lambda: ignores(watchdog, number))
    os.kill(watchdog, number)
    await runner.run(["true"], cwd=here)
    assert watchdogs_of(os.getpid()) == [watchdog]


@NEEDS_PROC
async def test_a_new_watchdog_knows_the_live_children(tmp_path: Path) -> None:
    """process-22: a child without the marker variable, started under the first watchdog, is ended by the second."""
    hidden = tmp_path / "hidden"
    with server(tmp_path) as process:
        run_there(process, "env -i sh -c 'echo $$ > new; mv new hidden; exec sleep 1000' & wait")
        await until_exists(hidden)
        pid = int(hidden.read_text())
        (watchdog,) = watchdogs_of(process.pid)
        os.kill(watchdog, signal.SIGKILL)
        await until_exited(lambda: watchdogs_of(process.pid))
        run_there(process, "echo > again; exec sleep 1000")
        await until_exists(tmp_path / "again")
        assert len(watchdogs_of(process.pid)) == 1
        assert watchdogs_of(process.pid) != [watchdog]
        process.kill()
        await until_exited(alive(pid))


@NEEDS_PROC
async def test_a_temporary_lack_of_descriptors_does_not_disable_the_watchdog(here: Directory) -> None:
    """process-22: each start is refused with that reason, and the next child has a watchdog again."""
    runner = Runner(Limits(), {"PATH": os.environ["PATH"]})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first_free = os.dup(0)
    os.close(first_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
    try:
        for _ in range(10):
            with pytest.raises(InputOutput, match="no file descriptors left"):
                await runner.run(["true"], cwd=here)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert runner.protections["watchdog"]
    await runner.run(["true"], cwd=here)
    assert len(watchdogs_of(os.getpid())) == 1
    await runner.close()


@NEEDS_PROC
async def test_closing_ends_the_watchdog(here: Directory) -> None:
    """process-22: the one process that a server keeps ends with it."""
    runner = Runner(Limits(), {"PATH": os.environ["PATH"]})
    assert watchdogs_of(os.getpid()) == []
    await runner.run(["true"], cwd=here)
    assert len(watchdogs_of(os.getpid())) == 1
    await runner.close()
    assert watchdogs_of(os.getpid()) == []


async def test_protections_in_force_are_named(runner: Runner) -> None:
    """process-25: so that a missing protection is reported and never skipped silently."""
    assert set(runner.protections) == {"process-group", "watchdog", "marker-sweep", "pidfd", "cwd-by-handle"}
    assert runner.protections["process-group"]
    if sys.platform == "linux":
        assert all(runner.protections.values())
    await runner.close()
    assert not runner.protections["watchdog"]
