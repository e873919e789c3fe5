"""Search the files that an engine lists, and collect the results within the limits of one call.

Whichever engine lists the files, only this module reads them, through handles beneath a root.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from coretools.cancellation import check_cancelled
from coretools.config.limits import Limits
from coretools.errors import CoreError, DeadlinePassed, NotText, TooLarge
from coretools.escapes import escape_controls
from coretools.roots.read import open_file
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import content_bytes
from coretools.tools.search.file_matches import Match, SearchedText, cut, decode_text, matching_lines, with_context
from coretools.tools.search.ignore import beneath
from coretools.tools.search.pattern import Pattern
from coretools.tools.search.results import FoundFile, FoundLine, Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What to search for, and where. Paths are relative to `top`, the directory searched."""

    top: RootedPath
    pattern: Pattern
    glob: str
    wanted: Callable[[str], bool]
    """The glob as a predicate on paths relative to `top`."""
    context: int
    output: Output = "matches"
    limit: int
    """Most matching lines, or files."""
    include_ignored: bool
    deadline: float
    """On the monotonic clock."""

    def path(self, roots: Roots, relative: str) -> str:
        """Return a path relative to `top` as a caller writes it."""
        return roots.display_path(RootedPath(self.top.root, beneath(self.top, relative)))


@dataclass(slots=True)
class Findings:
    """Results of a search, added file by file in the order of the paths."""

    roots: Roots
    limits: Limits
    query: Query
    files: list[FoundFile] = field(default_factory=list)
    matches: int = 0
    more: bool = False
    """Whether there is at least one more match."""
    timed_out: bool = False
    """Whether the time ran out before everything was searched."""
    _bytes: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether the search can end here."""
        return self.more or self.timed_out

    def search_file(self, relative: str) -> None:
        """Search one file of a tree. Unreadable, binary and too large files are skipped."""
        check_cancelled()
        if self._check_deadline() or not _is_text(relative):
            return
        path = self.query.path(self.roots, relative)
        try:
            file = self._text(path)
        except DeadlinePassed:
            raise
        except CoreError:
            # Deleted meanwhile, denied, not a regular file, no permission: not part of the tree for this search.
            return
        if file is not None:
            self._match(path, file)

    def search_named_file(self, path: str) -> None:
        """Search the file that the caller named.

        Raises:
            NotText: it is binary.
            CoreError: it can't be read.
        """
        file = self._text(path)
        if file is None:
            raise NotText(f"{path}: is binary; only text is searched")
        self._match(path, file)

    def _text(self, path: str) -> SearchedText | None:
        with open_file(self.roots, path) as file:
            if file.size > self.limits.file_bytes:
                raise TooLarge(f"{path}: has {file.size} bytes; files of up to {self.limits.file_bytes} are searched")
            return decode_text(file.read(self.limits.file_bytes))

    def _match(self, path: str, file: SearchedText) -> None:
        matches = matching_lines(file, self.query.pattern, deadline=self.query.deadline, display_path=path)
        if self.query.output != "matches":
            self._count(path, matches)
            return
        shown = list(islice(matches, self.query.limit - self.matches))
        self.more = next(matches, None) is not None
        if shown:
            self._add(path, file, shown)
        self._check_deadline()

    def _count(self, path: str, matches: Iterator[Match]) -> None:
        """Add the file if a line matches, with the number of its matching lines if they are to be counted."""
        if next(matches, None) is not None:
            line_bytes = len(escape_controls(path).encode("utf-8", "replace")) + len(":1000000\n")
            if len(self.files) == self.query.limit or self._bytes + line_bytes > content_bytes(self.limits):
                self.more = True
                return
            self._bytes += line_bytes
            count = 1 if self.query.output == "files" else 1 + sum(1 for _ in matches)
            self.files.append(FoundFile(path=path, groups=[], matches=count))
            self.matches += count
        self._check_deadline()

    def _add(self, path: str, file: SearchedText, matches: list[Match]) -> None:
        """Add the lines that fit into the answer."""
        kept = FoundFile(path=path, groups=[], matches=0)
        is_full = False
        path_bytes = len(escape_controls(path).encode("utf-8", "replace"))
        for group in with_context(file, matches, self.query.context):
            lines: list[FoundLine] = []
            for line in group:
                text = cut(line.text, line.column or 0, self.limits.search_line_bytes)
                self._bytes += path_bytes + len(text.encode("utf-8", "replace")) + len(f":{line.number}:\n")
                if self._bytes > content_bytes(self.limits):
                    self.more = is_full = True
                    break
                lines.append(FoundLine(number=line.number, text=text, match=line.column is not None))
            kept.matches += sum(line.match for line in lines)
            if lines:
                kept.groups.append(lines)
            if is_full:
                break
        self.matches += kept.matches
        if kept.groups:
            self.files.append(kept)

    def _check_deadline(self) -> bool:
        self.timed_out = self.timed_out or time.monotonic() >= self.query.deadline
        return self.timed_out


def _is_text(path: str) -> bool:
    """Whether a name from the file system can be encoded, so that a caller can use it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
