"""Find the lines of a file that are closest to an edit without a match, for the error message.

Pure. The work is bounded whatever the sizes: a refusal must not cost more than an edit.
"""

import re
from collections.abc import Iterator

from coretools.tools.filesystem.line_window import line_start

ANCHORS = 8
"""Lines of the old text that are searched for in the file, longest first."""

OCCURRENCES = 5
"""Occurrences of each anchor that are compared."""

OLD_LINES = 50
"""Lines of the old text that are considered."""

SCANNED_LINES = 20_000
"""Lines of the file that are compared word by word if it contains no line of the old text."""

SHOWN_LINES = 12
SHOWN_CHARACTERS = 160

_WORD = re.compile(r"\w+")


def closest_lines(text: str, old: str) -> str:
    """Return a clause for the error: the closest lines, unchanged, with their numbers."""
    wanted = [line.strip() for line in old.removesuffix("\n").split("\n", OLD_LINES)[:OLD_LINES]]
    start = _by_lines(text, wanted)
    if start is None:
        start = _by_words(text, wanted)
    if start is None:
        return "; the file contains nothing similar, read it again"
    closest = [line for _, line in zip(wanted, _lines_from(text, start), strict=False)]
    first = text.count("\n", 0, start) + 1
    blank = " (it differs only in white space)" if [line.strip() for line in closest] == wanted else ""
    excerpt = "\n".join(line[:SHOWN_CHARACTERS].rstrip("\r") for line in closest[:SHOWN_LINES])
    where = f"line {first}" if len(closest) == 1 else f"lines {first} to {first + len(closest) - 1}"
    return f"; closest to it{blank}, {where}:\n{excerpt}"


def _by_lines(text: str, wanted: list[str]) -> int | None:
    """Return the offset of the region that shares most whole lines with the old text."""
    longest = sorted(range(len(wanted)), key=lambda index: -len(wanted[index]))[:ANCHORS]
    best, best_score = None, 0
    for index in longest:
        anchor = wanted[index]
        if not _WORD.search(anchor):
            continue
        position = -1
        for _ in range(OCCURRENCES):
            position = text.find(anchor, position + 1)
            if position < 0:
                break
            start = line_start(text, position, index)
            pairs = zip(wanted, _lines_from(text, start), strict=False)
            # A line that only contains the anchor scores lower than one that equals it.
            score = 1 + 2 * sum(line.strip() == want for want, line in pairs if want)
            if score > best_score:
                best, best_score = start, score
    return best


def _by_words(text: str, wanted: list[str]) -> int | None:
    """Return the offset of the line that shares most words, at least half, with the longest old line."""
    index = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    words = set(_WORD.findall(wanted[index]))
    best, best_score = None, max(1, (len(words) + 1) // 2) - 1
    offset = 0
    for _, line in zip(range(SCANNED_LINES), _lines_from(text, 0), strict=False):
        score = len(words & set(_WORD.findall(line[:SHOWN_CHARACTERS])))
        if score > best_score:
            best, best_score = offset, score
        offset += len(line) + 1
    return None if best is None else line_start(text, best, index)


def _lines_from(text: str, start: int) -> Iterator[str]:
    """Yield the lines from an offset on, without their newlines."""
    while start < len(text):
        end = text.find("\n", start)
        if end < 0:
            yield text[start:]
            return
        yield text[start:end]
        start = end + 1
