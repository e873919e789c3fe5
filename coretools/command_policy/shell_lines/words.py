"""Read the words of a line: quotes, expansions and literal text.

The tree says where expansions are; each byte around them is read again by bash's rules, because the grammar keeps some
expansions as plain text, splits words at other places and skips characters that bash does not.
"""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from coretools.command_policy.shell_lines.findings import Findings
from coretools.command_policy.shell_lines.line import Span, Word
from coretools.command_policy.shell_lines.quoting import (
    EMPTY_PIECE,
    UNKNOWN_PIECE,
    Pieces,
    ansi_quoted,
    double_quoted,
    expand_braces,
    quoted,
    unquoted,
)

if TYPE_CHECKING:
    from tree_sitter import Node

EXPANSIONS = frozenset(
    (
        "simple_expansion",
        "expansion",
        "command_substitution",
        "arithmetic_expansion",
        "process_substitution",
    )
)
QUOTES = frozenset(("string", "raw_string", "ansi_c_string", "translated_string"))
WORD_NODES = (
    EXPANSIONS
    | QUOTES
    | frozenset(
        ("word", "concatenation", "number", "brace_expression", "command_name", "variable_name", "extglob_pattern")
    )
    | frozenset(("regex", "special_variable_name", "$", "==", "=~"))
)

_PLAIN_TEXT = re.compile(r"(?:[^\s\\;&|<>()$`\"'\x00-\x1f\x7f]|\\[^\n\x00-\x1f\x7f]|\$(?=[^\w{(\['\"@*#?$!\\-]))*")
"""Text outside quotes that bash takes as it stands: no metacharacter, quote or expansion that isn't escaped."""

_GROUPING = re.compile(r"[()|]")
"""What a regular expression in `[[` may hold besides."""

_WHOLE_QUOTES = {"raw_string": re.compile(r"'[^']*'"), "ansi_c_string": re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)}
"""Quotes without expansions, as bash ends them: to the grammar `$'\\\\'` goes on."""

_EXPANSION_START = re.compile(r"`|\$[\w{(\[@*#?$!-]")
_ESCAPED = re.compile(r"\\[\\$`\"]")
_PARAMETER = re.compile(
    r"\$\{(?:[!?]\}|#?(?P<name>\w+|[@*#?$-])(?P<index>\[(?:@|\*|\$?\w+)\])?"
    r"(?P<operator>:?[-+?=]|##?|%%?|//?|\^\^?|,,?|:|@[QUuLaAkK](?=\})|(?=\})))",
    re.ASCII,
)
"""The start of `${...}`, without indirection (`${!x}`) and evaluation (`${x@P}`), which expand the value again."""

_SIMPLE_EXPANSION = re.compile(r"\$(?:\w+|[@*#?$!-])", re.ASCII)
_ARITHMETIC = re.compile(
    r"(?:[\w\s+*/%<>=!&|^~?:(),-]|\$\w+|\$[?#!$]|\$\{#?\w+\}|\[\$?\w+\])*",
    re.ASCII,
)
"""Arithmetic with names and numbers only."""

_ARITHMETIC_ASSIGNMENT = re.compile(
    r"([A-Za-z_]\w*)\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
_NUMBER_EXPANSION = re.compile(r"(\"?)(?:\$[?#!$]|\$\{#\w+\})\1", re.ASCII)
_DOCUMENT = re.compile(
    r"\"\$\(cat <<(?P<quote>['\"])(?P<name>\w+)(?P=quote)\n"
    r"(?P<body>(?:(?!(?P=name)\n)[^\n]*\n)*)(?P=name)\n[ \t\n]*\)\"",
    re.ASCII,
)
_CAT_FUNCTION = re.compile(rb"\bcat[ \t]*\(|function[ \t]+cat")
_WORD_ENDS = frozenset((*"\n \t;|&)", ""))

HIDDEN = "the grammar takes an expansion for plain text here"


class WordReader:
    """Reads words; what they start goes to `visit_statements`, what they set and can't tell to the findings."""

    def __init__(self, findings: Findings, visit_statements: "Callable[[Node], None]") -> None:
        self._findings = findings
        self._visit_statements = visit_statements

    def words(self, node: "Node") -> list[Word]:
        """Return a word as bash would pass it on, or the words that its braces make of it."""
        pieces = self.pieces(node)
        found = expand_braces(pieces) if pieces.plain_at("{") >= 0 else [pieces]
        return [_word(one, node) for one in found if one.text]

    def is_number(self, node: "Node") -> bool:
        """Whether a word is an expansion that always gives a number."""
        text = self._findings.text(*node.byte_range)
        return node.type == "arithmetic_expansion" or _NUMBER_EXPANSION.fullmatch(text) is not None

    def single(self, node: "Node") -> Word:
        """Return a word in a place where braces and globs are not expanded."""
        return _word(self.pieces(node), node, is_assigned=True)

    def pieces(self, node: "Node") -> Pieces:
        """Return the word with its quotes marked."""
        pieces, at = Pieces(), node.start_byte
        for child in outermost(node):
            pieces += self._literal(at, child.start_byte, node) + self._quoted_or_expanded(child)
            at = child.end_byte
        pieces += self._literal(at, node.end_byte, node)
        if self._findings.text(node.end_byte, node.end_byte + 1) in ("<", ">"):
            if pieces.text.endswith("}"):
                self._findings.add_opaque("{name}> sets a variable", node.byte_range)
            elif pieces.text.isdecimal() and pieces.is_bare:
                self._findings.add_opaque("this number belongs to the redirect", node.byte_range)
        if pieces.text.startswith("#") and pieces.marks[0] == "p":
            self._findings.add_opaque("a comment or a word", node.byte_range)
        return pieces

    def _literal(self, start: int, end: int, node: "Node") -> Pieces:
        """Read text outside quotes again by bash's rules."""
        text = self._findings.text(start, end)
        if text.endswith("$") and end == node.end_byte and self._findings.text(end, end + 1) in _WORD_ENDS:
            text = f"{text[:-1]}\\$"
        if not _PLAIN_TEXT.fullmatch(_GROUPING.sub("", text) if node.type == "regex" else text):
            self._findings.add_opaque("bash may read this text differently than the grammar", node.byte_range)
            return UNKNOWN_PIECE
        return unquoted(text)

    def _quoted_or_expanded(self, node: "Node") -> Pieces:
        text = self._findings.text(*node.byte_range)
        if node.type in _WHOLE_QUOTES:
            if not _WHOLE_QUOTES[node.type].fullmatch(text):
                self._findings.add_opaque("bash may end these quotes elsewhere", node.byte_range)
            return quoted(text[1:-1]) if node.type == "raw_string" else ansi_quoted(text[2:-1])
        self.expand(node)
        if (document := self._document(text)) is not None:
            return quoted(document)
        if node.type != "string":
            return UNKNOWN_PIECE
        return EMPTY_PIECE + UNKNOWN_PIECE if _expansions_of(node) else double_quoted(text[1:-1])

    def _document(self, text: str) -> str | None:
        """Return the text of `"$(cat <<'EOF' ...)"`, the usual way to give a message of several lines."""
        match = _DOCUMENT.fullmatch(text)
        if match is None or _CAT_FUNCTION.search(self._findings.source):
            return None
        return match["body"].rstrip("\n")

    def expand(self, node: "Node") -> None:
        """Visit what an expansion, or a string with expansions, starts."""
        self._findings.enter(node.start_byte)
        text = self._findings.text(*node.byte_range)
        if node.type in ("command_substitution", "process_substitution"):
            self._visit_statements(node)
        elif node.type == "string":
            inner = _expansions_of(node)
            self.check_quotes_in(inner)
            self.around(inner, (node.start_byte + 1, node.end_byte - 1), hidden=r"\"|\\\Z")
        elif node.type == "arithmetic_expansion":
            self.arithmetic(text[3:-2] if text.startswith("$((") else text[2:-1], node.byte_range)
        elif node.type == "expansion":
            self._parameter(node, text)
        elif node.type != "simple_expansion" or not _SIMPLE_EXPANSION.fullmatch(text):
            self._findings.add_opaque("an expansion that only the running shell can tell", node.byte_range)
        self._findings.leave()

    def check_quotes_in(self, nodes: "Iterable[Node]") -> None:
        """Refuse `"${x:-'...'}"`: within double quotes and here-documents these quotes quote nothing."""
        for node in nodes:
            if node.type == "expansion" and "'" in self._findings.text(*node.byte_range):
                self._findings.add_opaque("single quotes in ${} within double quotes do not quote", node.byte_range)

    def _parameter(self, node: "Node", text: str) -> None:
        """Visit `${...}`."""
        match = _PARAMETER.match(text)
        if match is None:
            self._findings.add_opaque("an expansion that only the running shell can tell", node.byte_range)
            return
        if match["name"] is None:
            return
        rest, operator = text[match.end() : -1], match["operator"]
        if operator in ("=", ":="):
            self._findings.assign(match["name"], None, node.byte_range)
        if operator == ":":
            self.arithmetic(rest, node.byte_range)
        if match["index"]:
            self._findings.add_arithmetic(match["index"], node.byte_range)
        inner = [found for child in node.children for found in outermost(child)]
        start = node.start_byte + len(text[: match.end()].encode())
        self.around(inner, (start, node.end_byte - 1), hidden=r"[\"'}]|[<>]\(")

    def arithmetic(self, text: str, span: Span) -> None:
        """Check arithmetic: bash evaluates what the names hold, so the names are noted."""
        if not _ARITHMETIC.fullmatch(text):
            self._findings.add_opaque("arithmetic with more than names and numbers", span)
            return
        self._findings.add_arithmetic(text, span)
        for before, after in _ARITHMETIC_ASSIGNMENT.findall(text):
            self._findings.assign(before or after, "0", span)

    def around(self, nodes: "Iterable[Node]", span: Span, *, hidden: str) -> None:
        """Visit the expansions in a stretch of text. The text around them must not hide another."""
        at, end = span
        stretches = []
        for child in nodes:
            if child.start_byte >= at:
                stretches.append((at, child.start_byte))
                self._quoted_or_expanded(child)
                at = child.end_byte
        for start, stop in (*stretches, (at, end)):
            text = _ESCAPED.sub("", self._findings.text(start, stop)).replace("$\\\n", "$(")
            if _EXPANSION_START.search(text) or re.search(hidden, text):
                self._findings.add_opaque(HIDDEN, span)


def outermost(node: "Node") -> "list[Node]":
    """Return the quotes and expansions of a word that are in no other, in order."""
    nodes: list[Node] = []
    pending = [node]
    while pending:
        current = pending.pop()
        if current.type in EXPANSIONS or current.type in QUOTES:
            nodes.append(current)
        else:
            pending += current.children[::-1]
    return nodes


def _expansions_of(node: "Node") -> "list[Node]":
    """Return the expansions directly inside double quotes."""
    return [child for child in node.children if child.type in EXPANSIONS]


def _word(pieces: Pieces, node: "Node", *, is_assigned: bool = False) -> Word:
    kind = pieces.kind
    is_known = kind == "literal" or (is_assigned and kind == "pattern")
    return Word(pieces.value if is_known else None, kind, *node.byte_range, pieces.is_bare)
