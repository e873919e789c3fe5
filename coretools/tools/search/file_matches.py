"""Match the lines of one file, with context. Pure: bytes in, lines out.

A file is text if it has a UTF-16 byte order mark or contains no NUL. Bytes that are not UTF-8 match nothing and are
shown as U+FFFD. These are ripgrep's rules, except for NUL, where ripgrep depends on its buffers.
"""

import codecs
import time
from collections.abc import Iterator
from dataclasses import dataclass

from coretools.cancellation import check_cancelled
from coretools.errors import DeadlinePassed
from coretools.tools.search.pattern import Pattern

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
