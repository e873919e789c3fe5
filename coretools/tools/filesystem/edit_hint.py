"""Where an edit that matches nothing was probably meant: the lines of the file that come closest to it.

Pure, and bounded whatever the sizes: a refusal must not cost more than an edit.
"""

import re
from collections.abc import Iterator

ANCHORS = 8
"""Lines of the old text that are looked for in the file, longest first."""

OCCURRENCES = 5
"""Places of each anchor that are compared."""

OLD_LINES = 50
"""Lines of the old text that are looked at."""

SCANNED_LINES = 20_000
"""Lines of the file that are compared by their words when no line of the old text stands in it."""

SHOWN_LINES = 12
SHOWN_CHARACTERS = 160

_WORD = re.compile(r"\w+")


def closest(text: str, old: str) -> str:
    """A clause for the refusal: the closest lines with their numbers, as they are. Empty when nothing is like it."""
    wanted = [line.strip() for line in old.removesuffix("\n").split("\n", OLD_LINES)[:OLD_LINES]]
    start = _by_lines(text, wanted)
    if start is None:
        start = _by_words(text, wanted)
    if start is None:
        return "; read the file again, nothing in it is like it"
    found = [line for _, line in zip(wanted, _lines_from(text, start), strict=False)]
    first = text.count("\n", 0, start) + 1
    blank = " (it differs only in white space)" if [line.strip() for line in found] == wanted else ""
    shown = "\n".join(line[:SHOWN_CHARACTERS].rstrip("\r") for line in found[:SHOWN_LINES])
    where = f"line {first}" if len(found) == 1 else f"lines {first} to {first + len(found) - 1}"
    return f"; closest to it{blank}, {where}:\n{shown}"


def _by_lines(text: str, wanted: list[str]) -> int | None:
    """Offset of the region that shares most whole lines with the old text."""
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
            start = _line_start(text, position, index)
            pairs = zip(wanted, _lines_from(text, start), strict=False)
            # A line that only contains the anchor counts for less than one that is the anchor.
            score = 1 + 2 * sum(line.strip() == want for want, line in pairs if want)
            if score > best_score:
                best, best_score = start, score
    return best


def _by_words(text: str, wanted: list[str]) -> int | None:
    """Offset of the line that shares at least half of the words of the longest old line."""
    index = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    words = set(_WORD.findall(wanted[index]))
    best, best_score = None, max(1, (len(words) + 1) // 2) - 1
    offset = 0
    for _, line in zip(range(SCANNED_LINES), _lines_from(text, 0), strict=False):
        score = len(words & set(_WORD.findall(line[:SHOWN_CHARACTERS])))
        if score > best_score:
            best, best_score = offset, score
        offset += len(line) + 1
    return None if best is None else _line_start(text, best, index)


def _line_start(text: str, position: int, lines_back: int) -> int:
    """Start of the line so many lines above the one at `position`, or of the text."""
    start = text.rfind("\n", 0, position) + 1
    for _ in range(lines_back):
        if start == 0:
            break
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def _lines_from(text: str, start: int) -> Iterator[str]:
    """The lines from an offset on, without their newlines, made one by one."""
    while start < len(text):
        end = text.find("\n", start)
        if end < 0:
            yield text[start:]
            return
        yield text[start:end]
        start = end + 1
