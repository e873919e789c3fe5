"""One job: its output, input, state and end. `job_table` starts and ends jobs."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import anyio

from coretools.errors import CoreError
from coretools.process.children.streams import InputBuffer, TerminalSize
from coretools.process.jobs.output_store import OutputStore
from coretools.process.jobs.terminal_screen import TerminalScreen
from coretools.process.run import Completed, RunOptions

JOB_VARIABLE = "CORETOOLS_RUN"
"""Environment variable with the id of the job, by which its processes are found."""


class OutputFilter(Protocol):
    """A filter for output before it is stored, such as a redactor. One for each stream of each job."""

    def feed(self, data: bytes) -> bytes:
        """Take a chunk and return what can be stored; a part may be held back."""
        ...

    def end(self) -> bytes:
        """Return what was held back."""
        ...


Work = Callable[[RunOptions], Awaitable[Completed]]
"""What a job does in place of running its argv: several programs, for instance, each run with these options."""


class Report(Protocol):
    """What the output of a job means, for its reader."""

    def text(self) -> str:
        """Return it as text."""
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
        """Offset at which the search for a pattern starts: after the last match, the last input, and what was shown."""
        self.match_seen = 0
        """Length of the output at that moment; more of it must have come before a pattern can match."""
        self.waiting_calls = 0
        """Number of calls that wait for it now."""
        self.screen = TerminalScreen(options.terminal) if options.terminal is not None else None
        self.report: Callable[[], Awaitable[Report]] | None = None
        """Says what its output means, for calls after its end; None: the output speaks for itself."""

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

    def match_from(self, offset: int, seen: int | None = None) -> None:
        """Let patterns match from an offset on only, and only if the output is longer than `seen`."""
        self.match_offset, self.match_seen = offset, offset if seen is None else seen

    def begin(self, argv: Sequence[str]) -> None:
        """Called by the runner when a program has started: the one that it shows from then on."""
        self.argv = tuple(argv)
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
