"""What the journal stores of a change. Plain data."""

from dataclasses import dataclass

from coretools.undo.entry_state import EntryState

SPOOL = "spool"
"""Directory of the records of commands, in that of the journal."""

SAME_CONTENT = "="
"""In place of the name of a content: only mode or time of the file were changed."""


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
    """Name of the content from before, in the store; "" if there is none, or `SAME_CONTENT`."""
    moved_root: str = ""
    moved_path: str = ""
    """Where it was moved to; "" if it was not moved."""
    change: int = 0
    number: int = 0
    undone_by: int | None = None


def verb_of(entry: EntryChange) -> str:
    """What happened to an entry."""
    return verb(entry.before.kind, entry.after.kind, is_moved=bool(entry.moved_path))


def verb(before: str, after: str, *, is_moved: bool) -> str:
    """What happened to an entry, by its kinds before and after."""
    if is_moved:
        return "moved"
    if before == "absent":
        return "created"
    return "deleted" if after == "absent" else "changed"
