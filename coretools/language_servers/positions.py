"""Lines of a text, and positions in it, which the protocol counts in the units that a server chose.

Lines end with LF, CRLF or CR, in the protocol too.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_UNITS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2)}
_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Lines:
    """A text by its lines. All numbers here count from 0."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    """Without the line end."""

    @classmethod
    def of(cls, text: str) -> "Lines":
        """Find the lines of a text."""
        found = list(_LINE_END.finditer(text))
        return cls(text, (0, *(one.end() for one in found)), (*(one.start() for one in found), len(text)))

    def line(self, number: int) -> str:
        """Return a line; empty if there is none of this number."""
        return self.text[self.starts[number] : self.ends[number]] if 0 <= number < len(self.starts) else ""

    def offset(self, line: int, character: int, encoding: Encoding) -> int | None:
        """Return the offset in the text of a position; None if the text has no such line or column."""
        if line == len(self.starts) and character == 0:
            return len(self.text)  # after a last line without an end
        if not 0 <= line < len(self.starts):
            return None
        text = self.line(line)
        if encoding == "utf-32":
            column = character
        else:
            name, width = _UNITS[encoding]
            units = text.encode(name, "surrogatepass")
            if character * width > len(units):
                return None
            column = len(units[: character * width].decode(name, "ignore"))
        return self.starts[line] + column if 0 <= column <= len(text) else None

    def position(self, offset: int, encoding: Encoding) -> tuple[int, int]:
        """Return line and character of an offset."""
        line = bisect_right(self.starts, offset) - 1
        before = self.text[self.starts[line] : offset]
        if encoding == "utf-32":
            return line, len(before)
        name, width = _UNITS[encoding]
        return line, len(before.encode(name, "surrogatepass")) // width
