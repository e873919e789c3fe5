"""The result of a run (docs/specs/process.md)."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from coretools.config.limits import Limits
from coretools.errors import Busy, CannotStart
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.root import Directory
from tests.checkout import TREE
from tests.process.tree import is_alive, until_exists

FLOOD = """
import os, sys
piece = b"x" * (1 << 20)
for _ in range(64):
    for descriptor in (1, 2):
        left = memoryview(piece)
        while left:
            left = left[os.write(descriptor, left):]
"""


async def test_an_exit_code_is_a_result(runner: Runner, here: Directory) -> None:
    """process-11: a command that fails did run."""
    completed = await runner.run(["sh", "-c", "echo out; echo err >&2; exit 7"], cwd=here)
    assert (completed.exit_code, completed.signal, completed.ok) == (7, None, False)
    assert (completed.stdout.text(), completed.stderr.text()) == ("out\n", "err\n")
    assert completed.duration_seconds > 0
    assert not completed.timed_out


async def test_a_child_has_no_more_memory_than_its_limit(runner: Runner, here: Directory) -> None:
    """process-28: for itself and for what it starts."""
    inner = "bytearray(1 << 30)"
    start = f"subprocess.run([sys.executable, '-c', {inner!r}]).returncode"
    outer = f"import subprocess, sys; sys.stdin.read(); sys.exit({start})"
    options = RunOptions(stdin=b"x", memory_bytes=256 << 20)
    for program in (f"import sys; sys.stdin.read(); {inner}", outer):
        completed = await runner.run([sys.executable, "-c", program], cwd=here, options=options)
        assert completed.exit_code == 1
        assert "MemoryError" in completed.stderr.text()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGUSR1"])
async def test_a_signal_is_reported_by_its_name(runner: Runner, here: Directory, name: str) -> None:
    """process-11: the result has no exit code."""
    completed = await runner.run(["sh", "-c", f"kill -{name[3:]} $$"], cwd=here)
    assert (completed.exit_code, completed.signal, completed.ok) == (None, name, False)


async def test_64_megabytes_on_both_outputs_end_normally(runner: Runner, here: Directory) -> None:
    """process-12: both outputs are drained at once; head and tail are kept and the bytes between are counted."""
    options = RunOptions(keep_bytes=1000)
    completed = await runner.run([sys.executable, "-I", "-S", "-c", FLOOD], cwd=here, options=options)
    assert completed.ok
    for excerpt in (completed.stdout, completed.stderr):
        assert excerpt.total_bytes == 64 << 20
        assert len(excerpt.head) + len(excerpt.tail) == 1000


SERVER_OF_A_FLOOD = """
import os, sys
from pathlib import Path
import anyio
from coretools.process.runner import Runner
from coretools.config.settings import Limits
from tests.process.tree import opened

def peak():
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))

async def main():
    here = opened(".")
    runner = Runner(Limits(), {"PATH": os.environ["PATH"]})
    await runner.run(["true"], cwd=here)
    before = peak()
    completed = await runner.run([sys.executable, "-I", "-S", "-c", sys.argv[1]], cwd=here)
    print(completed.ok, completed.stdout.total_bytes + completed.stderr.total_bytes, peak() - before)
    await runner.close()

anyio.run(main)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure")
def test_memory_does_not_grow_with_the_output() -> None:
    """process-12: less than 20 MB for 128 MB, measured in a separate server."""
    # The peak of the address space (VmHWM), not ru_maxrss, which starts with the peak of the parent process.
    server = subprocess.run([sys.executable, "-c", SERVER_OF_A_FLOOD, FLOOD], cwd=TREE, capture_output=True, check=True)
    ok, total, growth = server.stdout.split()
    assert (ok, int(total)) == (b"True", 128 << 20)
    assert int(growth) < 20_000_000


async def test_a_grandchild_that_keeps_the_pipe_open_does_not_delay_the_answer(runner: Runner, here: Directory) -> None:
    """process-13: it is stopped after a moment, and counted."""
    with anyio.fail_after(60):
        completed = await runner.run(["sh", "-c", "sleep 1000 & echo $!; echo done"], cwd=here)
    pid, output = completed.stdout.text().split()
    assert (completed.ok, output, completed.stragglers_stopped) == (True, "done", 1)
    assert not is_alive(int(pid))


async def test_output_of_a_grandchild_shortly_after_the_exit_is_kept(here: Directory) -> None:
    """process-13: output shortly after the exit belongs to the run."""
    runner = Runner(Limits(linger_seconds=10.0), {"PATH": os.environ["PATH"]})
    completed = await runner.run(["sh", "-c", "(sleep 0.1; echo late) & echo early"], cwd=here)
    await runner.close()
    assert completed.stdout.text() == "early\nlate\n"
    assert completed.stragglers_stopped == 0


async def test_a_grandchild_with_closed_pipes_is_stopped_too(runner: Runner, here: Directory) -> None:
    """process-13: every process that remains in the group after the child's exit."""
    completed = await runner.run(["sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!"], cwd=here)
    assert completed.stragglers_stopped == 1
    assert not is_alive(int(completed.stdout.text()))


async def test_a_listener_gets_every_piece_and_may_stop_the_run(runner: Runner, here: Directory) -> None:
    """process-19: the tree is stopped early, and the result is no timeout."""
    seen = bytearray()

    def enough(data: bytes) -> bool:
        seen.extend(data)
        return seen.count(b"\n") >= 1000

    completed = await runner.run(["yes"], cwd=here, options=RunOptions(on_stdout=enough))
    assert seen.count(b"y\n") >= 1000
    assert completed.stdout.total_bytes >= len(seen)
    assert (completed.timed_out, completed.exit_code, completed.signal) == (False, None, "SIGTERM")
    assert runner.running == 0


async def test_a_listener_that_never_stops_the_run_gets_all_output(runner: Runner, here: Directory) -> None:
    """process-19: also the bytes that the excerpt drops."""
    seen = bytearray()

    def collect(data: bytes) -> bool:
        seen.extend(data)
        return False

    options = RunOptions(on_stdout=collect, keep_bytes=10)
    completed = await runner.run(["seq", "100000"], cwd=here, options=options)
    assert seen.split() == [str(number).encode() for number in range(1, 100_001)]
    assert completed.stdout.dropped_bytes == len(seen) - 10


async def test_an_exception_of_a_listener_is_raised_unchanged(runner: Runner, here: Directory) -> None:
    """process-19: after the tree is stopped."""

    def fail(data: bytes) -> bool:
        raise LookupError(data[:1])

    with pytest.raises(LookupError):
        await runner.run(["yes"], cwd=here, options=RunOptions(on_stdout=fail))
    assert runner.running == 0


async def test_a_child_too_many_is_refused(here: Directory) -> None:
    """process-23: it does not wait in a hidden queue."""
    runner = Runner(Limits(processes=2, grace_seconds=0.1), {"PATH": os.environ["PATH"]})
    async with anyio.create_task_group() as tasks:
        for name in ("up1", "up2"):
            script = f"echo > {name}; exec sleep 1000"
            tasks.start_soon(lambda script=script: runner.run(["sh", "-c", script], cwd=here))
        for name in ("up1", "up2"):
            await until_exists(Path(here.path, name))
        assert runner.running == 2
        with pytest.raises(Busy):
            await runner.run(["true"], cwd=here)
        tasks.cancel_scope.cancel()
    assert (await runner.run(["true"], cwd=here)).ok
    await runner.close()


async def test_200_at_once_are_all_answered(runner: Runner, here: Directory) -> None:
    """process-24: none is lost, and all descriptors are closed again."""
    await runner.run(["true"], cwd=here)
    before = len(os.listdir("/proc/self/fd"))
    answers: list[Completed] = []

    async def one(number: int) -> None:
        answers.append(await runner.run(["sh", "-c", f"sleep 0.2; echo {number}"], cwd=here))

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(one, number)
    assert sorted(int(answer.stdout.text()) for answer in answers) == list(range(200))
    assert all(answer.ok and answer.stragglers_stopped == 0 for answer in answers)
    assert len(os.listdir("/proc/self/fd")) == before
    assert runner.running == 0


async def test_starts_that_fail_leave_no_descriptor(runner: Runner, here: Directory) -> None:
    """process-24: nor do refusals."""
    await runner.run(["true"], cwd=here)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(CannotStart):
            await runner.run(["no-such-program"], cwd=here, options=RunOptions(stdin=b"x"))
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_the_peak_of_memory_is_reported_when_it_is_the_childs_own(runner: Runner, here: Directory) -> None:
    """process-26: a value below the server's own peak is the server's, and is not reported."""
    assert (await runner.run(["true"], cwd=here)).peak_memory_bytes == 0
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + 50_000_000
    take = [sys.executable, "-I", "-S", "-c", f"x = b'x' * {more}"]
    completed = await runner.run(take, cwd=here)
    assert completed.ok
    assert completed.peak_memory_bytes >= more
