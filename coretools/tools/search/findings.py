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
from coretools.tools.outline import Outline, outline_of
from coretools.tools.search.file_matches import (
    Match,
    MatchedLine,
    SearchedText,
    cut,
    decode_text,
    matching_lines,
    with_context,
)
from coretools.tools.search.ignore import beneath
from coretools.tools.search.pattern import Pattern
from coretools.tools.search.results import FoundFile, FoundLine, Output

OUTLINE_SECONDS = 2.0
"""Processor time of one search for finding the symbols around its matches."""


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
    skip: int = 0
    """Matching lines, or files, of earlier pages."""
    include_ignored: bool
    deadline: float
    """On the monotonic clock."""
    with_symbols: bool = False
    """Whether each match names the symbol that it defines or is in."""

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
    skipped: int = 0
    """Matching lines, or files, that were left out at the start."""
    more: bool = False
    """Whether there is at least one more match."""
    is_full: bool = False
    """Whether something was left out though the limit is not reached, since the answer has no room for it."""
    timed_out: bool = False
    """Whether the time ran out before everything was searched."""
    context: int = field(init=False)
    """Lines around a match; fewer than asked for where the answer has no room for one match with them."""
    _bytes: int = 0
    _outline: Outline | None = None
    """Of the file whose matches are added."""
    _outline_seconds: float = 0.0
    unmarked: int = 0
    """Files whose matches name no symbol, since the time for that was used up."""

    def __post_init__(self) -> None:
        self.context = self.query.context

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
        self.skipped += sum(1 for _ in islice(matches, self.query.skip - self.skipped))
        shown = list(islice(matches, self.query.limit - self.matches))
        self.more = next(matches, None) is not None
        if shown:
            self._add(path, file, shown)
        self._check_deadline()

    def _count(self, path: str, matches: Iterator[Match]) -> None:
        """Add the file if a line matches, with the number of its matching lines if they are to be counted."""
        if next(matches, None) is not None:
            if self.skipped < self.query.skip:
                self.skipped += 1
                return
            if len(self.files) == self.query.limit or not self._take(f"{escape_controls(path)}:1000000\n"):
                self.more = True
                return
            count = 1 if self.query.output == "files" else 1 + sum(1 for _ in matches)
            self.files.append(FoundFile(path=path, groups=[], matches=count))
            self.matches += count
        self._check_deadline()

    def _add(self, path: str, file: SearchedText, matches: list[Match]) -> None:
        """Add the lines that fit into the answer, with less context if it has no room for one match with all of it."""
        self._outline = self._outlined(path, file)
        start = self._bytes
        groups, count = self._fitting(path, file, matches)
        while self.is_full and not self.files and count < 2 and self.context:
            self.context //= 2
            self._bytes, self.is_full = start, False
            groups, count = self._fitting(path, file, matches)
        if groups:
            self.files.append(FoundFile(path=path, groups=groups, matches=count))
            self.matches += count
        self.more = self.more or count < len(matches)

    def _fitting(self, path: str, file: SearchedText, matches: list[Match]) -> tuple[list[list[FoundLine]], int]:
        """Return the lines that the answer has room for, in groups, and how many of them match."""
        kept = list[list[FoundLine]]()
        if self._take(f"./{escape_controls(path)}\n"):
            for group in with_context(file, matches, self.context):
                lines = self._fitting_lines(group, separator="--\n" if kept and self.context else "")
                kept += [lines] if lines else []
                if self.is_full:
                    break
        return kept, sum(line.match for group in kept for line in group)

    def _fitting_lines(self, group: list[MatchedLine], *, separator: str) -> list[FoundLine]:
        """Return the lines of a group that the answer has room for; a cut group ends with its last match's context."""
        lines = list[FoundLine]()
        for line in group:
            text = cut(line.text, line.column or 0, self.limits.search_line_bytes) + self._mark(line)
            if not self._take(f"{separator}{line.number}:{text}\n"):
                last = max((at for at, shown in enumerate(lines) if shown.match), default=None)
                return [] if last is None else lines[: last + 1 + self.context]
            separator = ""
            lines.append(FoundLine(number=line.number, text=text, match=line.column is not None))
        return lines

    def _outlined(self, path: str, file: SearchedText) -> Outline | None:
        """The symbols of a file, if matches are to name them and there is time left."""
        if not self.query.with_symbols:
            return None
        if self._outline_seconds > OUTLINE_SECONDS:
            self.unmarked += 1
            return None
        began = time.thread_time()
        outline = outline_of(path, file.text)
        self._outline_seconds += time.thread_time() - began
        return outline

    def _mark(self, line: MatchedLine) -> str:
        """What is added to a matching line: the symbol that it defines or is in."""
        symbol = None if self._outline is None or line.column is None else self._outline.enclosing(line.number)
        if symbol is None:
            return ""
        is_definition = line.text.strip().startswith(symbol.signature)
        return f"  [{'defines' if is_definition else 'in'} {symbol.path}]"

    def _take(self, text: str) -> bool:
        """Whether the answer has room for this text; if so, the room is taken."""
        size = len(text.encode("utf-8", "replace"))
        self.is_full = self.is_full or self._bytes + size > content_bytes(self.limits)
        self._bytes += 0 if self.is_full else size
        return not self.is_full

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
