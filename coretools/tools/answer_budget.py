"""How an answer fits its size (`Limits.answer_bytes`, 20,000 bytes of text), and a line 2,000 characters.

A model reads every byte of an answer. Each tool names the way to what its answer leaves out.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from coretools.config.limits import Limits
from coretools.operations.content import compact_json

NOTE_BYTES = 1_000
"""Part of an answer for its headline and remarks."""

LINE_CHARACTERS = 2_000
"""Most characters shown of a line."""


def content_bytes(limits: Limits) -> int:
    """The bytes of an answer that its content may take."""
    return max(limits.answer_bytes - NOTE_BYTES, limits.answer_bytes // 2)


def cut_line(line: str, rest: str = "", *, following: int = 0, longest: int = LINE_CHARACTERS) -> str:
    """Cut a line after `longest` characters and count the rest; `rest` says how to read it.

    `following` characters of the line are not in `line`.
    """
    if len(line) + following <= longest:
        return line
    left_out = max(0, len(line) - longest) + following
    remark = f" [... {left_out} characters of this line left out{rest and f'; {rest}'}]"
    # A remark that is longer than what it stands for helps nobody.
    is_worth_it = following or len(line[longest:].encode("utf-8", "replace")) > len(remark)
    return f"{line[:longest]}{remark}" if is_worth_it else line


def cut_lines(text: str) -> str:
    """Cut every line of a text."""
    if len(text) <= LINE_CHARACTERS:
        return text
    return "\n".join(map(cut_line, text.split("\n")))


Value = TypeVar("Value")


def fitting_values(values: Iterable[Value], budget: int) -> list[Value]:
    """The first values that together have at most `budget` bytes as compact JSON."""
    return _fitting(values, budget, compact_json)


def fitting(lines: Iterable[str], budget: int) -> list[str]:
    """The first lines that together have at most `budget` bytes of UTF-8, newlines included."""
    return _fitting(lines, budget, lambda line: line.encode("utf-8", "replace"))


def _fitting(values: Iterable[Value], budget: int, encoded: Callable[[Value], str | bytes]) -> list[Value]:
    """The first values that together fit, each with one byte more for what separates it from the next."""
    kept = []
    for value in values:
        budget -= len(encoded(value)) + 1
        if budget < 0:
            break
        kept.append(value)
    return kept
