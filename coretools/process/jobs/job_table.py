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
from typing import Self

import anyio

from coretools.config.limits import Limits
from coretools.errors import Busy, CoreError, NotFound, Unsupported
from coretools.process.children.reaper import KILL_SECONDS
from coretools.process.jobs.job import JOB_VARIABLE, Job, OutputFilter, Work
from coretools.process.jobs.output_store import DiskQuota, OutputStore
from coretools.process.run import RunOptions
from coretools.process.runner import Runner
from coretools.replica_ids import LOCAL_IDS, ReplicaScopedIds
from coretools.roots.root import Directory

logger = logging.getLogger(__name__)

IDLE_CHECK_SECONDS = 15.0
"""Between two checks for idle jobs."""

MAX_FULL_OUTPUTS = 16
"""Limit of all outputs on disk together, in multiples of the limit of one."""

MAX_FULL_OUTPUTS_KEPT = 4
"""The same for the finished jobs of one principal; the oldest are dropped."""


MAX_SHOWN_ID = 60
"""Characters of an unknown id that an error quotes."""


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
        self._jobs: dict[str, Job] = {}
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
        for job in self._jobs.values():
            job.stop("the server shuts down")
        # Also while the server is cancelled: programs end before their outputs are closed.
        with anyio.CancelScope(shield=True):
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._limits.grace_seconds + KILL_SECONDS)
            for task in self._tasks:
                task.cancel()
        for job in self._jobs.values():
            job.output.close()
        self._jobs.clear()

    def with_runner(self, runner: Runner, *, make_filter: Callable[[], OutputFilter] | None) -> "JobTable":
        """A view of the same jobs that starts new ones with another runner. Not entered: jobs end with this table."""
        view = copy.copy(self)
        view.use(runner, make_filter)
        return view

    @property
    def runner(self) -> Runner:
        """The runner that starts new jobs."""
        return self._runner

    def use(self, runner: Runner, make_filter: Callable[[], OutputFilter] | None) -> None:
        """Start new jobs with this runner."""
        self._runner, self._make_filter = runner, make_filter

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Directory,
        options: RunOptions,
        principal: str,
        session: str = "",
        work: Work | None = None,
    ) -> Job:
        """Start a job and return once its program runs. `cwd` is closed at its end, also after a failed start.

        The job ends with its session, if one is named. `work` replaces running `argv`.

        Raises:
            Busy: the limit of jobs is reached. Unsupported: no terminals here. Errors of `Runner.run`.
        """
        try:
            self._require_room(principal, options)
        except CoreError:
            cwd.close()
            raise
        job = self._new(argv, principal, options)
        job.session = session
        self._jobs[job.id] = job
        task = asyncio.get_running_loop().create_task(self._run_background(job, cwd, options, work))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._log_failure(job, done))
        self._start_idle_check()
        try:
            while job.is_alive and not job.has_started:
                await job.changed.wait()
        except anyio.get_cancelled_exc_class():
            job.stop("its call was cancelled")
            raise
        # It never ran: the caller gets the error, and `list_runs` does not list it.
        if job.error is not None and not job.has_started:
            self.forget(job)
            raise job.error
        job.tier = self._runner.tier
        return job

    def foreground_job(self, argv: Sequence[str], *, options: RunOptions, principal: str) -> Job:
        """Create a job for `run_job`. No other call can reach it.

        Raises:
            Unsupported: no terminals here.
        """
        self._require_terminal(options)
        return self._new(argv, principal, options)

    async def run_job(self, job: Job, *, cwd: Directory, options: RunOptions, work: Work | None = None) -> None:
        """Run a job to its end within this call, which must then call `keep_finished` or `forget`. Closes `cwd`.

        An error of the runner becomes the `error` of the job. A cancelled call ends the job.
        """
        try:
            await self._perform(job, cwd, options, work)
        finally:
            if job.completed is None:
                job.output.close()

    def keep_finished(self, job: Job) -> None:
        """Keep a finished job, so that calls can read its output."""
        self._jobs[job.id] = job
        self._trim(job.principal)
        self._start_idle_check()

    def forget(self, job: Job) -> None:
        """Drop a job and its output."""
        self._jobs.pop(job.id, None)
        job.output.close()

    def get(self, run_id: str, principal: str) -> Job:
        """A job of this principal, also by its id without the `run-` in front; counts as a use.

        Raises:
            NotFound: no such job, or that of another principal, with the same message.
        """
        job = self._jobs.get(run_id) or self._jobs.get(f"run-{run_id}")
        if job is None or job.principal != principal:
            short_id = run_id[:MAX_SHOWN_ID]
            reason = self._ids.explain_foreign(run_id) or "no such run; list_runs names those that there are"
            raise NotFound(f"{short_id!r}: {reason}", run=short_id)
        job.last_used = self._clock()
        return job

    def of(self, principal: str) -> list[Job]:
        """The jobs of a principal, oldest first."""
        return [job for job in self._jobs.values() if job.principal == principal]

    @property
    def principals(self) -> set[str]:
        """Principals with jobs that have not ended."""
        return {job.principal for job in self._jobs.values() if job.is_alive}

    @property
    def alive(self) -> int:
        """Number of jobs that have not ended, of all principals."""
        return sum(job.is_alive for job in self._jobs.values())

    def mark_used(self, job: Job) -> None:
        """Record the end of a call that used it."""
        job.last_used = self._clock()

    def stop_session(self, session: str) -> None:
        """Stop the jobs of a session that has ended. Their output is kept until they are idle."""
        for job in self._jobs.values():
            if job.session == session:
                job.stop("its session ended")

    def stop_principal(self, principal: str) -> int:
        """Stop the jobs of a principal whose access was revoked; return how many."""
        alive = [job for job in self.of(principal) if job.is_alive]
        for job in alive:
            job.stop("the access of its owner was revoked")
        return len(alive)

    def stop_idle(self) -> None:
        """Stop the jobs that no call has used for `run_idle_seconds`; forget those that have ended."""
        latest = self._clock() - self._limits.run_idle_seconds
        for job in [job for job in self._jobs.values() if job.last_used <= latest and not job.waiting_calls]:
            if job.is_alive:
                job.stop(f"no call used it for {self._limits.run_idle_seconds:g} s")
            else:
                self.forget(job)

    def _require_room(self, principal: str, options: RunOptions) -> None:
        alive = sum(job.is_alive for job in self.of(principal))
        if alive >= self._limits.runs:
            raise Busy(f"{alive} runs are alive, the most at once; stop one with stop_run")
        self._require_terminal(options)

    def _require_terminal(self, options: RunOptions) -> None:
        if options.terminal is not None and not self._runner.has_terminals:
            raise Unsupported("no terminals here; run it without one")

    def _new(self, argv: Sequence[str], principal: str, options: RunOptions) -> Job:
        # 32 bits, because a model copies it: the principal protects a job, not its id.
        run_id = next(found for found in iter(lambda: self._ids.new_id("run", 4), "") if found not in self._jobs)
        output = OutputStore(self._disk_quota, file_bytes=self._limits.run_output_bytes)
        job = Job(run_id, argv, principal=principal, options=options, output=output)
        if self._make_filter is not None:
            job.filters = (self._make_filter(), self._make_filter())
        job.last_used = self._clock()
        return job

    async def _perform(self, job: Job, cwd: Directory, options: RunOptions, work: Work | None) -> None:
        options = replace(options, recorder=job)
        try:
            with cwd:
                running = self._runner.run(job.argv, cwd=cwd, options=options) if work is None else work(options)
                job.completed = await running
        except CoreError as error:
            job.error = error
        finally:
            job.end()

    async def _run_background(self, job: Job, cwd: Directory, options: RunOptions, work: Work | None) -> None:
        environment = {**options.environment, JOB_VARIABLE: job.id}
        # The job records the output itself, so the runner keeps no copy, unless `work` reads it.
        kept = 0 if work is None else options.keep_bytes
        options = replace(options, halt=job.halt, keep_bytes=kept, environment=environment)
        try:
            await self._perform(job, cwd, options, work)
        finally:
            job.last_used = self._clock()
            self._trim(job.principal)

    def _log_failure(self, job: Job, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            job.error = CoreError(f"{job.id} failed inside the server; its log has the reason")
            logger.error("%s failed inside", job.id, exc_info=failure)

    def _trim(self, principal: str) -> None:
        """Forget the oldest finished jobs beyond the limits."""
        size = 0
        newest_first = reversed([job for job in self.of(principal) if not job.is_alive])
        for count, job in enumerate(newest_first, 1):
            size += job.output.kept_bytes
            is_too_much = size > MAX_FULL_OUTPUTS_KEPT * self._limits.run_output_bytes
            if count > self._limits.runs_kept or (is_too_much and count > 1):  # the newest has just been named
                self.forget(job)

    def _start_idle_check(self) -> None:
        if not self._idle_checks:
            check = asyncio.get_running_loop().create_task(self._check_idle())
            self._idle_checks.add(check)
            check.add_done_callback(self._idle_checks.discard)

    async def _check_idle(self) -> None:
        # Ends with the last job; the next one starts it again.
        while self._jobs:
            await asyncio.sleep(IDLE_CHECK_SECONDS)
            self.stop_idle()
