"""Read `[ ... ]`, which takes words like a program, and `[[ ... ]]`, which is syntax with arithmetic in it."""

import re
from typing import TYPE_CHECKING

from coretools.command_policy.shell_lines.findings import Findings
from coretools.command_policy.shell_lines.line import Word
from coretools.command_policy.shell_lines.words import WORD_NODES, WordReader

if TYPE_CHECKING:
    from tree_sitter import Node

_COMPARISON = re.compile(r"-(?:eq|ne|lt|le|gt|ge)")
_OPERATOR = re.compile(r"-\w|[-=!<>&|)\]]")
_SINGLE = re.compile(r"\[[ \t].*[ \t]\]", re.DOTALL)
_DOUBLE = re.compile(r"\[\[[ \t\n].*[ \t\n)]\]\]", re.DOTALL)
"""With the blanks without which the brackets belong to words: `[a]` is a pattern for names of files."""

_SINGLE_BRACKET_TOKENS = frozenset(("[", "]", "=", "==", "!=", "!"))


class ConditionReader:
    """Reads the operands of conditions."""

    def __init__(self, findings: Findings, words: WordReader) -> None:
        self._findings = findings
        self._words = words

    def read(self, node: "Node") -> None:
        """Read one condition."""
        text = self._findings.text(*node.byte_range)
        is_single = not text.startswith("[[")
        if not (_SINGLE if is_single else _DOUBLE).fullmatch(text):
            self._findings.add_opaque("a condition that is not read here", node.byte_range)
        words: list[Word] = []
        pending, at = node.children[::-1], node.start_byte
        while pending:
            child = pending.pop()
            if child.type.endswith("_expression") and child.type != "brace_expression":
                pending += child.children[::-1]
                continue
            if self._findings.text(at, child.start_byte).strip(" \t" if is_single else " \t\n"):
                self._findings.add_opaque("bash may split these words differently", child.byte_range)
            at = child.end_byte
            words += self._operands(child, is_single=is_single)
        self.check(words[1:-1], evaluates=not is_single)

    def _operands(self, child: "Node", *, is_single: bool) -> list[Word]:
        text = self._findings.text(*child.byte_range)
        if child.type in WORD_NODES and text not in ("==", "=~"):
            return self._words.words(child) if is_single else [self._words.single(child)]
        if text in ("<", ">") and self._findings.text(child.end_byte, child.end_byte + 1) == "(":
            self._findings.add_opaque(f"{text}( starts a process", child.byte_range)
        if is_single and text not in _SINGLE_BRACKET_TOKENS and child.type != "test_operator":
            self._findings.add_opaque(f"{text} in [ ends the command in bash", child.byte_range)
        return [Word(text, "literal", *child.byte_range, is_bare=True)]

    def check(self, words: list[Word], *, evaluates: bool) -> None:
        """Check the operands of a condition. `evaluates`: numbers are arithmetic, as in `[[`."""
        for index, word in enumerate(words):
            if word.text is None:
                following = (words[index + 1].text or ".") if index + 1 < len(words) else "-"
                self._unknown(word, following, is_split=not evaluates)
            elif word.text in ("-v", "-R"):
                self._findings.add_opaque(f"{word.text} evaluates the name of a variable", word.span)
            elif evaluates and _COMPARISON.fullmatch(word.text):
                for other in words[max(0, index - 1) : index] + words[index + 1 : index + 2]:
                    self._number(other)

    def _unknown(self, word: Word, following: str, *, is_split: bool) -> None:
        """Check a word that only the running shell knows: it must not become an operator."""
        source = self._findings.text(*word.span)
        if not _OPERATOR.match(following):
            self._findings.add_opaque("a word of the condition may be an operator", word.span)
        elif is_split and not source.startswith('"') and source not in ("$?", "$#"):
            self._words.arithmetic(source, word.span)  # splits into words, `-v` and a name, unless it is a number

    def _number(self, word: Word) -> None:
        source = self._findings.text(*word.span)
        self._words.arithmetic(source.strip('"') if word.text is None else word.text, word.span)
