"""Background jobs: who owns them, what ends them, and what remains of them (docs/specs/runs.md)."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from coretools.config.limits import Limits
from coretools.errors import Busy, CannotStart, NotFound, Unsupported
from coretools.process.children.streams import InputBuffer, TerminalSize
from coretools.process.jobs.job import Job
from coretools.process.jobs.job_table import MAX_SHOWN_ID, JobTable
from coretools.process.run import RunOptions
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import Directory, RootSpec
from coretools.roots.root_set import Roots
from tests.process.tree import PATIENCE_SECONDS, TREE, Tree, is_alive

ME = "me"
FOREVER = ("tail", "-f", "/dev/null")
PLAIN = RunOptions(timeout_seconds=60)


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Place:
    """Jobs, and a directory to start them in."""

    def __init__(self, runs: JobTable, runner: Runner, open_here: Callable[[], Directory], clock: Clock) -> None:
        self.runs = runs
        self.runner = runner
        self.clock = clock
        self.open_here = open_here

    async def start(self, *argv: str, options: RunOptions = PLAIN, principal: str = ME) -> Job:
        return await self.runs.start(argv, cwd=self.open_here(), options=options, principal=principal)


@asynccontextmanager
async def place(folder: Path, **limits: float) -> AsyncIterator[Place]:
    chosen = Limits(grace_seconds=0.3).replaced({name: str(value) for name, value in limits.items()})
    clock = Clock()
    with Roots([RootSpec(str(folder))], deny=DenyRules(())) as roots:
        runner = Runner(chosen, {"PATH": os.environ["PATH"]})
        async with JobTable(runner, chosen, clock=clock) as runs:
            try:
                yield Place(runs, runner, lambda: open_directory(roots, "."), clock)
            finally:
                await runner.close()


async def ended(run: Job) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        await run.ended.wait()


async def printed(run: Job, text: bytes) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while text not in run.output.read(0, 1 << 20):
            await run.changed.wait()


async def test_a_run_goes_on_by_itself_and_keeps_what_it_prints(tmp_path: Path) -> None:
    """runs-8: both outputs form one stream in order of arrival; the run is identified by its id."""
    async with place(tmp_path) as here:
        run = await here.start("sh", "-c", "echo out; read a; echo err >&2; read a; echo end", options=fed())
        await printed(run, b"out\n")
        assert run.feed is not None
        run.feed.write(b"\n")
        await printed(run, b"out\nerr\n")
        run.feed.write(b"\n")
        await ended(run)
        assert here.runs.get(run.id, ME) is run
        assert run.output.read(0, 100) == b"out\nerr\nend\n"
        assert run.completed is not None
        assert run.completed.exit_code == 0


def fed() -> RunOptions:
    return RunOptions(timeout_seconds=60, input=InputBuffer())


async def test_a_run_keeps_its_directory_open_and_leaks_no_descriptor(tmp_path: Path) -> None:
    """runs-7: a run starts in the directory that was opened for it; at its end every descriptor is closed."""
    async with place(tmp_path) as here:
        await ended(await here.start("true"))
        before = len(os.listdir("/proc/self/fd"))
        directory = here.open_here()
        options = RunOptions(timeout_seconds=60)
        run = await here.runs.start(FOREVER, cwd=directory, options=options, principal=ME)
        assert directory.fd >= 0
        run.stop("the test is over")
        await ended(run)
        assert directory.fd == -1
        with pytest.raises(CannotStart):
            await here.start("no-such-program")
        big = await here.start("head", "-c", "3000000", "/dev/zero")
        await ended(big)
        here.runs.forget(big)
        assert len(os.listdir("/proc/self/fd")) == before


async def test_a_program_that_cannot_start_leaves_no_run(tmp_path: Path) -> None:
    """runs-2: the call answers with the reason."""
    async with place(tmp_path) as here:
        with pytest.raises(CannotStart, match="no-such-program"):
            await here.start("no-such-program")
        assert here.runs.of(ME) == []


async def test_a_run_of_another_principal_is_reported_as_unknown(tmp_path: Path) -> None:
    """runs-3: the error is the same, but for the id."""
    async with place(tmp_path) as here:
        run = await here.start(*FOREVER)
        refusals = []
        for run_id, principal in ((run.id, "somebody else"), ("run-00000000", ME), ("x" * 1000, ME)):
            with pytest.raises(NotFound) as refused:
                here.runs.get(run_id, principal)
            refusals.append(str(refused.value).replace(repr(run_id[:MAX_SHOWN_ID]), "ID"))
        assert len(set(refusals)) == 1
        assert here.runs.of("somebody else") == []


async def test_too_many_runs_are_refused_and_another_principal_still_has_room(tmp_path: Path) -> None:
    """runs-4: the limit counts the live runs of one principal."""
    async with place(tmp_path, runs=2) as here:
        first = await here.start(*FOREVER)
        await here.start(*FOREVER)
        with pytest.raises(Busy, match="2 runs are alive"):
            await here.start(*FOREVER)
        await here.start(*FOREVER, principal="somebody else")
        first.stop("asked")
        await ended(first)
        await here.start(*FOREVER)


async def test_of_finished_runs_the_oldest_are_forgotten(tmp_path: Path) -> None:
    """runs-4: by number and by output size on disk; a live run is never forgotten."""
    async with place(tmp_path, runs_kept=3, run_output_bytes=1_000_000) as here:
        alive = await here.start(*FOREVER)
        small = [await here.start("echo", str(number)) for number in range(5)]
        for run in small:
            await ended(run)
        assert here.runs.of(ME) == [alive, *small[2:]]
        for _ in range(6):
            await ended(await here.start("head", "-c", "1500000", "/dev/zero"))
        assert sum(run.output.kept_bytes for run in here.runs.of(ME)) <= 4_000_000
        assert alive.is_alive


async def test_an_idle_run_is_stopped_and_then_forgotten(tmp_path: Path) -> None:
    """runs-6: by the clock; a touch or a waiting call keeps it."""
    async with place(tmp_path, run_idle_seconds=100) as here:
        idle, touched, waited = [await here.start(*FOREVER) for _ in range(3)]
        waited.waiting_calls += 1
        here.clock.now += 99
        here.runs.stop_idle()
        here.runs.get(touched.id, ME)
        here.clock.now += 1
        here.runs.stop_idle()
        await ended(idle)
        assert idle.stopped_because == "no call used it for 100 s"
        assert touched.is_alive
        assert waited.is_alive
        here.clock.now += 100
        here.runs.stop_idle()
        assert idle not in here.runs.of(ME)
        await ended(touched)


async def test_a_run_ends_with_all_it_started(tmp_path: Path) -> None:
    """runs-5: a run's processes are stopped like those of other children; only a child without the marker variable in
    a new session may escape."""
    tree = Tree(tmp_path)
    async with place(tmp_path) as here:
        run = await here.start("sh", "-c", TREE)
        await tree.until_complete()
        run.stop("asked")
        await ended(run)
        assert tree.remaining() == []
        assert run.completed is not None
        assert run.completed.stragglers_stopped > 0


async def test_output_of_a_run_during_its_stop_is_kept(tmp_path: Path) -> None:
    """runs-8: also output between TERM and the exit."""
    async with place(tmp_path, grace_seconds=10) as here:
        run = await here.start("sh", "-c", "trap 'echo last words; exit 3' TERM; echo on; while :; do sleep 0.05; done")
        await printed(run, b"on\n")
        run.stop("asked")
        await ended(run)
        assert b"last words\n" in run.output.read(0, 100)
        assert run.completed is not None
        assert run.completed.exit_code == 3
        assert not run.completed.timed_out


async def test_a_run_has_a_deadline_of_its_own(tmp_path: Path) -> None:
    """runs-5: the run is reported as timed out."""
    async with place(tmp_path) as here:
        run = await here.start(*FOREVER, options=RunOptions(timeout_seconds=0.1))
        await ended(run)
        assert run.completed is not None
        assert run.completed.timed_out


async def test_the_end_of_the_server_ends_every_run(tmp_path: Path) -> None:
    """runs-5: with its children; its stored output is deleted."""
    async with place(tmp_path) as here:
        runs = [await here.start("sh", "-c", "echo $$; exec tail -f /dev/null") for _ in range(3)]
        for run in runs:
            await printed(run, b"\n")
        pids = [int(run.output.read(0, 100)) for run in runs]
        assert all(map(is_alive, pids))
    assert not any(map(is_alive, pids))
    assert not any(run.is_alive for run in runs)
    assert all(run.output.kept_bytes == 0 for run in runs)


async def test_a_call_that_is_cancelled_before_the_start_leaves_no_run_alive(tmp_path: Path) -> None:
    """runs-2: its caller never got the id."""
    async with place(tmp_path) as here:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await here.start(*FOREVER)
        for run in here.runs.of(ME):
            await ended(run)
        assert here.runner.running == 0


async def test_missing_terminals_are_reported(tmp_path: Path) -> None:
    """runs-20: and the working directory is closed."""
    async with place(tmp_path) as here:
        if here.runner.has_terminals:
            pytest.skip("terminals are available")
        directory = here.open_here()
        options = RunOptions(terminal=TerminalSize())
        with pytest.raises(Unsupported):
            await here.runs.start(FOREVER, cwd=directory, options=options, principal=ME)
        assert directory.fd == -1


async def test_each_stream_passes_its_own_filter(tmp_path: Path) -> None:
    """runs-12: what a filter has buffered is delivered at the end."""

    class Whole:
        """Deliver everything at the end, in capitals."""

        def __init__(self) -> None:
            self.data = b""

        def feed(self, data: bytes) -> bytes:
            self.data += data
            return b""

        def end(self) -> bytes:
            return b"<" + self.data.upper() + b">"

    limits = Limits(grace_seconds=0.3)
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(())) as roots:
        runner = Runner(limits, {"PATH": os.environ["PATH"]})
        async with JobTable(runner, limits, make_filter=Whole) as runs:
            options = RunOptions(timeout_seconds=60)
            argv = ("sh", "-c", "echo out; echo err >&2; echo more")
            run = await runs.start(argv, cwd=open_directory(roots, "."), options=options, principal=ME)
            await ended(run)
            assert run.output.read(0, 100) == b"<OUT\nMORE\n><ERR\n>"
            await runner.close()


async def test_a_flood_is_bounded_in_memory_and_on_disk(tmp_path: Path) -> None:
    """runs-9: and the run continues to its end; the number of printed bytes is known."""
    async with place(tmp_path, run_output_bytes=1_000_000) as here:
        run = await here.start("head", "-c", "20000000", "/dev/zero")
        await ended(run)
        assert run.output.end == 20_000_000
        assert run.output.kept_bytes <= 1_300_000
        assert run.output.first == 20_000_000 - run.output.kept_bytes
