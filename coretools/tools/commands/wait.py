"""Wait until a run ends, prints a match, listens on a port, falls silent, or time is up."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from coretools.process.fork_server.tcp_listeners import is_listening
from coretools.process.jobs.job import Job
from coretools.tools.commands.output_matcher import OutputMatcher
from coretools.tools.commands.progress import ProgressReporter

WaitOutcome = Literal["exit", "pattern", "port", "quiet", "time"]
"""The event that ended the wait."""

PORT_SECONDS = 0.1
"""Interval of checks for a listening port; each reads the environment of every process of the machine."""


class PortWatch:
    """Checks in a worker thread whether a run listens on a port, at most once per `PORT_SECONDS`."""

    def __init__(self, job: Job, port: int, limiter: CapacityLimiter) -> None:
        self.port = port
        self._probe = partial(is_listening, job.marker, port)
        self._limiter = limiter
        self._next = 0.0

    async def is_open(self) -> bool:
        """Whether it listens; False if the last check was too recent."""
        if anyio.current_time() < self._next:
            return False
        listens = await anyio.to_thread.run_sync(self._probe, limiter=self._limiter)
        self._next = anyio.current_time() + PORT_SECONDS
        return listens


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitConditions:
    """What ends a wait, besides the end of the run."""

    seconds: float
    quiet_seconds: float | None = None
    """Time without output, counted from the start of the wait at the earliest."""
    quiet_from: int = 0
    """Length of the output before which silence does not count."""
    matcher: OutputMatcher | None = None
    port: PortWatch | None = None

    def event(self, outcome: WaitOutcome) -> str:
        """Describe the event that ended the wait; empty for the end of the run, which its state shows."""
        if outcome == "time":
            if not self.seconds:
                return ""
            if self.quiet_from:
                return f"no complete reply within {self.seconds:g} s"
            if self.matcher is None and self.port is None and self.quiet_seconds is None:
                return f"{self.seconds:g} s are over"
            older = self.matcher is not None and self.matcher.is_for_new
            hint = " of what was not shown before; since=0 searches all" if older else ""
            return f"nothing of it within {self.seconds:g} s{hint}"
        events = {
            "pattern": f"matched: {self.matcher.line if self.matcher else ''}",
            "port": f"listens on port {self.port.port if self.port else ''}",
            "quiet": f"quiet for {self.quiet_seconds or 0:g} s",
        }
        return events.get(outcome, "")


async def wait(job: Job, until: WaitConditions, progress: ProgressReporter) -> WaitOutcome:
    """Wait for the first event of `until`.

    Raises:
        InvalidArguments: matching the pattern takes too long.
    """
    began = anyio.current_time()
    job.waiting_calls += 1
    try:
        while True:
            # Taken before the check, so that output arriving meanwhile is not missed.
            changed = job.changed
            outcome, next_check = await _check(job, until, began)
            if outcome is not None:
                return outcome
            with anyio.move_on_after(max(0.0, min(next_check, progress.next) - anyio.current_time())):
                await changed.wait()
            await progress.report()
    finally:
        job.waiting_calls -= 1


async def _check(job: Job, until: WaitConditions, began: float) -> tuple[WaitOutcome | None, float]:
    """Return the event that occurred, or the latest time for the next check."""
    # Taken first: output that comes with the end must be searched before "exit" is reported.
    was_alive = job.is_alive
    if until.matcher is not None and await until.matcher.has_matched():
        return "pattern", 0.0
    if until.port is not None and was_alive and await until.port.is_open():
        return "port", 0.0
    now = anyio.current_time()
    deadline = began + until.seconds
    if until.matcher is not None and until.matcher.is_behind and now < deadline:
        return None, now
    if not was_alive:
        return "exit", 0.0
    next_check = deadline if until.port is None else min(deadline, now + PORT_SECONDS)
    if until.quiet_seconds is not None and job.output.end >= until.quiet_from:
        quiet_at = max(began, job.last_output) + until.quiet_seconds
        if now >= quiet_at:
            return "quiet", 0.0
        next_check = min(next_check, quiet_at)
    return ("time", 0.0) if now >= deadline else (None, next_check)
