"""Runs that outlive a call: commands with a handle, their output kept, their input open.

A handle belongs to a principal: to anybody else it is unknown. It is counted and capped, and it ends with its program,
with its deadline, when no call touches it for long, and with the server. How a child is started and ended is the
runner's; here is only what lives between the calls.
"""

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

import anyio

from coretools.config.settings import Limits
from coretools.errors import Busy, CoreError, NotFound, Unsupported
from coretools.process.children.reaper import KILL_SECONDS
from coretools.process.children.streams import InputBuffer, TerminalSize
from coretools.process.jobs.output_store import DiskQuota, OutputStore
from coretools.process.jobs.screen import TerminalScreen
from coretools.process.runner import Completed, Runner, RunOptions
from coretools.replica_ids import LOCAL_IDS, ReplicaScopedIds
from coretools.roots.read import Directory

logger = logging.getLogger(__name__)

JOB_VARIABLE = "CORETOOLS_RUN"
"""Variable by which the processes of a run are found: its id."""

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""For what is read while it runs: Python keeps what it prints to a pipe for itself until there are 8 KiB of it."""

IDLE_CHECK_SECONDS = 15.0
"""Between two looks for runs that nobody touches any more."""

MAX_FULL_OUTPUTS = 16
"""All outputs together have so many times the limit of one on disk."""

MAX_FULL_OUTPUTS_KEPT = 4
"""The same for the finished runs of one principal; the oldest are dropped."""


MAX_SHOWN_ID = 60
"""Characters of an id that is of no run, in what is said of it."""


class OutputFilter(Protocol):
    """What output passes on its way into a run's store, such as a redactor. One for each stream of each run."""

    def feed(self, data: bytes) -> bytes:
        """What may be kept of what came so far; it may hold a part back."""
        ...

    def end(self) -> bytes:
        """What was held back."""
        ...


class Job:
    """One run, from its start until it is forgotten. State for calls; only `Runs` makes and ends it."""

    def __init__(
        self, run_id: str, argv: Sequence[str], *, principal: str, options: RunOptions, output: OutputStore
    ) -> None:
        self.id = run_id
        self.argv = tuple(argv)
        self.principal = principal
        self.session = ""
        """The session by whose end it ends; empty for none."""
        self.feed: InputBuffer | None = options.input
        self.terminal: TerminalSize | None = options.terminal
        self.output = output
        self.filters: tuple[OutputFilter, OutputFilter] | None = None
        """For standard output and for standard error."""
        self.halt = anyio.Event()
        self.stopped_because = ""
        """Why we stopped it; empty when it ended by itself or at its deadline."""
        self.has_started = False
        self.tier: str | None = None
        """Tier of confinement that it runs in."""
        self.ended = anyio.Event()
        self.completed: Completed | None = None
        self.error: CoreError | None = None
        """Why there is no `completed`, after the end."""
        self.news = anyio.Event()
        """Set at the next output, the start and the end; another one takes its place then."""
        self.began = self.last_output = anyio.current_time()
        self.duration_seconds = 0.0
        self.touched = 0.0
        self.told = 0
        """Offset behind what calls were told of the output."""
        self.mark = 0
        """Offset from which a pattern is looked for: behind the last match and the last input."""
        self.calls = 0
        """Calls that wait for it now."""
        self.screen = TerminalScreen(options.terminal) if options.terminal is not None else None

    @property
    def marker(self) -> bytes:
        """What the environment of its processes has."""
        return f"{JOB_VARIABLE}={self.id}".encode()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self.ended.is_set()

    @property
    def seconds(self) -> float:
        """How long it runs, or ran."""
        return anyio.current_time() - self.began if self.is_alive else self.duration_seconds

    def begin(self) -> None:
        """The program has started."""
        self.has_started = True
        self._tell()

    def take(self, data: bytes, *, is_error: bool) -> None:
        """Keep the next piece of output: the one place where it comes in."""
        if self.filters is not None:
            data = self.filters[is_error].feed(data)
        self._keep(data)

    def stop(self, because: str) -> None:
        """Have it ended. The first reason counts."""
        if self.is_alive and not self.halt.is_set():
            self.stopped_because = because
            self.halt.set()

    def end(self) -> None:
        """The program is gone, and nothing more comes."""
        for held_back in self.filters or ():
            self._keep(held_back.end())
        self.duration_seconds = anyio.current_time() - self.began
        self.ended.set()
        self._tell()

    def _keep(self, data: bytes) -> None:
        if data:
            self.output.append(data)
            self.last_output = anyio.current_time()
            self._tell()

    def _tell(self) -> None:
        news, self.news = self.news, anyio.Event()
        news.set()


class JobTable:
    """All runs of a server. An asynchronous context; the runner must be closed before it ends."""

    def __init__(
        self,
        runner: Runner,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
        make_filter: Callable[[], OutputFilter] | None = None,
        ids: ReplicaScopedIds = LOCAL_IDS,
    ) -> None:
        self._runner = runner
        self._limits = limits
        self._clock = clock
        self._make_filter = make_filter
        self._ids = ids
        self._disk = DiskQuota(MAX_FULL_OUTPUTS * limits.run_output_bytes)
        self._runs: dict[str, Job] = {}
        """Oldest first."""
        # Tasks of asyncio and not of a group: what goes wrong inside one must not take the server with it.
        self._tasks: set[asyncio.Task[None]] = set()
        self._looks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for look in self._looks:
            look.cancel()
        for run in self._runs.values():
            run.stop("the server ends")
        with anyio.CancelScope(shield=True):
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._limits.grace_seconds + KILL_SECONDS)
            for task in self._tasks:
                task.cancel()
        for run in self._runs.values():
            run.output.close()
        self._runs.clear()

    def started_by(self, runner: Runner, *, make_filter: Callable[[], OutputFilter] | None) -> "JobTable":
        """The same runs, of which new ones are started by another runner. Not to be entered: they end with these."""
        found = copy.copy(self)
        found.use(runner, make_filter)
        return found

    def use(self, runner: Runner, make_filter: Callable[[], OutputFilter] | None) -> None:
        """Start what is new by this runner."""
        self._runner, self._make_filter = runner, make_filter

    async def start(
        self, argv: Sequence[str], *, cwd: Directory, options: RunOptions, principal: str, session: str = ""
    ) -> Job:
        """Start a run and return once its program runs. `cwd` is closed at its end, also when it does not start.

        It ends with its session, if one is named.

        Raises:
            Busy: as many runs as allowed. Unsupported: no terminals here. What `Runner.run` raises.
        """
        try:
            self._require_room(principal, options)
        except CoreError:
            cwd.close()
            raise
        run = self._new(argv, principal, options)
        run.session = session
        self._runs[run.id] = run
        task = asyncio.get_running_loop().create_task(self._carry(run, cwd, options))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._note_end(run, done))
        self._watch()
        try:
            while run.is_alive and not run.has_started:
                await run.news.wait()
        except anyio.get_cancelled_exc_class():
            run.stop("its call was cancelled")
            raise
        if run.error is not None and not run.has_started:
            self.forget(run)
            raise run.error
        run.tier = self._runner.tier
        return run

    def foreground(self, argv: Sequence[str], *, options: RunOptions, principal: str) -> Job:
        """A run for `carry`. No other call can reach it.

        Raises:
            Unsupported: no terminals here.
        """
        self._require_terminal(options)
        return self._new(argv, principal, options)

    async def carry(self, run: Job, *, cwd: Directory, options: RunOptions) -> None:
        """Run to the end within this call, which must `keep` or `forget` it then. Closes `cwd`.

        A refusal becomes the run's `error`. A cancelled call ends the run.
        """
        try:
            with cwd:
                run.completed = await self._runner.run(run.argv, cwd=cwd, options=replace(options, recorder=run))
        except CoreError as error:
            run.error = error
        finally:
            run.end()
            if run.completed is None:
                run.output.close()

    def keep(self, run: Job) -> None:
        """Let calls reach what a run printed that has ended."""
        self._runs[run.id] = run
        self._trim(run.principal)
        self._watch()

    def forget(self, run: Job) -> None:
        """No call asks for this run again."""
        self._runs.pop(run.id, None)
        run.output.close()

    def get(self, run_id: str, principal: str) -> Job:
        """A run of this principal, which is touched by that.

        Raises:
            NotFound: no such run, or another's, which is not told apart.
        """
        run = self._runs.get(run_id)
        if run is None or run.principal != principal:
            shown = run_id[:MAX_SHOWN_ID]
            said = self._ids.explain_foreign(run_id) or "no such run; list_runs names those that there are"
            raise NotFound(f"{shown!r}: {said}", run=shown)
        run.touched = self._clock()
        return run

    def of(self, principal: str) -> list[Job]:
        """The runs of a principal, oldest first."""
        return [run for run in self._runs.values() if run.principal == principal]

    @property
    def principals(self) -> set[str]:
        """Whose runs have not ended."""
        return {run.principal for run in self._runs.values() if run.is_alive}

    @property
    def alive(self) -> int:
        """Runs of everybody that have not ended."""
        return sum(run.is_alive for run in self._runs.values())

    def touch(self, run: Job) -> None:
        """A call is through with it."""
        run.touched = self._clock()

    def end_of_session(self, session: str) -> None:
        """Stop what was started in a session that is over. What it printed is there until nobody asks for it."""
        for run in self._runs.values():
            if run.session == session:
                run.stop("its session ended")

    def end_of_principal(self, principal: str) -> int:
        """Stop the runs of a principal who is let in no more; says how many."""
        alive = [run for run in self.of(principal) if run.is_alive]
        for run in alive:
            run.stop("the access of its owner was revoked")
        return len(alive)

    def end_idle(self) -> None:
        """Stop, or forget when it has ended, what no call touched for `run_idle_seconds`."""
        latest = self._clock() - self._limits.run_idle_seconds
        for run in [run for run in self._runs.values() if run.touched <= latest and not run.calls]:
            if run.is_alive:
                run.stop(f"no call touched it for {self._limits.run_idle_seconds:g} s")
            else:
                self.forget(run)

    def _require_room(self, principal: str, options: RunOptions) -> None:
        alive = sum(run.is_alive for run in self.of(principal))
        if alive >= self._limits.runs:
            raise Busy(f"{alive} runs are alive, the most at once; stop one with stop_run")
        self._require_terminal(options)

    def _require_terminal(self, options: RunOptions) -> None:
        if options.terminal is not None and not self._runner.has_terminals:
            raise Unsupported("no terminals here; run it without one")

    def _new(self, argv: Sequence[str], principal: str, options: RunOptions) -> Job:
        # 32 bits, because a model copies them: it is the principal that keeps others out, not the id.
        run_id = next(found for found in iter(lambda: self._ids.new_id("run", 4), "") if found not in self._runs)
        output = OutputStore(self._disk, file_bytes=self._limits.run_output_bytes)
        run = Job(run_id, argv, principal=principal, options=options, output=output)
        if self._make_filter is not None:
            run.filters = (self._make_filter(), self._make_filter())
        run.touched = self._clock()
        return run

    async def _carry(self, run: Job, cwd: Directory, options: RunOptions) -> None:
        try:
            with cwd:
                environment = {**UNBUFFERED, **options.environment, JOB_VARIABLE: run.id}
                mine = replace(options, recorder=run, halt=run.halt, keep_bytes=0, environment=environment)
                run.completed = await self._runner.run(run.argv, cwd=cwd, options=mine)
        except CoreError as error:
            run.error = error
        finally:
            run.end()
            run.touched = self._clock()
            self._trim(run.principal)

    def _note_end(self, run: Job, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            run.error = CoreError(f"{run.id} failed inside the server; its log has the reason")
            logger.error("%s failed inside", run.id, exc_info=failure)

    def _trim(self, principal: str) -> None:
        """Forget the oldest finished runs beyond what is kept of them."""
        size = 0
        newest_first = reversed([run for run in self.of(principal) if not run.is_alive])
        for count, run in enumerate(newest_first, 1):
            size += run.output.kept_bytes
            if count > self._limits.runs_kept or size > MAX_FULL_OUTPUTS_KEPT * self._limits.run_output_bytes:
                self.forget(run)

    def _watch(self) -> None:
        if not self._looks:
            look = asyncio.get_running_loop().create_task(self._look_for_idle())
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)

    async def _look_for_idle(self) -> None:
        while self._runs:
            await asyncio.sleep(IDLE_CHECK_SECONDS)
            self.end_idle()
