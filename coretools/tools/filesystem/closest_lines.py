"""Find the lines of a file that are closest to an edit without a match, for the error message.

Pure. The work is bounded whatever the sizes: a refusal must not cost more than an edit.
"""

import re
from collections.abc import Iterable, Iterator

from coretools.tools.filesystem.line_window import line_start

ANCHORS = 8
"""Lines of the old text that are searched for in the file, longest first."""

OCCURRENCES = 20
"""Occurrences of each anchor that are compared, and lines with equally many words."""

OLD_LINES = 50
"""Lines of the old text that are considered."""

SCANNED_LINES = 20_000
"""Lines of the file that are compared word by word if it contains no line of the old text."""

COMPARED_CHARACTERS = 400
"""Characters of a line that are compared word by word."""

SHOWN_LINES = 12
SHOWN_CHARACTERS = 160

_WORD = re.compile(r"\w+")
_ANYTHING = re.compile(r"\S")
"""Of an underline or a closing bracket alone, which is looked for last: most texts have many."""


def closest_lines(text: str, old: str) -> str:
    """Return a clause for the error: the closest lines, unchanged, with their numbers."""
    wanted = [line.rstrip() for line in old.removesuffix("\n").split("\n", OLD_LINES)[:OLD_LINES]]
    start = _by_lines(text, wanted)
    if start is None:
        start = _by_words(text, wanted)
    if start is None:
        start = _by_lines(text, wanted, having=_ANYTHING)
    if start is None:
        return "; the file contains nothing similar, read it again"
    closest = [line for _, line in zip(wanted, _lines_from(text, start), strict=False)]
    first = text.count("\n", 0, start) + 1
    is_same = [line.strip() for line in closest] == [line.strip() for line in wanted]
    blank = " (it differs only in white space)" if is_same else ""
    excerpt = "\n".join(line[:SHOWN_CHARACTERS].rstrip("\r") for line in closest[:SHOWN_LINES])
    where = f"line {first}" if len(closest) == 1 else f"lines {first} to {first + len(closest) - 1}"
    return f"; closest to it{blank}, {where}:\n{excerpt}"


def _by_lines(text: str, wanted: list[str], *, having: re.Pattern[str] = _WORD) -> int | None:
    """Return the offset of the region that is most like the old text, of those that have one of its longest lines."""
    longest = sorted(range(len(wanted)), key=lambda index: -len(wanted[index].strip()))[:ANCHORS]
    starts: dict[int, None] = {}
    for index in longest:
        anchor = wanted[index].strip()
        if not having.search(anchor):
            continue
        position = -1
        for _ in range(OCCURRENCES):
            position = text.find(anchor, position + 1)
            if position < 0:
                break
            starts[line_start(text, position, index)] = None
    return _most_like(text, starts, wanted)


def _by_words(text: str, wanted: list[str]) -> int | None:
    """Return the offset of the region around the line that shares most words, at least half, with the longest one."""
    index = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    words = set(_WORD.findall(wanted[index]))
    starts: dict[int, None] = {}
    best = max(1, (len(words) + 1) // 2)
    offset = 0
    for _, line in zip(range(SCANNED_LINES), _lines_from(text, 0), strict=False):
        score = len(words & set(_WORD.findall(line[:SHOWN_CHARACTERS])))
        if score > best:
            best, starts = score, {}
        if score == best and len(starts) < OCCURRENCES:
            starts[line_start(text, offset, index)] = None
        offset += len(line) + 1
    return _most_like(text, starts, wanted)


def _most_like(text: str, starts: Iterable[int], wanted: list[str]) -> int | None:
    """Return the start of the region that is most like the old text, the first of several that are equally so."""

    def likeness(start: int) -> float:
        pairs = zip(wanted, _lines_from(text, start, most=COMPARED_CHARACTERS), strict=False)
        return sum(_likeness(want, line) for want, line in pairs if want)

    return max(starts, key=likeness, default=None)


def _likeness(want: str, line: str) -> float:
    """How much a line is like one of the old text: 4 if equal, 3 but for its indentation, else its words, up to 2."""
    want, line = want[:COMPARED_CHARACTERS], line.rstrip()
    if line == want:
        return 4
    if line.strip() == want.strip():
        return 3
    words, others = set(_WORD.findall(want)), set(_WORD.findall(line))
    return 2 * len(words & others) / max(1, len(words | others))


def _lines_from(text: str, start: int, *, most: int | None = None) -> Iterator[str]:
    """Yield the lines from an offset on, without their newlines, of each at most this many characters."""
    while start < len(text):
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        yield text[start : end if most is None else min(end, start + most)]
        start = end + 1
