"""Find lines that differ from an edit's old text in their indentation alone, and indent its new text like them.

Pure. Nothing is guessed: the lines must occur once, and how they differ must say how each new line is indented, or the
edit is refused as any other that matches nothing.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from coretools.tools.filesystem.line_window import after_lines, line_start

MOST_LINES = 2_000
"""A longer old text is not compared."""

MOST_PLACES = 10_000
"""Occurrences of the old text's longest line that are compared. With more it is not known to occur once."""

UNITS = (4, 2, 8, 3)
"""Columns of a level of indentation, for text that has tabs where the other has spaces."""

_INDENT = re.compile(r"[ \t]*")

Convert = Callable[[str], str | None]
"""From an indentation of the caller to one of the file; None if there is no such."""


@dataclass(frozen=True, slots=True)
class Reindented:
    """The place, and both texts as the file indents them, with LF."""

    start: int
    end: int
    old: str
    new: str


def reindented(text: str, old: str, new: str) -> Reindented | None:
    """Return the only place whose lines differ from `old` in their indentation alone; None if there is no such."""
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if [line.lstrip(" \t") for line in old.split("\n")] == [line.lstrip(" \t") for line in new.split("\n")]:
        return None  # an edit of the indentation itself has to name it exactly
    wanted = _lines(old)
    places = list(_places(text, wanted))
    if len(places) != 1:
        return None
    start, actual = places[0]
    indented = _indented_like(actual, wanted, new)
    end = after_lines(text, start, len(wanted))
    has_newline, wants_newline = text[end - 1 : end] == "\n", old.endswith("\n")
    if indented is None or (wants_newline and not has_newline):
        return None
    if has_newline and not wants_newline:
        end -= 2 if text[end - 2 : end] == "\r\n" else 1
    return Reindented(start, end, "\n".join(actual) + "\n" * wants_newline, indented)


def indented_places(text: str, old: str) -> list[int]:
    """The lines, from 1, where the text is with another indentation: at most two."""
    places = _places(text, _lines(old.replace("\r\n", "\n")))
    return [text.count("\n", 0, start) + 1 for start, lines in places if lines]


def _lines(old: str) -> list[str]:
    return old.removesuffix("\n").split("\n")


def _indented_like(actual: Sequence[str], wanted: Sequence[str], new: str) -> str | None:
    """Indent the new text as the file indents the wanted lines; None if that is not certain."""
    # Only the lines with text decide; an empty line has no indentation.
    pairs = [(_indent(line), _indent(real)) for line, real in zip(wanted, actual, strict=True) if line.strip()]
    may_mix = any(_is_mixed(real) for _, real in pairs)
    converted = (_converted(new.split("\n"), convert, may_mix=may_mix) for convert in _conversions(pairs))
    results = {result for result in converted if result is not None}
    return results.pop() if len(results) == 1 else None


def _places(text: str, wanted: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the offset and the lines, without their ends, of each place: at most two, which is one too many."""
    if len(wanted) > MOST_LINES or not any(map(str.strip, wanted)):
        return
    bare = [line.lstrip(" \t") for line in wanted]
    index = max(range(len(bare)), key=lambda number: len(bare[number]))
    position, found = text.find(bare[index]), 0
    for _ in range(MOST_PLACES):
        if position < 0 or found == 2:
            return
        start = line_start(text, position, 0)
        if not text[start:position].strip(" \t"):
            first = line_start(text, position, index)
            region = text[first : after_lines(text, first, len(bare))]
            lines = [line.removesuffix("\r") for line in region.removesuffix("\n").split("\n")]
            if text.count("\n", first, start) == index and [line.lstrip(" \t") for line in lines] == bare:
                found += 1
                yield first, lines
        position = text.find(bare[index], position + 1)
    if position >= 0:
        # Too many to look at: reported as not unique.
        yield from ((0, []), (0, []))


def _conversions(pairs: Sequence[tuple[str, str]]) -> Iterator[Convert]:
    """Yield the conversions that turn each indentation of the caller into that of the file."""
    shift = _shift(pairs)
    if shift is not None and not _mixes(pairs):
        yield shift
        return
    # Tabs on one side and spaces on the other.
    for convert in _unit_conversions():
        converted = [(convert(line), real) for line, real in pairs]
        if all(line == real for line, real in converted) and any(line for line, _ in converted):
            yield convert
    # Levels of another width: only for indentations that occur in the matched lines themselves.
    known = dict(pairs)
    if all(known[line] == real for line, real in pairs):
        yield known.get


def _shift(pairs: Sequence[tuple[str, str]]) -> Convert | None:
    """The same characters before every line: more in the file, or fewer."""
    line, real = pairs[0]
    if real.endswith(line):
        added = real[: len(real) - len(line)]
        if all(real == added + line for line, real in pairs):
            return lambda indent: added + indent
    if line.endswith(real):
        removed = line[: len(line) - len(real)]
        if all(line == removed + real for line, real in pairs):
            return lambda indent: indent[len(removed) :] if indent.startswith(removed) else None
    return None


def _mixes(pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether the caller's lines have spaces where the file has tabs, or the other way round."""
    ours, theirs = "".join(line for line, _ in pairs), "".join(real for _, real in pairs)
    return (" " in ours) != (" " in theirs) and bool(ours) and bool(theirs)


def _unit_conversions() -> Iterator[Convert]:
    for unit in UNITS:
        yield _level_conversion(" " * unit, "\t")
        yield _level_conversion("\t", " " * unit)


def _level_conversion(ours: str, theirs: str) -> Convert:
    def convert(indent: str) -> str | None:
        levels, rest = divmod(len(indent), len(ours))
        return None if rest or indent != ours * levels else theirs * levels

    return convert


def _converted(lines: Sequence[str], convert: Convert, *, may_mix: bool) -> str | None:
    converted = []
    for line in lines:
        indent = _indent(line)
        changed = indent if indent == line else convert(indent)
        if changed is None or (_is_mixed(changed) and not may_mix):
            return None
        converted.append(changed + line[len(indent) :])
    return "\n".join(converted)


def _is_mixed(indent: str) -> bool:
    return " " in indent and "\t" in indent


def _indent(line: str) -> str:
    match = _INDENT.match(line)
    return match[0] if match else ""
