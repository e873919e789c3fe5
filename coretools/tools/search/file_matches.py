"""Read and match the files of a text search, and collect the results within the limits of one call.

Whichever engine lists the files, only this module reads them, through handles beneath a root.
"""

import codecs
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from coretools.cancellation import check_cancelled
from coretools.config.settings import Limits
from coretools.errors import CoreError, DeadlinePassed, NotText, TooLarge
from coretools.escapes import escape_controls
from coretools.roots.read import open_file
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import content_bytes
from coretools.tools.search.ignore import beneath, is_text_path
from coretools.tools.search.pattern import Pattern

# Matching lines of one file, with context. Pure: bytes in, lines out.
#
# A file is text if it has a UTF-16 byte order mark or contains no NUL. Bytes that are not UTF-8 match nothing and are
# shown as U+FFFD. These are ripgrep's rules, except for NUL, where ripgrep depends on its buffers.


MATCH_SECONDS = 3.0
"""Time limit for finding one match. Only backtracking takes that long: a simple pattern scans 64 MB in one second."""


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """A line without its line end. `column` is the start of the match, None for a line of context."""

    number: int
    text: str
    column: int | None


@dataclass(frozen=True, slots=True)
class SearchedText:
    """The text of a file with LF line ends; `strict` if it has bytes that are not UTF-8."""

    text: str
    strict: bool


def decode_text(data: bytes) -> SearchedText | None:
    """Decode a file for searching; None if it is binary."""
    text, strict = _characters(data)
    if "\0" in text:
        return None
    return SearchedText(text.replace("\r\n", "\n") if "\r" in text else text, strict)


def _characters(data: bytes) -> tuple[str, bool]:
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace"), False
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape"), True


def matching_lines(file: SearchedText, pattern: Pattern, *, deadline: float, display_path: str) -> Iterator["Match"]:
    """Yield the matching lines in order. Reaching `deadline` (monotonic clock) ends the search without an error.

    Raises:
        DeadlinePassed: the pattern backtracks too long on this text.
    """
    compiled = pattern.strict if file.strict else pattern.compiled
    text = file.text
    position = counted = 0
    number = 1
    while position < len(text):
        check_cancelled()
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return
        try:
            match = compiled.search(text, position, timeout=min(remaining, MATCH_SECONDS))
        except TimeoutError:
            if remaining < MATCH_SECONDS:
                return
            raise DeadlinePassed(
                f"{display_path}: the pattern takes too long on this file; simplify nested repetitions like (a+)+"
            ) from None
        if match is None or match.start() >= len(text):
            return
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.start())
        end = len(text) if end < 0 else end
        number += text.count("\n", counted, start)
        counted = start
        yield Match(number, start, end, match.start() - start)
        position = end + 1


@dataclass(frozen=True, slots=True)
class Match:
    """A matching line: its number, its offsets in the text, and the column of the match."""

    number: int
    start: int
    end: int
    column: int


def with_context(file: SearchedText, matches: list[Match], context: int) -> list[list[MatchedLine]]:
    """Return the matching lines with context; adjacent lines form one group."""
    groups: list[list[MatchedLine]] = []
    text = file.text
    last_number, last_end = 0, -1
    for index, match in enumerate(matches):
        before = _lines_before(text, match, context, after=last_end)
        if not groups or match.number - len(before) > last_number + 1:
            groups.append([])
        groups[-1] += before
        groups[-1].append(MatchedLine(match.number, _displayed_line(text[match.start : match.end]), match.column))
        following = matches[index + 1].start if index + 1 < len(matches) else len(text)
        last_number, last_end = match.number, match.end
        while last_number - match.number < context and last_end + 1 < following:
            end = text.find("\n", last_end + 1)
            end = len(text) if end < 0 else end
            last_number += 1
            groups[-1].append(MatchedLine(last_number, _displayed_line(text[last_end + 1 : end]), None))
            last_end = end
    return groups


def _lines_before(text: str, match: Match, context: int, *, after: int) -> list[MatchedLine]:
    """Return up to `context` lines above a match, not before the offset `after` (an end of line)."""
    lines: list[MatchedLine] = []
    start = match.start
    while len(lines) < context and start - 1 > after:
        end = start - 1
        start = text.rfind("\n", 0, end) + 1
        lines.append(MatchedLine(match.number - len(lines) - 1, _displayed_line(text[start:end]), None))
    return lines[::-1]


def _displayed_line(line: str) -> str:
    try:
        line.encode()
    except UnicodeEncodeError:
        return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return line


def cut(line: str, column: int, limit_bytes: int) -> str:
    """Return a line, or the part of it around the match with the omitted characters counted, in about `limit_bytes`."""
    if len(line.encode("utf-8", "replace")) <= limit_bytes:
        return line
    characters = max(1, limit_bytes * len(line) // len(line.encode("utf-8", "replace")))
    start = max(0, min(column - characters // 4, len(line) - characters))
    left, right = start, len(line) - start - characters
    before = f"[... {left} characters ...]" if left else ""
    after = f"[... {right} characters ...]" if right > 0 else ""
    return before + line[start : start + characters] + after


Output = Literal["matches", "files", "counts"]
"""What a search returns: matching lines, files with a match, or files with their number of matching lines."""


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
class FileFindings:
    """The lines to show of one file, in groups of adjacent lines."""

    path: str
    groups: list[list[MatchedLine]]
    matches: int = 0
    """Matching lines; 1 if only files are wanted."""


@dataclass(slots=True)
class Findings:
    """Results of a search, added file by file in the order of the paths."""

    roots: Roots
    limits: Limits
    query: Query
    files: list[FileFindings] = field(default_factory=list)
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
        if self._check_deadline() or not is_text_path(relative):
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
            self.files.append(FileFindings(path, [], count))
            self.matches += count
        self._check_deadline()

    def _add(self, path: str, file: SearchedText, matches: list[Match]) -> None:
        """Add the lines that fit into the answer."""
        kept = FileFindings(path, [])
        is_full = False
        path_bytes = len(escape_controls(path).encode("utf-8", "replace"))
        for group in with_context(file, matches, self.query.context):
            lines: list[MatchedLine] = []
            for line in group:
                text = cut(line.text, line.column or 0, self.limits.search_line_bytes)
                self._bytes += path_bytes + len(text.encode("utf-8", "replace")) + len(f":{line.number}:\n")
                if self._bytes > content_bytes(self.limits):
                    self.more = is_full = True
                    break
                lines.append(MatchedLine(line.number, text, line.column))
            kept.matches += sum(line.column is not None for line in lines)
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
