"""A directory tree within a budget of entries: the upper levels first, and counts and sizes of all that is not shown.

Breadth first, so that a large directory near the top does not hide its neighbours. What lies deeper than the tree shows
is still counted, until the time is up.
"""

import time
from collections import deque
from dataclasses import dataclass, field

from coretools.cancellation import check_cancelled
from coretools.escapes import escape_controls
from coretools.operations.content import Result
from coretools.roots.directory_listing import DirectoryEntry, EntryFilter, PlacedEntry, WalkEntry, sized_entries
from coretools.roots.file_version import Kind
from coretools.roots.path_text import printable
from coretools.roots.read import open_directory
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import cut_line
from coretools.tools.search.ignore import REPOSITORY, ignore_rules

COUNTING_SECONDS = 3.0
"""Time for counting what is not shown; what is shown takes no part of it."""

NAMED_IGNORED = 5
"""Ignored entries of a directory that are named; further ones are counted."""

_IGNORED_CHARACTERS = 300

_NOTE_BYTES = 100
"""Kept of the budget for the remark on what a directory omits."""

_INDENT = "  "


@dataclass(slots=True)
class _Omitted:
    """What is not shown beneath a directory."""

    files: int = 0
    directories: int = 0
    size: int = 0
    is_complete: bool = True

    def add(self, entry: DirectoryEntry) -> None:
        if entry.kind == "directory":
            self.directories += 1
        else:
            self.files += 1
            self.size += entry.size or 0

    @property
    def text(self) -> str:
        counts = [_count(self.directories, "directory", "directories"), _count(self.files, "file", "files")]
        least = "" if self.is_complete else "at least "
        known = ", ".join(filter(None, counts))
        if not known:
            return "" if self.is_complete else "not shown, not counted; perhaps not readable"
        return f"not shown: {least}{known}, {self.size} bytes"


@dataclass(slots=True)
class _Branch:
    """A directory that is shown: its entries that are shown, and what is omitted beneath it."""

    place: RootedPath
    depth: int
    shown: list[tuple[str, "_Branch | None"]] = field(default_factory=list)
    """Lines of entries, each with what is beneath it."""
    omitted: _Omitted = field(default_factory=_Omitted)
    ignored: list[WalkEntry] = field(default_factory=list)

    @property
    def ignored_text(self) -> str:
        if not self.ignored:
            return ""
        names = ", ".join(_name(printable(name), kind) for name, kind in self.ignored[:NAMED_IGNORED])
        more = len(self.ignored) - NAMED_IGNORED
        return cut_line(f"ignored: {names}{f', {more} more' if more > 0 else ''}", longest=_IGNORED_CHARACTERS)


class DirectoryTree(Result):
    """Entries of a tree, indented by two spaces for each level."""

    path: str
    lines: list[str]
    shown: int
    omitted_files: int
    omitted_directories: int
    omitted_bytes: int
    is_counted: bool
    """Whether everything that is omitted was counted."""

    def text(self) -> str:
        """The tree; the last line in brackets tells how to see the rest."""
        notes = []
        if self.omitted_files or self.omitted_directories or not self.is_counted:
            notes = ["[for more raise depth or limit, or name a directory in path; search_files finds files by name]"]
        elif not self.shown:
            notes = ["[empty]"]
        return "\n".join([*self.lines, *notes])

    def facts(self) -> dict[str, object]:
        """Numbers of entries."""
        return {
            "shown": self.shown,
            "omitted_files": self.omitted_files,
            "omitted_directories": self.omitted_directories,
            "omitted_bytes": self.omitted_bytes,
        }


class TreeReader:
    """Reads one tree."""

    def __init__(self, roots: Roots, path: str, *, include_ignored: bool) -> None:
        """Open the directory at the top.

        Raises:
            WrongType: not a directory. And what `resolve` raises.
        """
        with open_directory(roots, path) as directory:
            self._top = _Branch(directory.place, 0)
            self._display_path = directory.display_path
        self._roots = roots
        self._choose: EntryFilter = _all_but_repositories
        if not include_ignored:
            self._choose = ignore_rules(roots, self._top.place).chosen

    def read(self, *, depth: int, limit: int, budget: int) -> DirectoryTree:
        """Read `depth` levels, at most `limit` entries and `budget` bytes of lines, and count the rest."""
        shown, omitted = self._show(depth, limit, budget)
        self._count(omitted)
        branches = self._branches()
        return DirectoryTree(
            path=self._display_path,
            lines=_lines(self._top),
            shown=shown,
            omitted_files=sum(branch.omitted.files for branch in branches),
            omitted_directories=sum(branch.omitted.directories for branch in branches),
            omitted_bytes=sum(branch.omitted.size for branch in branches),
            is_counted=all(branch.omitted.is_complete for branch in branches),
        )

    def _show(self, depth: int, limit: int, budget: int) -> tuple[int, list[tuple[RootedPath, _Branch]]]:
        """Choose what is shown.

        Return the number of entries, and the directories of which nothing is shown, each with its branch.
        """
        shown, uncounted = 0, list[tuple[RootedPath, _Branch]]()
        waiting = deque([self._top])
        while waiting:
            check_cancelled()
            branch = waiting.popleft()
            entries = self._entries(branch)
            budget -= _NOTE_BYTES + len(branch.ignored_text.encode("utf-8", "replace"))
            for inside, entry in entries:
                is_full = shown >= limit or budget < 0
                line = "" if is_full else _line(entry, branch.depth)
                budget -= len(line.encode("utf-8", "replace")) + 1
                if is_full or budget < 0:
                    branch.omitted.add(entry)
                    if entry.kind == "directory":
                        uncounted.append((inside, branch))
                    continue
                shown += 1
                below = _Branch(inside, branch.depth + 1) if entry.kind == "directory" else None
                branch.shown.append((line, below))
                if below is not None and below.depth < depth and shown < limit:
                    waiting.append(below)
                elif below is not None:
                    uncounted.append((inside, below))
        return shown, uncounted

    def _count(self, uncounted: list[tuple[RootedPath, _Branch]]) -> None:
        ends = time.monotonic() + COUNTING_SECONDS
        while uncounted:
            check_cancelled()
            place, branch = uncounted.pop()
            if time.monotonic() >= ends:
                branch.omitted.is_complete = False
                continue
            entries = sized_entries(self._roots, place, self._choose)
            if entries is None:  # no permission, or a path of more than 4,096 bytes
                branch.omitted.is_complete = False
                continue
            for inside, entry in entries:
                branch.omitted.add(entry)
                if entry.kind == "directory":
                    uncounted.append((inside, branch))

    def _entries(self, branch: _Branch) -> list[PlacedEntry]:
        def choose(directory: str, entries: list[WalkEntry]) -> list[WalkEntry]:
            chosen = self._choose(directory, entries)
            kept = dict(chosen)
            branch.ignored = [entry for entry in entries if entry[0] not in kept and entry[0] != REPOSITORY]
            return chosen

        entries = sized_entries(self._roots, branch.place, choose)
        branch.omitted.is_complete = entries is not None
        return entries or []

    def _branches(self) -> list[_Branch]:
        found, waiting = list[_Branch](), [self._top]
        while waiting:
            branch = waiting.pop()
            found.append(branch)
            waiting += [below for _, below in branch.shown if below is not None]
        return found


def _all_but_repositories(_: str, entries: list[WalkEntry]) -> list[WalkEntry]:
    return [entry for entry in entries if entry[0] != REPOSITORY]


def _lines(top: _Branch) -> list[str]:
    lines, waiting = list[str](), [iter(_branch_lines(top))]
    while waiting:
        line, below = next(waiting[-1], (None, None))
        if line is None:
            waiting.pop()
            continue
        lines.append(line)
        if below is not None:
            waiting.append(iter(_branch_lines(below)))
    return lines


def _branch_lines(branch: _Branch) -> list[tuple[str, _Branch | None]]:
    lines = [*branch.shown]
    indent = _INDENT * branch.depth
    if branch.omitted.text:
        lines.append((f"{indent}[{branch.omitted.text}]", None))
    if branch.ignored:
        lines.append((f"{indent}[{branch.ignored_text}]", None))
    return lines


def _line(entry: DirectoryEntry, depth: int) -> str:
    size = f"\t{entry.size}" if entry.size is not None else ""
    return cut_line(f"{_INDENT * depth}{_name(entry.name, entry.kind)}{size}")


def _name(name: str, kind: Kind) -> str:
    mark = {"directory": "/", "link": "@", "file": ""}.get(kind)
    return f"{escape_controls(name)}{f' ({kind})' if mark is None else mark}"


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}" if number else ""
