"""What a text search has found so far, and whether it has enough.

The one place that reads the files of a search and matches their lines, whichever engine names the files: through
handles beneath a root, inside the limits of one call.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from coretools.call import check_cancelled
from coretools.errors import CoreError, DeadlinePassed, NotText, TooLarge
from coretools.sandbox.reading import open_file
from coretools.sandbox.roots import Place, Roots
from coretools.settings import Limits
from coretools.tools.search.lines import FileText, Line, Match, cut, decoded, matching, with_context
from coretools.tools.search.pattern import Pattern
from coretools.tools.search.tree import beneath, is_text_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is searched for, and where. Paths are relative to `top`, the directory searched."""

    top: Place
    pattern: Pattern
    glob: str
    wanted: Callable[[str], bool]
    """The glob as a test of a path from `top` on."""
    context: int
    limit: int
    include_ignored: bool
    deadline: float
    """On the monotonic clock."""

    def path(self, roots: Roots, relative: str) -> str:
        """A path beneath `top` as a caller writes it."""
        return roots.shown(Place(self.top.root, beneath(self.top, relative)))


@dataclass(slots=True)
class FileFindings:
    """The lines to show of one file, in groups of neighbours."""

    path: str
    groups: list[list[Line]]


@dataclass(slots=True)
class Findings:
    """Filled file by file, in the order of the paths."""

    roots: Roots
    limits: Limits
    query: Query
    files: list[FileFindings] = field(default_factory=list)
    matches: int = 0
    more: bool = False
    """There is at least one match that is not among them."""
    late: bool = False
    """The time was over before everything was searched."""
    _bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether the search can end here."""
        return self.more or self.late

    def take(self, relative: str) -> None:
        """Search one file of a tree. What can't be read, is binary or too large is passed over."""
        check_cancelled()
        if self._is_late() or not is_text_path(relative):
            return
        path = self.query.path(self.roots, relative)
        try:
            file = self._text(path)
        except DeadlinePassed:
            raise
        except CoreError:
            # Gone meanwhile, closed by a deny glob, no regular file, no permission: not part of the tree for us.
            return
        if file is not None:
            self._match(path, file)

    def take_only(self, path: str) -> None:
        """Search the file that the caller named.

        Raises:
            NotText: it is binary.
            CoreError: it can't be read.
        """
        file = self._text(path)
        if file is None:
            raise NotText(f"{path}: is binary; only text is searched")
        self._match(path, file)

    def _text(self, path: str) -> FileText | None:
        with open_file(self.roots, path) as file:
            if file.size > self.limits.file_bytes:
                raise TooLarge(f"{path}: has {file.size} bytes; files of up to {self.limits.file_bytes} are searched")
            return decoded(file.read(self.limits.file_bytes))

    def _match(self, path: str, file: FileText) -> None:
        found: list[Match] = []
        for match in matching(file, self.query.pattern, deadline=self.query.deadline, shown=path):
            if self.matches + len(found) == self.query.limit:
                self.more = True
                break
            found.append(match)
        if found:
            self._add(path, file, found)
        self._is_late()

    def _add(self, path: str, file: FileText, found: list[Match]) -> None:
        """Keep the lines that fit into the answer."""
        kept = FileFindings(path, [])
        for group in with_context(file, found, self.query.context):
            lines: list[Line] = []
            for line in group:
                text = cut(line.text, line.column or 0, self.limits.search_line_bytes)
                self._bytes += len(path) + len(text.encode("utf-8", "replace")) + len(f":{line.number}:\n")
                if self._bytes > self.limits.read_bytes:
                    self.more = True
                    break
                lines.append(Line(line.number, text, line.column))
            self.matches += sum(line.column is not None for line in lines)
            if lines:
                kept.groups.append(lines)
            if self.more:
                break
        if kept.groups:
            self.files.append(kept)

    def _is_late(self) -> bool:
        self.late = self.late or time.monotonic() >= self.query.deadline
        return self.late
