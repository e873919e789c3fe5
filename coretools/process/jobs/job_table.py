"""Jobs: commands that outlive a call, with an id, stored output and open input. Users know them as runs.

A job belongs to a principal; to any other its id is unknown. The number of jobs is limited. A job ends with its
program, at its deadline, when no call uses it for long, and with the server. The runner starts and stops the processes;
this module keeps what lives between the calls.
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
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.replica_ids import LOCAL_IDS, ReplicaScopedIds
from coretools.roots.root import Directory

logger = logging.getLogger(__name__)

JOB_VARIABLE = "CORETOOLS_RUN"
"""Environment variable with the id of the job, by which its processes are found."""

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""For output that is read while the program runs: Python buffers 8 KiB of what it writes to a pipe."""

IDLE_CHECK_SECONDS = 15.0
"""Between two checks for idle jobs."""

MAX_FULL_OUTPUTS = 16
"""Limit of all outputs on disk together, in multiples of the limit of one."""

MAX_FULL_OUTPUTS_KEPT = 4
"""The same for the finished jobs of one principal; the oldest are dropped."""


MAX_SHOWN_ID = 60
"""Characters of an unknown id that an error quotes."""


class OutputFilter(Protocol):
    """A filter for output before it is stored, such as a redactor. One for each stream of each job."""

    def feed(self, data: bytes) -> bytes:
        """Take a chunk and return what can be stored; a part may be held back."""
        ...

    def end(self) -> bytes:
        """Return what was held back."""
        ...


class Job:
    """One job, from its start until it is forgotten. Only `JobTable` creates and ends jobs."""

    def __init__(
        self, run_id: str, argv: Sequence[str], *, principal: str, options: RunOptions, output: OutputStore
    ) -> None:
        self.id = run_id
        self.argv = tuple(argv)
        self.line = options.line
        self.principal = principal
        self.session = ""
        """The session that it ends with; empty for none."""
        self.feed: InputBuffer | None = options.input
        self.terminal: TerminalSize | None = options.terminal
        self.output = output
        self.filters: tuple[OutputFilter, OutputFilter] | None = None
        """For standard output and for standard error."""
        self.halt = anyio.Event()
        self.stopped_because = ""
        """Why the server stopped it; empty if it ended by itself or at its deadline."""
        self.has_started = False
        self.tier: str | None = None
        """Confinement tier that it runs in."""
        self.ended = anyio.Event()
        self.completed: Completed | None = None
        self.error: CoreError | None = None
        """Why there is no `completed` after the end."""
        self.changed = anyio.Event()
        """Set at the next output, the start and the end, and then replaced by a new event."""
        self.started_at = self.last_output = anyio.current_time()
        self.duration_seconds = 0.0
        self.last_used = 0.0
        self.reported_end = 0
        """End of the output that calls have reported, as an offset."""
        self.match_offset = 0
        """Offset at which the search for a pattern starts: after the last match and the last input."""
        self.waiting_calls = 0
        """Number of calls that wait for it now."""
        self.screen = TerminalScreen(options.terminal) if options.terminal is not None else None

    @property
    def marker(self) -> bytes:
        """Marker in the environment of its processes."""
        return f"{JOB_VARIABLE}={self.id}".encode()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self.ended.is_set()

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return anyio.current_time() - self.started_at if self.is_alive else self.duration_seconds

    def begin(self) -> None:
        """Called by the runner when the program has started."""
        self.has_started = True
        self._notify()

    def take(self, data: bytes, *, is_error: bool) -> None:
        """Store the next chunk of output; the only entry for output."""
        if self.filters is not None:
            data = self.filters[is_error].feed(data)
        self._keep(data)

    def stop(self, because: str) -> None:
        """Request its end. The first reason is kept."""
        if self.is_alive and not self.halt.is_set():
            self.stopped_because = because
            self.halt.set()

    def end(self) -> None:
        """Record the end: the program is gone and its output complete."""
        for held_back in self.filters or ():
            self._keep(held_back.end())
        self.duration_seconds = anyio.current_time() - self.started_at
        self.ended.set()
        self._notify()

    def _keep(self, data: bytes) -> None:
        if data:
            self.output.append(data)
            self.last_output = anyio.current_time()
            self._notify()

    def _notify(self) -> None:
        # Replaced before it is set: a waiter that wakes and waits again gets the next change.
        changed, self.changed = self.changed, anyio.Event()
        changed.set()


class JobTable:
    """All jobs of a server. An asynchronous context manager; close the runner before leaving it."""

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
        self._disk_quota = DiskQuota(MAX_FULL_OUTPUTS * limits.run_output_bytes)
        self._runs: dict[str, Job] = {}
        """Oldest first."""
        # Tasks of asyncio, not of a task group: a failure in one must not end the server.
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle_checks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for check in self._idle_checks:
            check.cancel()
        for run in self._runs.values():
            run.stop("the server shuts down")
        # Also while the server is cancelled: programs end before their outputs are closed.
        with anyio.CancelScope(shield=True):
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._limits.grace_seconds + KILL_SECONDS)
            for task in self._tasks:
                task.cancel()
        for run in self._runs.values():
            run.output.close()
        self._runs.clear()

    def with_runner(self, runner: Runner, *, make_filter: Callable[[], OutputFilter] | None) -> "JobTable":
        """A view of the same jobs that starts new ones with another runner. Not entered: jobs end with this table."""
        found = copy.copy(self)
        found.use(runner, make_filter)
        return found

    @property
    def runner(self) -> Runner:
        """The runner that starts new jobs."""
        return self._runner

    def use(self, runner: Runner, make_filter: Callable[[], OutputFilter] | None) -> None:
        """Start new jobs with this runner."""
        self._runner, self._make_filter = runner, make_filter

    async def start(
        self, argv: Sequence[str], *, cwd: Directory, options: RunOptions, principal: str, session: str = ""
    ) -> Job:
        """Start a job and return once its program runs. `cwd` is closed at its end, also after a failed start.

        The job ends with its session, if one is named.

        Raises:
            Busy: the limit of jobs is reached. Unsupported: no terminals here. Errors of `Runner.run`.
        """
        try:
            self._require_room(principal, options)
        except CoreError:
            cwd.close()
            raise
        run = self._new(argv, principal, options)
        run.session = session
        self._runs[run.id] = run
        task = asyncio.get_running_loop().create_task(self._run_background(run, cwd, options))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._log_failure(run, done))
        self._start_idle_check()
        try:
            while run.is_alive and not run.has_started:
                await run.changed.wait()
        except anyio.get_cancelled_exc_class():
            run.stop("its call was cancelled")
            raise
        # It never ran: the caller gets the error, and `list_runs` does not list it.
        if run.error is not None and not run.has_started:
            self.forget(run)
            raise run.error
        run.tier = self._runner.tier
        return run

    def foreground_job(self, argv: Sequence[str], *, options: RunOptions, principal: str) -> Job:
        """Create a job for `run_job`. No other call can reach it.

        Raises:
            Unsupported: no terminals here.
        """
        self._require_terminal(options)
        return self._new(argv, principal, options)

    async def run_job(self, run: Job, *, cwd: Directory, options: RunOptions) -> None:
        """Run a job to its end within this call, which must then call `keep_finished` or `forget`. Closes `cwd`.

        An error of the runner becomes the `error` of the job. A cancelled call ends the job.
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

    def keep_finished(self, run: Job) -> None:
        """Keep a finished job, so that calls can read its output."""
        self._runs[run.id] = run
        self._trim(run.principal)
        self._start_idle_check()

    def forget(self, run: Job) -> None:
        """Drop a job and its output."""
        self._runs.pop(run.id, None)
        run.output.close()

    def get(self, run_id: str, principal: str) -> Job:
        """A job of this principal; counts as a use.

        Raises:
            NotFound: no such job, or that of another principal, with the same message.
        """
        run = self._runs.get(run_id)
        if run is None or run.principal != principal:
            short_id = run_id[:MAX_SHOWN_ID]
            reason = self._ids.explain_foreign(run_id) or "no such run; list_runs names those that there are"
            raise NotFound(f"{short_id!r}: {reason}", run=short_id)
        run.last_used = self._clock()
        return run

    def of(self, principal: str) -> list[Job]:
        """The jobs of a principal, oldest first."""
        return [run for run in self._runs.values() if run.principal == principal]

    @property
    def principals(self) -> set[str]:
        """Principals with jobs that have not ended."""
        return {run.principal for run in self._runs.values() if run.is_alive}

    @property
    def alive(self) -> int:
        """Number of jobs that have not ended, of all principals."""
        return sum(run.is_alive for run in self._runs.values())

    def mark_used(self, run: Job) -> None:
        """Record the end of a call that used it."""
        run.last_used = self._clock()

    def stop_session(self, session: str) -> None:
        """Stop the jobs of a session that has ended. Their output is kept until they are idle."""
        for run in self._runs.values():
            if run.session == session:
                run.stop("its session ended")

    def stop_principal(self, principal: str) -> int:
        """Stop the jobs of a principal whose access was revoked; return how many."""
        alive = [run for run in self.of(principal) if run.is_alive]
        for run in alive:
            run.stop("the access of its owner was revoked")
        return len(alive)

    def stop_idle(self) -> None:
        """Stop the jobs that no call has used for `run_idle_seconds`; forget those that have ended."""
        latest = self._clock() - self._limits.run_idle_seconds
        for run in [run for run in self._runs.values() if run.last_used <= latest and not run.waiting_calls]:
            if run.is_alive:
                run.stop(f"no call used it for {self._limits.run_idle_seconds:g} s")
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
        # 32 bits, because a model copies it: the principal protects a job, not its id.
        run_id = next(found for found in iter(lambda: self._ids.new_id("run", 4), "") if found not in self._runs)
        output = OutputStore(self._disk_quota, file_bytes=self._limits.run_output_bytes)
        run = Job(run_id, argv, principal=principal, options=options, output=output)
        if self._make_filter is not None:
            run.filters = (self._make_filter(), self._make_filter())
        run.last_used = self._clock()
        return run

    async def _run_background(self, run: Job, cwd: Directory, options: RunOptions) -> None:
        try:
            with cwd:
                environment = {**UNBUFFERED, **options.environment, JOB_VARIABLE: run.id}
                # `keep_bytes=0`: the job records the output itself, so the runner keeps no copy.
                mine = replace(options, recorder=run, halt=run.halt, keep_bytes=0, environment=environment)
                run.completed = await self._runner.run(run.argv, cwd=cwd, options=mine)
        except CoreError as error:
            run.error = error
        finally:
            run.end()
            run.last_used = self._clock()
            self._trim(run.principal)

    def _log_failure(self, run: Job, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            run.error = CoreError(f"{run.id} failed inside the server; its log has the reason")
            logger.error("%s failed inside", run.id, exc_info=failure)

    def _trim(self, principal: str) -> None:
        """Forget the oldest finished jobs beyond the limits."""
        size = 0
        newest_first = reversed([run for run in self.of(principal) if not run.is_alive])
        for count, run in enumerate(newest_first, 1):
            size += run.output.kept_bytes
            is_too_much = size > MAX_FULL_OUTPUTS_KEPT * self._limits.run_output_bytes
            if count > self._limits.runs_kept or (is_too_much and count > 1):  # the newest has just been named
                self.forget(run)

    def _start_idle_check(self) -> None:
        if not self._idle_checks:
            check = asyncio.get_running_loop().create_task(self._check_idle())
            self._idle_checks.add(check)
            check.add_done_callback(self._idle_checks.discard)

    async def _check_idle(self) -> None:
        # Ends with the last job; the next one starts it again.
        while self._runs:
            await asyncio.sleep(IDLE_CHECK_SECONDS)
            self.stop_idle()
