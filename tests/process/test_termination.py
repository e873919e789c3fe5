"""Whatever ends a run, no process remains (docs/specs/process.md)."""

import asyncio
import os
import shlex
import sys
from pathlib import Path

import anyio
import pytest

from coretools.config.limits import Limits
from coretools.errors import CannotStart
from coretools.process.children import reaper
from coretools.process.children.spawn import exit_handle_by_thread
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.root import Directory
from tests.process.tree import (
    HEADLESS,
    PATIENCE_SECONDS,
    TREE,
    Tree,
    alive,
    carriers,
    is_alive,
    until_exists,
    until_exited,
    until_files,
)

NEEDS_PROC = pytest.mark.skipif(not reaper.can_list_processes(), reason="needs marker-sweep")
DEAF = "trap '' TERM INT HUP; echo started; while :; do sleep 1000; done"


async def test_a_deadline_is_a_result_with_what_was_written(runner: Runner, here: Directory) -> None:
    """process-15: the caller gets the output so far."""
    options = RunOptions(timeout_seconds=3.0)
    completed = await runner.run(["sh", "-c", "echo out; echo err >&2; exec sleep 1000"], cwd=here, options=options)
    assert (completed.timed_out, completed.exit_code, completed.signal) == (True, None, "SIGTERM")
    assert (completed.stdout.text(), completed.stderr.text()) == ("out\n", "err\n")
    assert not completed.ok


async def test_output_of_a_child_during_its_stop_is_kept(runner: Runner, here: Directory) -> None:
    """process-15: outputs are drained through the grace period, so that the last output does not block the child."""
    script = "trap 'seq 100000; exit 3' TERM; echo started; sleep 1000 & wait"
    completed = await runner.run(["sh", "-c", script], cwd=here, options=RunOptions(timeout_seconds=3.0))
    assert (completed.timed_out, completed.exit_code) == (True, 3)
    assert completed.stdout.text().startswith("started\n1\n2\n")
    assert completed.stdout.text().endswith("\n100000\n")


async def test_a_deadline_that_is_over_at_the_start_still_ends_the_child(runner: Runner, here: Directory) -> None:
    """process-15: zero is a deadline like any other."""
    completed = await runner.run(["sleep", "1000"], cwd=here, options=RunOptions(timeout_seconds=0.0))
    assert completed.timed_out
    assert runner.running == 0


async def test_a_child_that_ends_in_time_has_not_timed_out_though_its_pipe_is_open(here: Directory) -> None:
    """process-15: the deadline applies to the child, not to other holders of its pipe."""
    runner = Runner(Limits(linger_seconds=1000.0, grace_seconds=0.2), {"PATH": os.environ["PATH"]})
    completed = await runner.run(
        ["sh", "-c", "sleep 1000 & echo done"], cwd=here, options=RunOptions(timeout_seconds=3.0)
    )
    await runner.close()
    assert (completed.exit_code, completed.timed_out, completed.stragglers_stopped) == (0, False, 1)


async def test_a_child_that_ignores_term_is_killed_after_the_grace_period(runner: Runner, here: Directory) -> None:
    """process-16: first TERM, then KILL."""
    completed = await runner.run(["sh", "-c", DEAF], cwd=here, options=RunOptions(timeout_seconds=3.0))
    assert (completed.timed_out, completed.signal, completed.stdout.text()) == (True, "SIGKILL", "started\n")


async def test_a_member_that_ignores_term_is_killed_though_the_child_obeys(runner: Runner, here: Directory) -> None:
    """process-16: the whole group, not only its leader."""
    script = f"sh -c '{DEAF.replace(chr(39), chr(34))}' & echo $!; exec sleep 1000"
    completed = await runner.run(["sh", "-c", script], cwd=here, options=RunOptions(timeout_seconds=3.0))
    pid = next(line for line in completed.stdout.text().splitlines() if line.isdigit())
    assert completed.timed_out
    assert completed.stragglers_stopped >= 1
    assert not is_alive(int(pid))


async def test_a_child_that_closes_its_pipes_is_still_waited_for(runner: Runner, here: Directory) -> None:
    """process-14: the end of output is not the end of the child."""
    completed = await runner.run(["sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 5"], cwd=here)
    assert completed.exit_code == 5
    options = RunOptions(timeout_seconds=0.3)
    completed = await runner.run(["sh", "-c", "exec >&- 2>&-; exec sleep 1000"], cwd=here, options=options)
    assert completed.timed_out


async def test_a_child_that_never_reads_ten_megabytes_ends_at_its_deadline(runner: Runner, here: Directory) -> None:
    """process-2, process-15: writing to its standard input blocks nothing else."""
    options = RunOptions(stdin=b"x" * 10_000_000, timeout_seconds=0.3)
    completed = await runner.run(["sleep", "1000"], cwd=here, options=options)
    assert (completed.timed_out, completed.signal) == (True, "SIGTERM")


@NEEDS_PROC
async def test_a_cancelled_run_is_gone_before_the_cancellation_goes_on(
    runner: Runner, here: Directory, tmp_path: Path
) -> None:
    """process-17, process-20: the whole tree, in whatever sessions its members are."""
    tree = Tree(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: runner.run(["sh", "-c", TREE], cwd=here))
        await tree.until_complete()
        tasks.cancel_scope.cancel()
    assert tree.remaining() == []
    assert runner.running == 0


@NEEDS_PROC
async def test_a_deadline_leaves_nothing_of_a_tree(runner: Runner, here: Directory, tmp_path: Path) -> None:
    """process-16, process-20: including descendants in sessions of their own."""
    tree = Tree(tmp_path)
    completed = await runner.run(["sh", "-c", TREE], cwd=here, options=RunOptions(timeout_seconds=5.0))
    assert completed.timed_out
    assert tree.remaining() == []


@NEEDS_PROC
async def test_closing_leaves_nothing_of_a_tree(runner: Runner, here: Directory, tmp_path: Path) -> None:
    """process-18, process-20: a caller that waits for the run gets an answer, and no new run can start."""
    tree = Tree(tmp_path)
    answers: list[Completed] = []

    async def one() -> None:
        answers.append(await runner.run(["sh", "-c", TREE], cwd=here))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one)
        await tree.until_complete()
        await runner.close()
        assert tree.remaining() == []
    assert [(answer.timed_out, answer.signal) for answer in answers] == [(False, "SIGTERM")]
    with pytest.raises(CannotStart):
        await runner.run(["true"], cwd=here)
    await runner.close()


@NEEDS_PROC
async def test_a_daemon_that_an_ended_run_left_is_gone_at_close(here: Directory) -> None:
    """process-20: it left the group on purpose and its command ended normally; it ends with the server."""
    runner = Runner(Limits(grace_seconds=0.3), {"PATH": os.environ["PATH"]})
    daemon = "setsid sh -c 'echo $$ > up.new; mv up.new up; exec sleep 1000 <&- >&- 2>&-' &"
    completed = await runner.run(["sh", "-c", daemon + " while [ ! -e up ]; do sleep 0.01; done; cat up"], cwd=here)
    pid = int(completed.stdout.text())
    assert completed.ok
    assert is_alive(pid)
    await runner.close()
    assert not is_alive(pid)


MEMORY = "import os; m = b'x' * (256 << 20); open('up', 'w'); print(os.getpid(), flush=True); os.read(os.pipe()[0], 1)"
CLOSED = "echo $$ > new; mv new up; exec sleep 1000 <&- >&- 2>&-"
UNTIL_UP = "while [ ! -e up ]; do sleep 0.01; done"
DAEMONS = {
    "closed outputs": (f"setsid sh -c {shlex.quote(CLOSED)} & {UNTIL_UP}; cat up; exec sleep 1000", 1.0),
    "open output": ("setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.1", None),
    "first thread exited": (shlex.join(["exec", sys.executable, "-c", HEADLESS]), 0.5),
    "much memory": (f"setsid {shlex.join([sys.executable, '-c', MEMORY])} & {UNTIL_UP}", None),
}
"""Scripts that print the pid of a process outside their group, and the deadline that ends them, if any. The marker
variable or the open pipe identifies it. /proc shows one without its first thread as a zombie; one that frees much
memory has no environment while it exits, but still exists."""


@NEEDS_PROC
@pytest.mark.parametrize("name", DAEMONS)
async def test_a_daemon_ends_with_its_run(runner: Runner, here: Directory, name: str) -> None:
    """process-13, process-20: it has exited when the run is answered, and is counted."""
    script, deadline = DAEMONS[name]
    completed = await runner.run(["sh", "-c", script], cwd=here, options=RunOptions(timeout_seconds=deadline))
    assert (completed.timed_out, completed.ok) == (deadline is not None, deadline is None)
    assert completed.stragglers_stopped == 1
    assert not is_alive(int(completed.stdout.text()))


@NEEDS_PROC
async def test_stopping_one_run_leaves_the_others_alone(runner: Runner, here: Directory) -> None:
    """process-20: the marker of run 1 is no prefix of the marker of run 10."""
    answers: list[Completed] = []

    async def other(number: int) -> None:
        script = f"touch up{number}; while [ ! -e go ]; do sleep 0.01; done"
        answers.append(await runner.run(["sh", "-c", script], cwd=here))

    folder = Path(here.path)
    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as first:
            first.start_soon(other, 1)
            await until_exists(folder / "up1")
            for number in range(2, 13):
                tasks.start_soon(other, number)
            await until_files(folder, lambda: len(list(folder.glob("up*"))) == 12)
            first.cancel_scope.cancel()
        assert runner.running == 11
        (folder / "go").touch()
    assert [answer.exit_code for answer in answers] == [0] * 11


async def test_closing_an_unused_runner_does_nothing(here: Directory) -> None:
    """process-18: no watchdog, no wait."""
    runner = Runner(Limits(), {})
    await runner.close()
    with pytest.raises(CannotStart):
        await runner.run(["true"], cwd=here)


async def test_many_runs_are_stopped_at_once(runner: Runner, here: Directory) -> None:
    """process-17: stopping fifty takes no longer than the grace period and a time proportional to their number."""
    folder = Path(here.path)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                script = f"echo > up{number}; exec sleep 1000"
                tasks.start_soon(lambda script=script: runner.run(["sh", "-c", script], cwd=here))
            await until_files(folder, lambda: len(list(folder.glob("up*"))) == 50)
            assert runner.running == 50
            tasks.cancel_scope.cancel()
    assert runner.running == 0


@NEEDS_PROC
@pytest.mark.parametrize("turns", range(12))
async def test_a_run_that_asyncio_cancels_at_any_moment_leaves_nothing(here: Directory, turns: int) -> None:
    """process-17: anyio's shield does not stop asyncio's own cancel; a start that nobody awaits is undone."""
    runner = Runner(Limits(grace_seconds=0.3), {"PATH": os.environ["PATH"]})
    mark = (await runner.run(["sh", "-c", "echo $CORETOOLS_PROCESS_MARKER"], cwd=here)).stdout.text().partition("-")[0]
    for _ in range(5):
        task = asyncio.ensure_future(runner.run(["sleep", "1000"], cwd=here))
        for _ in range(turns):
            await anyio.lowlevel.cancel_shielded_checkpoint()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert runner.running == 0
    await until_exited(lambda: carriers(f"CORETOOLS_PROCESS_MARKER={mark}-"))
    await runner.close()


@NEEDS_PROC
async def test_a_second_cancel_of_asyncio_leaves_nothing_either(here: Directory, tmp_path: Path) -> None:
    """process-17: it passes the shield during the grace period; KILL follows at once."""
    runner = Runner(Limits(grace_seconds=1000.0), {"PATH": os.environ["PATH"]})
    script = "trap 'echo > termed' TERM; echo $$ > new; mv new up; while :; do sleep 0.01; done"
    task = asyncio.ensure_future(runner.run(["sh", "-c", script], cwd=here))
    up, termed = tmp_path / "up", tmp_path / "termed"
    await until_exists(up)
    pid = int(up.read_text())
    task.cancel()
    await until_exists(termed)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_exited(alive(pid))
    await runner.close()


@pytest.fixture
def bare_child() -> int:
    return os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 0.1; exit 4"], dict(os.environ))


def exit_code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, os.WNOHANG)[1])


async def test_the_exit_is_noticed_without_a_pidfd(bare_child: int) -> None:
    """process-25: by a thread, through a descriptor that becomes readable at the exit."""
    handle = exit_handle_by_thread(bare_child)
    with anyio.fail_after(PATIENCE_SECONDS):
        await anyio.wait_readable(handle)
    os.close(handle)
    assert exit_code_of(bare_child) == 4
