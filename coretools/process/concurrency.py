"""Which runs there are: how many at once, under which mark, and how all of them are told to end."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import anyio
from anyio import CancelScope

from coretools.confinement.control_files import ControlFiles
from coretools.errors import Busy, CannotStart


class AdmittedRun:
    """One run from its admission to its end: what its task and `Admission.end_all` have to agree on."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        """Value of the marker in the environment of its children."""
        self.scope = CancelScope()
        self.is_closing = False
        self.watchdog_slot: int | None = None
        self.control_files: ControlFiles = {}
        """What git, an editor or an agent acts on, before it."""
        self.remarks: tuple[str, ...] = ()
        """What became of its changes to git's configuration, where that is not what it meant."""


class ConcurrencyLimiter:
    """The runs of one runner. Used on the event loop only."""

    def __init__(self, prefix: str, *, max_runs: int) -> None:
        """`most` runs at once. Each has a mark: the prefix, its number, and a character that closes the number."""
        self._prefix = prefix
        self._max_runs = max_runs
        self._numbers = count(1)
        self._runs: set[AdmittedRun] = set()
        self._idle: anyio.Event | None = None

    def __len__(self) -> int:
        """Runs that have not ended."""
        return len(self._runs)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is admitted any more."""
        return self._idle is not None

    @contextmanager
    def acquire(self, argv: Sequence[str]) -> Iterator[AdmittedRun]:
        """A run of these words, for as long as it lasts.

        Raises:
            CannotStart: closed. Busy: as many runs as allowed are under way.
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
        """Admit nothing any more, have every run stopped, and wait for that, no longer than `seconds`."""
        self._idle = anyio.Event()
        for run in self._runs:
            run.is_closing = True
            run.scope.cancel()
        if self._runs:
            with anyio.move_on_after(seconds):
                await self._idle.wait()


def shutting_down(argv: Sequence[str]) -> CannotStart:
    """The error for what is started when everything ends."""
    return CannotStart(f"{argv[0]}: the server is ending and starts nothing any more")
