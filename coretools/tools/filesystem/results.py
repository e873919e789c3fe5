"""Results of the file tools, and their text."""

from typing import Any

from pydantic import Field

from coretools.escapes import escape_controls
from coretools.operations.content import Result
from coretools.roots.directory_listing import DirectoryEntry, DirectoryListing
from coretools.tools.answer_budget import cut_line, fitting

_MARKS = {"directory": "/", "link": "@"}

_ENDINGS = {"\r\n": "CRLF", "\r": "CR", "mixed": "mixed line endings"}
"""Line endings that are reported."""


class FileText(Result):
    """Text of a file, unchanged, with remarks on omitted parts in brackets."""

    content: str
    encoding: str
    newline: str
    lines: int | None
    """Number of lines in the file; None if they were not counted."""
    size: int

    def text(self) -> str:
        """The text; if it is not plain UTF-8 with LF, a last line in brackets says so."""
        kinds = [self.encoding] if self.encoding != "utf-8" else []
        kinds += [_ENDINGS[self.newline]] if self.newline in _ENDINGS else []
        if not kinds:
            return self.content
        gap = "" if self.content.endswith("\n") or not self.content else "\n"
        return f"{self.content}{gap}[{', '.join(kinds)}]\n"

    def facts(self) -> dict[str, object]:
        """Facts about the whole file; encoding and line endings of a large file as far as it was read."""
        counted = {} if self.lines is None else {"lines": self.lines}
        return {"encoding": self.encoding, "newline": self.newline, **counted, "bytes": self.size}


class EditResult(Result):
    """An edit that was made, or would be made by a dry run."""

    path: str
    replaced: int
    dry_run: bool
    diff: str
    foreign_change: str = ""
    """What somebody else changed since the client last read the file, which the edit keeps."""

    def text(self) -> str:
        """One line, then the diff, then what somebody else changed."""
        times = "1 replacement" if self.replaced == 1 else f"{self.replaced} replacements"
        if not self.diff:
            edit = f"{self.path}: {times}, but the text is unchanged; nothing written"
        else:
            edit = f"{'would edit' if self.dry_run else 'edited'} {self.path}: {times}\n{self.diff}"
        if not self.foreign_change:
            return edit
        gap = "" if edit.endswith("\n") else "\n"
        return (
            f"{edit}{gap}[before this edit, {self.path} was changed since you last read or wrote it, by somebody else,"
            f" a command or a git tool; that change is kept:]\n{self.foreign_change}"
        )

    def facts(self) -> dict[str, object]:
        """Number of replaced matches."""
        return {"replaced": self.replaced, "dry_run": self.dry_run}


class ChangeResult(Result):
    """A completed change, described in one sentence."""

    message: str
    details: dict[str, Any] = Field(default_factory=dict)

    def text(self) -> str:
        """The sentence."""
        return self.message

    def facts(self) -> dict[str, object]:
        """Machine-readable facts."""
        return self.details


class ListingResult(Result):
    """Entries of a directory, sorted by name."""

    path: str
    entries: list[str]
    total: int

    @classmethod
    def of(cls, listing: DirectoryListing, budget: int) -> "ListingResult":
        """Build the result from a listing, with the entries that fit into `budget` bytes."""
        lines = fitting((cut_line(_line(entry)) for entry in listing.entries), budget)
        return cls(path=listing.display_path, entries=lines, total=listing.total)

    def text(self) -> str:
        """One entry per line; omitted entries are counted."""
        left_out = self.total - len(self.entries)
        notes = [f"[{left_out} of {self.total} entries left out; search_files finds them by name]"] if left_out else []
        if not self.total:
            notes = ["[empty]"]
        return "\n".join([*self.entries, *notes])

    def facts(self) -> dict[str, object]:
        """Number of entries."""
        return {"entries": self.total}


def _line(entry: DirectoryEntry) -> str:
    name = escape_controls(entry.name)
    if entry.kind == "file":
        return name if entry.size is None else f"{name}\t{entry.size}"
    mark = _MARKS.get(entry.kind)
    return f"{name}{mark}" if mark else f"{name}\t{entry.kind}"
