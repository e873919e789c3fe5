"""Report the progress of a run to its caller."""

from collections.abc import Callable

import anyio

from coretools.operations.call import Call
from coretools.process.jobs.job import Job
from coretools.tools.output_text import plain

PROGRESS_SECONDS = 1.0
"""Interval of progress notifications."""

LINE_CHARACTERS = 200
"""Characters shown of the last line."""


class ProgressReporter:
    """Reports the progress of a run to its caller (seconds, bytes, last line), at most once per second."""

    def __init__(
        self, job: Job, call: Call, *, total: float | None, clock: Callable[[], float] = anyio.current_time
    ) -> None:
        self._job = job
        self._call = call
        self._total = total
        self._clock = clock
        self._began = clock()
        self.next = self._began + PROGRESS_SECONDS
        """When to report next."""

    async def report(self) -> None:
        """Report unless it is too early."""
        now = self._clock()
        if now < self.next:
            return
        self.next = now + PROGRESS_SECONDS
        state = f"{self._job.seconds:.0f} s, {self._job.output.end} bytes"
        line = _last_line(self._job)
        await self._call.progress(now - self._began, self._total, f"{state}: {line}" if line else state)

    async def report_forever(self) -> None:
        """Report until cancelled."""
        while True:
            await anyio.sleep(max(0.0, self.next - self._clock()))
            await self.report()


def _last_line(job: Job) -> str:
    """Return the last line that is not blank, shortened."""
    output = job.output
    text = plain(output.read(output.end - 4 * LINE_CHARACTERS, 4 * LINE_CHARACTERS).decode("utf-8", "replace"))
    lines = [line for line in text.split("\n") if line.strip()]
    return lines[-1].strip()[-LINE_CHARACTERS:] if lines else ""
