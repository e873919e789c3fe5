"""Limits concurrent runs, gives each a marker, and cancels all of them at shutdown."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import anyio
from anyio import CancelScope

from coretools.confinement.protected_paths import ControlFiles
from coretools.errors import Busy, CannotStart


class AdmittedRun:
    """State of one run that its task shares with `ConcurrencyLimiter.cancel_all`."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        """Value of the marker variable in the environment of its processes."""
        self.scope = CancelScope()
        self.is_closing = False
        self.watchdog_slot: int | None = None
        self.control_files: ControlFiles = {}
        """Control files as they were before the run."""
        self.remarks: tuple[str, ...] = ()
        """Sentences for the result; see `Completed.remarks`."""
        self.line = ""
        """The shell line, if it is one."""
        self.change = 0
        """See `Completed.change`."""


class ConcurrencyLimiter:
    """The active runs of one runner. Used on the event loop only."""

    def __init__(self, prefix: str, *, max_runs: int) -> None:
        """`max_runs` at once. The marker of each: the prefix, its number, and a character that ends the number."""
        self._prefix = prefix
        self._max_runs = max_runs
        self._numbers = count(1)
        self._runs: set[AdmittedRun] = set()
        self._idle: anyio.Event | None = None

    def __len__(self) -> int:
        """Number of active runs."""
        return len(self._runs)

    @property
    def is_closed(self) -> bool:
        """Whether new runs are refused."""
        return self._idle is not None

    @contextmanager
    def acquire(self, argv: Sequence[str]) -> Iterator[AdmittedRun]:
        """Hold a place for a run of `argv` for as long as it lasts.

        Raises:
            CannotStart: the runner is closed. Busy: the limit is reached.
        """
        if self._idle is not None:
            raise shutting_down(argv)
        if len(self._runs) >= self._max_runs:
            raise Busy(f"{len(self._runs)} commands run already, the most at once; try again when one has ended")
        run = AdmittedRun(f"{self._prefix}{next(self._numbers)}-")
        self._runs.add(run)
        try:
            yield run
        finally:
            self._runs.remove(run)
            if self._idle is not None and not self._runs:
                self._idle.set()

    async def cancel_all(self, seconds: float) -> None:
        """Refuse new runs, cancel the active ones, and wait at most `seconds` for their end."""
        self._idle = anyio.Event()
        for run in self._runs:
            run.is_closing = True
            run.scope.cancel()
        if self._runs:
            with anyio.move_on_after(seconds):
                await self._idle.wait()


def shutting_down(argv: Sequence[str]) -> CannotStart:
    """The error for a start during shutdown."""
    return CannotStart(f"{argv[0]}: the server is shutting down and starts no more programs")
