"""Results of listing and changing files, and their text."""

from typing import Any

from pydantic import Field

from coretools.escapes import escape_controls
from coretools.operations.content import Result
from coretools.roots.directory_listing import DirectoryEntry, DirectoryListing
from coretools.tools.answer_budget import cut_line, fitting
from coretools.truncation import and_more

_MARKS = {"directory": "/", "link": "@"}

SHOWN_LINES = 20
"""Line numbers listed in an answer; the rest is counted."""


class EditResult(Result):
    """An edit that was made, or would be made by a dry run."""

    path: str
    replaced: int
    dry_run: bool
    diff: str
    foreign_change: str = ""
    """What somebody else changed since the client last read the file, which the edit keeps."""
    reindented: tuple[int, ...] = ()
    """The lines of the new text where the edit took the indentation of the file."""
    note: str = ""
    """The errors that the edit introduced."""
    details: dict[str, Any] = Field(default_factory=dict)

    def text(self) -> str:
        """One line, then the diff, then what somebody else changed."""
        times = "1 replacement" if self.replaced == 1 else f"{self.replaced} replacements"
        if not self.diff:
            edit = f"{self.path}: {times}, but the text is unchanged; nothing written"
        else:
            times += self._indentation()
            edit = f"{'would edit' if self.dry_run else 'edited'} {self.path}: {times}\n{self.diff}"
        if self.note:
            edit = f"{edit}{self.note}\n"
        if not self.foreign_change:
            return edit
        gap = "" if edit.endswith("\n") else "\n"
        return (
            f"{edit}{gap}[before this edit, {self.path} was changed since you last read or wrote it, by somebody else,"
            f" a command or a git tool; that change is kept:]\n{self.foreign_change}"
        )

    def facts(self) -> dict[str, object]:
        """Number of replaced matches, the result of the syntax check, and the number of new errors."""
        return {"replaced": self.replaced, "dry_run": self.dry_run, **self.details}

    def _indentation(self) -> str:
        if not self.reindented:
            return ""
        lines = and_more(map(str, self.reindented[:SHOWN_LINES]), len(self.reindented))
        where = "line" if len(self.reindented) == 1 else "lines"
        return (
            f"; only the indentation of `old` differed from the file, so `new` is indented like it, at {where} {lines}"
        )


class EditsResult(Result):
    """Edits of several files, all made or none."""

    files: list[EditResult]

    def text(self) -> str:
        """The text of each file's edit, one after the other."""
        parts = [file.text() for file in self.files]
        return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts)

    def facts(self) -> dict[str, object]:
        """The facts of each file, by its path."""
        return {"files": {file.path: file.facts() for file in self.files}}


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
