"""What the journal stores of a change. Plain data."""

from dataclasses import dataclass

from coretools.undo.entry_state import EntryState


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the journal holds at most, of all roots of the user together."""

    size: int
    """Bytes of contents."""
    days: float
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: what one call did."""

    id: int
    at: float
    """Seconds since the epoch."""
    tool: str
    summary: str
    undone_by: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChange:
    """One entry of a change."""

    root: str
    path: str
    before: EntryState
    after: EntryState
    content: str = ""
    """Name of the content from before, in the store."""
    moved_root: str = ""
    moved_path: str = ""
    """Where it was moved to; "" if it was not moved."""
    change: int = 0
    number: int = 0
    undone_by: int | None = None
