"""The result of reading a file: its text as far as it fits into an answer."""

import codecs
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from coretools.config.limits import Limits
from coretools.operations.content import Result
from coretools.roots.read import OpenFile
from coretools.roots.text import binary_error, decode, newline_of, utf8_by_start
from coretools.tools.answer_budget import content_bytes
from coretools.tools.filesystem.line_window import LineRange, count_lines, window
from coretools.tools.filesystem.seek_window import CountedWindow, Cursor, seek_window

SMALLEST_BUDGET = 256
"""Bytes of text that an answer has room for, however long the line numbers are."""

START_BYTES = 16 * 1024
"""Bytes examined to detect the encoding of a file that is not read whole."""

HASHED_BYTES = 256 * 1024
"""Largest file whose hash is a fact of each answer: 0.2 ms, without instructions for SHA 1 ms."""


_ENDINGS = {"\r\n": "CRLF", "\r": "CR", "mixed": "mixed line endings"}
"""Line endings that are reported."""


class FileText(Result):
    """Text of a file, unchanged, with remarks on omitted parts in brackets."""

    content: str
    encoding: str
    newline: str
    lines: int | None
    """Number of lines in the file; None if they were not counted."""
    size: int
    sha256: str = ""
    """Of the whole file; "" if it is large, or was not read whole."""

    def text(self) -> str:
        """The text; if it is not plain UTF-8 with LF, a last line in brackets says so."""
        if not self.unusual:
            return self.content
        gap = "" if self.content.endswith("\n") or not self.content else "\n"
        return f"{self.content}{gap}[{', '.join(self.unusual)}]\n"

    @property
    def unusual(self) -> list[str]:
        """Names of the encoding and the line endings, where they are not UTF-8 and LF."""
        kinds = [self.encoding] if self.encoding != "utf-8" else []
        return [*kinds, _ENDINGS[self.newline]] if self.newline in _ENDINGS else kinds

    def facts(self) -> dict[str, object]:
        """Facts about the whole file; encoding and line endings of a large file as far as it was read."""
        counted = {} if self.lines is None else {"lines": self.lines}
        hashed = {"sha256": self.sha256} if self.sha256 else {}
        return {"encoding": self.encoding, "newline": self.newline, **counted, "bytes": self.size, **hashed}


@dataclass(frozen=True, slots=True)
class TextBudget:
    """How many bytes of UTF-8 the text of a file may take in an answer: of its content, and with remarks."""

    content: int
    whole: int

    @classmethod
    def of(cls, limits: Limits) -> "TextBudget":
        """That of a file that has the answer to itself."""
        return cls(content_bytes(limits), limits.answer_bytes)


def part_of_file(file: OpenFile, lines: LineRange, budget: TextBudget) -> FileText | None:
    """Return the lines without reading the rest; None if the whole file must be read to detect its encoding."""
    start = file.read_at(0, START_BYTES)
    detected = utf8_by_start(start, file.display_path, size=file.size)
    if detected is None:
        return None
    encoding, first = detected
    try:
        selected, content = _within_answer(
            lines, budget, lambda most: seek_window(file, lines, first_byte=first, budget_bytes=most)
        )
    except UnicodeDecodeError:
        return None
    text = selected.window.head + selected.window.tail
    if "\0" in text:
        raise binary_error(start, file.display_path, size=file.size)
    return FileText(content=content, encoding=encoding, newline=newline_of(text), lines=selected.lines, size=file.size)


def text_of_file(data: bytes, display_path: str, lines: LineRange, budget: TextBudget) -> FileText:
    """Return the lines of a file that was read whole.

    Raises:
        NotText: it is binary.
    """
    if lines.cursor is not None:
        lines = replace(lines, offset=Cursor.parse(lines.cursor).line, cursor=None)
    text = decode(data, display_path)
    first = {"utf-8": 0, "utf-8-sig": len(codecs.BOM_UTF8)}.get(text.encoding)
    select = partial(window, text.text, lines, display_path=display_path, first_byte=first)
    _, content = _within_answer(lines, budget, lambda most: CountedWindow(select(budget_bytes=most)))
    return FileText(
        content=content,
        encoding=text.encoding,
        newline=text.newline,
        lines=count_lines(text.text),
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest() if len(data) <= HASHED_BYTES else "",
    )


def _within_answer(
    lines: LineRange, budget: TextBudget, select: Callable[[int], CountedWindow]
) -> tuple[CountedWindow, str]:
    """Select lines with the largest budget with which the text, numbers included, fits into an answer."""
    most = budget.content
    while True:
        selected = select(most)
        content = selected.window.text(numbered=lines.line_numbers)
        if most < SMALLEST_BUDGET or len(content.encode("utf-8", "replace")) <= budget.whole:
            return selected, content
        most //= 2
