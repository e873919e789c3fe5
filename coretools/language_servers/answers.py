"""What language servers answer, without the types of the protocol."""

from dataclasses import dataclass
from typing import Literal

from coretools.language_servers.positions import Encoding, Lines

Severity = Literal["error", "warning", "information", "hint"]

Relation = Literal["references", "callers", "implementations", "type", "definition"]
"""Kinds of questions about a symbol."""

MAX_SPANS = 20_000
"""Most places that are taken of one answer."""


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a file, as a server counts it: from 0, in units of its encoding."""

    path: str
    """Absolute."""
    line: int
    character: int
    end_line: int
    end_character: int

    def offsets(self, lines: Lines, encoding: Encoding) -> tuple[int, int] | None:
        """Return start and end in a text; None if it has no such place."""
        start = lines.offset(self.line, self.character, encoding)
        end = lines.offset(self.end_line, self.end_character, encoding)
        return None if start is None or end is None or end < start else (start, end)


@dataclass(frozen=True, slots=True)
class Spans:
    """The places that a server answered with."""

    spans: tuple[Span, ...]
    encoding: Encoding
    unsearched: tuple[str, ...] = ()
    """Absolute paths of files that contain the name, and that the server did not search."""


@dataclass(frozen=True, slots=True)
class TextChange:
    """A replacement."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A diagnostic. Its line counts from 1."""

    line: int
    severity: Severity
    message: str
    code: str
