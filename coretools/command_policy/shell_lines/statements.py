"""Read the statements of a line: lists, pipelines, compound commands, functions, redirects and simple commands.

Every node must be of a type that is known for its place, and the bytes between two nodes must be blank. Whatever is
neither is an opaque piece: the grammar then read the line in another way than bash does.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from coretools.command_policy.shell_lines.builtins import BuiltinReader
from coretools.command_policy.shell_lines.conditions import ConditionReader
from coretools.command_policy.shell_lines.findings import Findings
from coretools.command_policy.shell_lines.here_documents import HereDocumentReader
from coretools.command_policy.shell_lines.line import Span, Word
from coretools.command_policy.shell_lines.names import names_in
from coretools.command_policy.shell_lines.words import WORD_NODES, WordReader

if TYPE_CHECKING:
    from tree_sitter import Node


GROUPS = names_in(
    """
    program list pipeline subshell compound_statement negated_command if_statement elif_clause else_clause
    while_statement for_statement c_style_for_statement do_group case_statement case_item function_definition
    variable_assignments
    """
)
"""Nodes that hold statements."""

SIMPLE = names_in("command declaration_command unset_command redirected_statement")
REDIRECT_NODES = names_in("file_redirect herestring_redirect heredoc_redirect")
PLAIN_STATEMENTS = SIMPLE | REDIRECT_NODES | {"variable_assignment", "test_command"}

OPERATORS = names_in(
    "; & && || | |& ( ) { } ;; ;& ;;& ! if then elif else fi for select in do done while until case esac function"
    " $( ` <( >( comment"
) | {"\n"}
"""Tokens between statements."""

REDIRECT_OPERATORS = names_in("< > >> &> &>> <& >& >| <&- >&- <<<")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
"""The name and the operator of an assignment. `1=x` is a program."""

_PLAIN_TARGET = re.compile(r"[\w./+,:@%=][\w./+,:@%=-]*", re.ASCII)
"""A target of `>&` that is the same after a second expansion. A `-` at its start is a word of its own."""

_BEFORE_TOKEN = frozenset((*"\n \t;&|()", ""))
_WORD_ENDS = WORD_NODES | REDIRECT_NODES
_COMPLETE_OPERATORS = frozenset(("&&", "||", "|&"))
"""Operators that stay the same when the next line is joined to them."""


class StatementReader:
    """Reads statements into findings."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._words = WordReader(findings, self._substitution)
        self._builtins = BuiltinReader(findings, self._words)
        self._conditions = ConditionReader(findings, self._words)
        self._here_documents = HereDocumentReader(findings, self._words)

    def line(self, root: "Node") -> None:
        """Read the whole line."""
        source = self._findings.source
        start, end = (root.children[0].start_byte, root.children[-1].end_byte) if root.children else (0, 0)
        around = source[:start] + b" " + source[end:]
        if around.replace(b"\\\n", b"").strip(b" \t\n"):
            self._findings.add_opaque("the grammar leaves out a part of the line", (0, len(source)))
        self._group(root)

    def _children(self, node: "Node", *, newline: bool) -> "list[Node]":
        """Return the children after checking what stands between them.

        Newlines may stand where a command may end.
        """
        return self._checked(node.start_byte, node.children, newline=newline)

    def _checked(self, at: int, nodes: "list[Node]", *, newline: bool) -> "list[Node]":
        last: Node | None = None
        for child in nodes:
            between = self._findings.text(at, child.start_byte)
            if last is not None and last.type in _COMPLETE_OPERATORS:
                between = f" {between}"
            # bash removes a continuation; without a blank beside it two words of the grammar are one.
            joined = between.replace("\\\n", "")
            rest = joined.strip(" \t\n" if newline else " \t")
            if rest or (between and not joined) or self._touches(last, child, between):
                self._findings.add_opaque("bash may split these words differently", child.byte_range)
            at, last = child.end_byte, child
        return nodes

    def _touches(self, last: "Node | None", child: "Node", between: str) -> bool:
        """Whether two words are really one, or a comment or number is really part of a word."""
        if child.type in ("comment", "file_descriptor"):
            before = self._findings.text(child.start_byte - 1, child.start_byte) if child.start_byte else ""
            return before not in _BEFORE_TOKEN or "\n" in self._findings.text(*child.byte_range)
        if last is None or between:
            return False
        if last.type in ("{", "!"):  # part of a word unless a metacharacter follows
            return child.type not in REDIRECT_NODES and self._findings.source[child.start_byte] != ord("(")
        return last.type in _WORD_ENDS and child.type in WORD_NODES

    def _substitution(self, node: "Node") -> None:
        """Read the statements of `$(...)`, backquotes, `<(...)` and `>(...)`."""
        text = self._findings.text(*node.byte_range)
        if text.startswith("$(("):
            self._findings.add_opaque("(( may start arithmetic", node.byte_range)
        if text.startswith("`") and ("\\" in text or "`" in text[1:-1] or "#" in text):
            self._findings.add_opaque("bash ends and unquotes backquotes first, whatever is in them", node.byte_range)
        self._group(node)

    def _group(self, node: "Node") -> None:
        """Read a node that holds statements."""
        self._findings.enter(node.start_byte)
        if node.type == "for_statement":
            self._for(node)
        elif node.type == "c_style_for_statement":
            self._arithmetic_for(node)
        elif node.type == "compound_statement" and node.children[0].type == "((":
            self._arithmetic_command(node)
        elif node.type == "function_definition":
            self._function(node)
        elif node.type in ("case_statement", "case_item"):
            self._case(node)
        else:
            if node.type == "subshell" and self._findings.text(*node.byte_range).startswith("(("):
                self._findings.add_opaque("(( may start arithmetic", node.byte_range)
            self._statements(self._children(node, newline=True), node)
        self._findings.leave()

    def _statements(self, nodes: "Iterable[Node]", parent: "Node") -> None:
        for child in nodes:
            if child.type in GROUPS:
                self._group(child)
            elif child.type in PLAIN_STATEMENTS:
                self._statement(child)
            elif child.type not in OPERATORS:
                self._unexpected(child, parent)

    def _unexpected(self, node: "Node", parent: "Node") -> None:
        self._findings.add_opaque(f"{node.type} in {parent.type} is not read here", node.byte_range)

    def _case(self, node: "Node") -> None:
        rest = []
        for child in self._children(node, newline=True):
            if child.type in WORD_NODES:
                self._words.pieces(child)
            else:
                rest.append(child)
        self._statements(rest, node)

    def _for(self, node: "Node") -> None:
        """Read `for NAME in WORDS` and `select`: the variable takes every word as its value."""
        rest, words = [], []
        name = ""
        for child in self._children(node, newline=True):
            if child.type == "variable_name" and not name:
                name = self._findings.text(*child.byte_range)
            elif child.type in WORD_NODES:
                words += self._words.words(child)
            else:
                rest.append(child)
        has_words = any(child.type == "in" for child in rest)
        for text in {word.text for word in words} if has_words else {None}:
            self._findings.assign(name, text, node.byte_range)
        self._statements(rest, node)

    def _arithmetic_for(self, node: "Node") -> None:
        opening = [child for child in node.children if child.type in ("((", "))")]
        if [child.type for child in opening] != ["((", "))"]:
            self._unexpected(node, node)
            return
        start, end = opening[0].end_byte, opening[1].start_byte
        self._words.arithmetic(self._findings.text(start, end).replace(";", ","), node.byte_range)
        rest = [child for child in node.children if child.start_byte >= opening[1].end_byte]
        self._statements(self._checked(opening[1].end_byte, rest, newline=True), node)
        before = [child for child in node.children if child.end_byte <= start]
        self._checked(node.start_byte, before, newline=True)

    def _arithmetic_command(self, node: "Node") -> None:
        text = self._findings.text(*node.byte_range)
        if text.startswith("((") and text.endswith("))"):
            self._words.arithmetic(text[2:-2], node.byte_range)
        else:
            self._unexpected(node, node)

    def _function(self, node: "Node") -> None:
        name = node.child_by_field_name("name")
        rest = [child for child in self._children(node, newline=True) if child != name]
        if name is not None:
            self._findings.functions.add(self._words.single(name).text or "")
        self._statements(rest, node)

    def _statement(self, node: "Node") -> None:
        """Read what is a command, an assignment, a test or a redirect by itself."""
        words, late = self._collect(node)
        self._builtins.command(sorted(words, key=lambda word: word.span))
        if late:
            self._findings.add_opaque("a word after the redirect of a compound command", node.byte_range)

    def _collect(self, node: "Node") -> tuple[list[Word], list[Word]]:
        """Return the words of a simple command, and those behind the redirect of a compound one."""
        if node.type == "variable_assignment":
            self._assignment(node)
            return [], []
        if node.type == "test_command":
            self._conditions.read(node)
            return [], []
        if node.type in REDIRECT_NODES:
            return self._redirect(node), []
        return self._command(node)

    def _command(self, node: "Node") -> tuple[list[Word], list[Word]]:
        words: list[Word] = []
        late: list[Word] = []
        is_compound = False
        children = self._children(node, newline=False)
        has_program = any(child.type == "command_name" for child in children)
        for child in children:
            if node.type == "redirected_statement" and child.type in SIMPLE:
                words += self._collect(child)[0]
            elif child.type in GROUPS or child.type == "test_command":
                self._statements([child], node)
                is_compound = True
            elif child.type in REDIRECT_NODES:
                late += self._redirect(child)
            else:
                words += self._word_of_command(child, node, has_program=has_program)
        return ([], late) if is_compound else (words + late, [])

    def _word_of_command(self, child: "Node", node: "Node", *, has_program: bool) -> list[Word]:
        if child.type == "variable_assignment":
            is_declared = node.type == "declaration_command"
            word = self._assignment(child, is_exported=has_program and not is_declared, command=node)
            return [word] if is_declared else []
        if child.type in WORD_NODES:
            return self._words.words(child)
        if not child.is_named and child.type.isalpha():  # `export`, `declare`, `unset` are tokens of the grammar
            return [Word(child.type, "literal", *child.byte_range, is_bare=True)]
        self._unexpected(child, node)
        return []

    def _assignment(self, node: "Node", *, is_exported: bool = False, command: "Node | None" = None) -> Word:
        """Note an assignment, and return it as a word, as `export` has it."""
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:  # the grammar always gives one
            self._unexpected(node, node)
            return Word(None, "dynamic", *node.byte_range)
        target, has_index = self._variable(name)
        between = self._findings.text(name.end_byte, node.end_byte if value is None else value.start_byte)
        if not _ASSIGNED.fullmatch(f"{target}{between}"):
            self._findings.add_opaque("an assignment that bash may read differently", node.byte_range)
        is_array = value is not None and value.type == "array"
        self._findings.has_arrays |= has_index or is_array
        texts = self._values(value)
        for text in () if self._is_field_separator(target, command) else texts:
            self._findings.assign(target, text, node.byte_range, is_exported=is_exported)
        if texts[0] is None or is_array:
            return Word(None, "dynamic", *node.byte_range)
        return Word(f"{target}={texts[0]}", "literal", *node.byte_range)

    def _variable(self, name: "Node") -> tuple[str, bool]:
        """Return the variable of an assignment, and whether a subscript follows it."""
        target, _, index = self._findings.text(*name.byte_range).partition("[")
        if index and not re.fullmatch(r"\$?\w+\]", index, re.ASCII):
            self._findings.add_opaque("a subscript that bash may evaluate", name.byte_range)
        self._findings.add_arithmetic(index.rstrip("]"), name.byte_range)
        return target, bool(index)

    def _values(self, value: "Node | None") -> list[str | None]:
        """Return what an assignment sets: one value, or those of an array."""
        if value is None:
            return [""]
        if value.type != "array":
            word = self._words.single(value)
            return ["0"] if self._words.is_number(value) else [word.text]
        if re.search(r"[(\s]\[", self._findings.text(*value.byte_range)):
            self._findings.add_opaque("a subscript in an array", value.byte_range)
        parts = [part for part in self._children(value, newline=True) if part.type not in ("(", ")", "comment")]
        return [word.text for part in parts for word in self._words.words(part)] or [None]

    def _is_field_separator(self, name: str, command: "Node | None") -> bool:
        """Whether this is `IFS= read ...`, where only `read` sees the value."""
        program = command.child_by_field_name("name") if command is not None else None
        return name == "IFS" and program is not None and self._findings.text(*program.byte_range) == "read"

    def _redirect(self, node: "Node") -> list[Word]:
        """Check the target; return the words behind it, which belong to the command."""
        if node.type == "heredoc_redirect":
            return self._here_document(node)
        late: list[Word] = []
        operator, has_target = "", False
        for child in self._children(node, newline=False):
            if child.type in WORD_NODES:
                words = self._words.words(child)
                if has_target:
                    late += words
                else:
                    self._target(operator, words, child.byte_range)
                has_target = True
            elif child.type in REDIRECT_OPERATORS:
                operator, has_target = child.type, child.type.endswith("-")
            elif child.type != "file_descriptor" or not self._findings.text(*child.byte_range).isdecimal():
                self._unexpected(child, node)
        return late

    def _target(self, operator: str, words: list[Word], span: Span) -> None:
        """Check the target of a redirect: the words that its braces make of it are no single file."""
        text = words[0].text if len(words) == 1 else None
        if operator in (">&", "<&") and not _PLAIN_TARGET.fullmatch(text or ""):
            self._findings.add_opaque(f"bash expands what follows {operator} twice, or splits it", span)

    def _here_document(self, node: "Node") -> list[Word]:
        """Read a here-document with the rest of its line: words, redirects, a pipeline, a list."""
        late: list[Word] = []
        first_line = [child for child in node.children if child.type not in ("heredoc_body", "heredoc_end")]
        self._checked(node.start_byte, first_line, newline=False)
        self._here_documents.read(node, first_line[-1].end_byte)
        for child in first_line:
            if child.type in WORD_NODES:
                late += self._words.words(child)
            elif child.type in REDIRECT_NODES:
                late += self._redirect(child)
            elif child.type not in ("<<", "<<-", "heredoc_start", "file_descriptor"):
                self._statements([child], node)
        return late
