"""Find the end of a here-document as bash does, and compare it with the tree."""

import re
from typing import TYPE_CHECKING, NamedTuple

from coretools.command_policy.shell_lines.findings import Findings
from coretools.command_policy.shell_lines.line import Span
from coretools.command_policy.shell_lines.words import WordReader, outermost

if TYPE_CHECKING:
    from tree_sitter import Node

_DELIMITER = re.compile(r"(?P<quote>['\"]?)(?P<name>[\w.-]{1,64})(?P=quote)", re.ASCII)
_REST_OF_LINE = re.compile(r"(?![^ \t;&|<>])(?:[^\"'`\\#()<\n]|\"[^\"`\\(\n]*\"|'[^'\n]*'|<(?!<))*")
"""What may stand between a delimiter and the end of its line: closed quotes, and no second document."""

_CONTINUED = r"\\\n"
"""In a document with expansions: bash joins continued lines before it looks for the end."""


class _Document(NamedTuple):
    first: int
    """Where the body starts."""
    last: int
    """Where the line that ends it starts."""
    end: int
    is_expanded: bool


class HereDocumentReader:
    """Reads the bodies of here-documents."""

    def __init__(self, findings: Findings, words: WordReader) -> None:
        self._findings = findings
        self._words = words

    def read(self, node: "Node", words_end: int) -> None:
        """Check where the document ends and visit its expansions. `words_end`: the end of its line's last word."""
        parts = {child.type: child for child in node.children}
        start, body, end = (parts.get(f"heredoc_{part}") for part in ("start", "body", "end"))
        document = None if start is None else self._found(start, words_end, strips_tabs="<<-" in parts)
        if document is None or body is None or end is None or end.end_byte != document.end:
            self._findings.add_opaque("a here-document whose end is uncertain", node.byte_range)
        elif document.is_expanded:
            self._expanded(body, (document.first, document.last))

    def _found(self, start: "Node", words_end: int, *, strips_tabs: bool) -> "_Document | None":
        """Find the document by bash's rules."""
        delimiter = _DELIMITER.fullmatch(self._findings.text(*start.byte_range))
        first = self._first_line(start, words_end)
        if delimiter is None or not first:
            return None
        found = self._end(first, delimiter["name"], strips_tabs=strips_tabs)
        return None if found is None else _Document(first, *found, not delimiter["quote"])

    def _first_line(self, start: "Node", words_end: int) -> int:
        """Return where the body starts; 0 when bash may see that differently."""
        newline = self._findings.source.find(b"\n", start.end_byte)
        rest_of_line = self._findings.text(start.end_byte, max(newline, 0))
        is_certain = _REST_OF_LINE.fullmatch(rest_of_line) and not self._findings.text(words_end, newline).strip(" \t")
        return newline + 1 if is_certain else 0

    def _expanded(self, body: "Node", span: Span) -> None:
        inner = [found for child in body.children for found in outermost(child)]
        self._words.check_quotes_in(inner)
        self._words.around(inner, span, hidden=_CONTINUED)

    def _end(self, first: int, name: str, *, strips_tabs: bool) -> tuple[int, int] | None:
        """Return start and end of the line that ends a document."""
        source, at, wanted = self._findings.source, first, name.encode()
        while 0 < at < len(source):
            newline = source.find(b"\n", at)
            end = len(source) if newline < 0 else newline
            line = source[at:end]
            if (line.lstrip(b"\t") if strips_tabs else line) == wanted:
                return at, end
            at = end + 1
        return None
