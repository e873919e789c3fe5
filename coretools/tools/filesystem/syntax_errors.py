"""The syntax errors that a change introduced: those of the new text that the old text did not have.

The parsers are tolerant ones that find the structure of incomplete text, so a report is a hint for the author and not a
verdict. A wrong hint costs more than a missing one: what is doubtful is not reported.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from time import thread_time
from typing import TYPE_CHECKING

from coretools.errors import EditRefused
from coretools.tools.grammars import Grammar, grammar_for, load, parse

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_BYTES = 1024 * 1024
"""Largest text that is checked: source files are smaller, and data is not edited by hand."""

MAX_SECONDS = 0.25
"""Processor time of both parses: 1,000 lines take 5 ms, with errors up to 25. What takes longer is no usual source
file. Not the time of the clock: a busy machine would lose reports."""

SHOWN_ERRORS = 5
SHOWN_CHARACTERS = 160

_COUNTED_ERRORS = 100
"""Errors looked at. The text with more is none of this language."""

_TEMPLATE = re.compile(r"\{%|<%|<\?")
_DOUBLE_BRACE = "{{"
"""Marks of templates, which no grammar knows."""

_TRAILING_COMMA = re.compile(rb",(?=(?:\s|//[^\n]*|/\*.*?\*/)*[}\]])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SyntaxFault:
    """A place that does not follow the grammar."""

    line: int
    """From 1."""
    what: str
    text: str
    """The line, without the white space around it."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}: {self.text}"


@dataclass(frozen=True, slots=True)
class SyntaxCheck:
    """What a change introduced."""

    language: str = ""
    """Empty if no grammar is known for the file."""
    faults: tuple[SyntaxFault, ...] = ()
    unchecked: str = ""
    """Why the text was not checked."""

    def facts(self) -> dict[str, object]:
        """The language with the number of errors, or the reason why nothing was checked."""
        if not self.language:
            return {}
        if self.unchecked:
            return {"syntax": self.language, "syntax_unchecked": self.unchecked}
        return {"syntax": self.language, "syntax_errors": len(self.faults)}

    def note(self, display_path: str, *, would: bool = False) -> str:
        """A remark for the answer; empty if nothing was introduced."""
        if not self.faults:
            return ""
        count = "a syntax error" if len(self.faults) == 1 else f"{len(self.faults)} syntax errors"
        left_out = len(self.faults) - SHOWN_ERRORS
        lines = [str(fault) for fault in self.faults[:SHOWN_ERRORS]]
        lines += [f"and {left_out} more"] if left_out > 0 else []
        return f"[{display_path}: this {'would introduce' if would else 'introduced'} {count} ({self.language}):]\n" + (
            "\n".join(lines)
        )


def introduced_faults(path: str, before: str | None, after: str) -> SyntaxCheck:
    """Return the errors of `after` that `before` did not have; `before` is None for a new file."""
    grammar = grammar_for(path, after)
    if grammar is None or not grammar.is_exact:
        return SyntaxCheck()
    if len(after) + len(before or "") > 2 * MAX_BYTES:
        return SyntaxCheck(grammar.language, unchecked="too large")
    deadline = thread_time() + MAX_SECONDS
    try:
        faults = _faults(grammar, after, deadline)
        # Nearly always there are none: then the old text is not parsed.
        old = _faults(grammar, before, deadline) if faults and before is not None else []
    except TimeoutError:
        return SyntaxCheck(grammar.language, unchecked="took too long")
    if faults is None or old is None:
        return SyntaxCheck()
    if any(_is_template(grammar, fault.text) for fault in (*faults, *old)):
        return SyntaxCheck(grammar.language, unchecked="looks like a template")
    return SyntaxCheck(grammar.language, tuple(_new(old, faults)))


def refuse_faults(check: SyntaxCheck, display_path: str) -> None:
    """Refuse a change that introduced syntax errors, as the operator demands.

    Raises:
        EditRefused: names the errors.
    """
    if check.faults:
        raise EditRefused(
            f"{display_path}: refused, since the operator of this server wants no edit with new syntax errors; nothing"
            f" was written\n{check.note(display_path, would=True)}",
            **check.facts(),
        )


def _is_template(grammar: Grammar, line: str) -> bool:
    return bool(_TEMPLATE.search(line)) or (_DOUBLE_BRACE in line and not grammar.doubles_braces)


def _new(old: list[SyntaxFault], faults: list[SyntaxFault]) -> Iterator[SyntaxFault]:
    # A parser that recovers from one error finds the next ones elsewhere after each change. So in a text with old
    # errors something is new only if there are more of them, on a line that had none.
    if old and len(faults) <= len(old):
        return
    known = Counter((fault.what, fault.text) for fault in old)
    for fault in faults:
        key = fault.what, fault.text
        known[key] -= 1
        if known[key] < 0:
            yield fault


def _faults(grammar: Grammar, text: str, deadline: float) -> list[SyntaxFault] | None:
    """The errors of a text, one for a line; None without a grammar.

    Raises:
        TimeoutError: the deadline has passed.
    """
    language = load(grammar)
    if language is None:
        return None
    # CR alone is no line end for the parser. "replace": a lone surrogate can't be encoded.
    source = text.encode("utf-8", "replace")
    if grammar.has_trailing_commas:
        source = _TRAILING_COMMA.sub(b" ", source)
    root = parse(language, source, deadline=deadline)
    if not root.has_error:
        return []
    by_line: dict[int, SyntaxFault] = {}
    for node in _outermost_errors(root):
        row = node.start_point.row
        line = text_of_line(source, node.start_byte)
        what = f"missing {_quoted(node.type)}" if node.is_missing else "not valid here"
        by_line.setdefault(row, SyntaxFault(row + 1, what, line))
        if len(by_line) == _COUNTED_ERRORS:
            break
    return [by_line[row] for row in sorted(by_line)]


def _outermost_errors(root: "Node") -> Iterator["Node"]:
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if node.is_error or node.is_missing:
            yield node
        elif node.has_error:
            nodes += reversed(node.children)


def text_of_line(source: bytes, at: int) -> str:
    """The line that contains this byte, cut."""
    start = source.rfind(b"\n", 0, at) + 1
    end = source.find(b"\n", at)
    return source[start : end if end >= 0 else None].decode("utf-8", "replace").strip()[:SHOWN_CHARACTERS]


def _quoted(kind: str) -> str:
    """The text of a token in quotes, or the name of a part of the grammar."""
    return kind.replace("_", " ") if kind.isidentifier() else f"`{kind}`"
