"""Read a simple command: what its program is, and what the words of builtins set or run."""

import re
from collections.abc import Callable
from dataclasses import replace

from coretools.command_policy.shell_lines.conditions import ConditionReader
from coretools.command_policy.shell_lines.findings import Findings
from coretools.command_policy.shell_lines.line import Word
from coretools.command_policy.shell_lines.names import (
    ASSIGNMENT_LIKE,
    CODE_BUILTINS,
    DATA_BUILTINS,
    DECLARING_BUILTINS,
    LOOKUP,
    NAMING_BUILTINS,
    RESERVED,
    SET_OPTION,
    SHOPT_WORD,
)
from coretools.command_policy.shell_lines.words import WordReader

Words = list[Word]

_ASSIGNED = re.compile(r"\"?([A-Za-z_]\w*)\+?=", re.ASCII)
_AWAITED = re.compile(r"-[nf]|[0-9%]\w*", re.ASCII)


class BuiltinReader:
    """Notes simple commands and reads the words of builtins."""

    def __init__(self, findings: Findings, words: WordReader) -> None:
        self._findings = findings
        self._words = words
        self._conditions = ConditionReader(findings, words)
        self._readers: dict[str, Callable[[Word, Words], None]] = {
            "set": self._set,
            "shopt": self._shopt,
            "printf": self._printf,
            "test": self._test,
            "[": self._test,
            "exec": self._exec,
            "wait": self._wait,
        }

    def command(self, words: Words) -> None:
        """Note a simple command."""
        while words:
            first = words[0]
            self._program(first)
            rest = self._after_time(words) if self._is_reserved_time(words) else self._after_lookup(words)
            if rest is None:
                self._findings.commands.append(tuple(words))
                self._builtin(first.text or "", words)
                return
            words = rest

    def _program(self, first: Word) -> None:
        """Check the word that names the program."""
        if first.text is None:
            self._findings.add_opaque("the program is known only when the line runs", first.span)
        elif ASSIGNMENT_LIKE.match(self._findings.text(*first.span)):
            self._findings.add_opaque("an assignment or a program", first.span)
        elif first.is_bare and first.text in RESERVED:
            self._findings.add_opaque(f"{first.text} is syntax that the grammar takes for a program", first.span)

    def _is_reserved_time(self, words: Words) -> bool:
        """Whether this may be the reserved word: not behind a pipe, and with another option than `-p` it is no use."""
        first, rest = words[0], _without_options(words[1:])
        before = self._findings.source[: first.start].rstrip()
        is_piped = before.endswith((b"|", b"|&")) and not before.endswith(b"||")
        has_option = bool(rest) and (rest[0].text or "").startswith("-")
        return first.text == "time" and first.is_bare and not is_piped and not has_option

    def _after_time(self, words: Words) -> Words:
        """Return the command after the reserved word `time`."""
        rest = _without_options(words[1:])
        if rest and (rest[0].text is None or re.match(r"[!{]|\w+\+?=", rest[0].text)):
            self._findings.add_opaque("time before more than a plain command", words[0].span)
        return rest

    def _after_lookup(self, words: Words) -> Words | None:
        """Return the command after `command` or `builtin`, which only say where to look for it; None without them."""
        first = words[0]
        if first.text not in ("command", "builtin"):
            return None
        rest = _without_options(words[1:])
        following = rest[0].text if rest else ""
        if following is None or following.startswith("-"):
            if following is None or first.text == "builtin" or not LOOKUP.fullmatch(following):
                self._findings.add_opaque(f"{first.text} with unknown words", first.span)
            return None  # `command -v NAME` only tells where a program is
        return [replace(rest[0], is_bare=False), *rest[1:]] if rest else []

    def _builtin(self, name: str, words: Words) -> None:
        """Check the words of a builtin that sets variables or runs code."""
        first, rest = words[0], words[1:]
        if name in CODE_BUILTINS:
            self._findings.add_opaque(
                f"{name} runs its words as code, or changes what later words mean", (first.start, words[-1].end)
            )
        elif name in self._readers:
            self._readers[name](first, rest)
        elif name in NAMING_BUILTINS:
            self._names(name, first, rest)

    def _test(self, first: Word, rest: Words) -> None:
        self._conditions.check(rest[:-1] if first.text == "[" else rest, evaluates=False)

    def _shopt(self, first: Word, rest: Words) -> None:
        if not all(word.text is not None and SHOPT_WORD.fullmatch(word.text) for word in rest):
            self._findings.add_opaque("shopt changes how bash reads words", first.span)

    def _set(self, first: Word, rest: Words) -> None:
        """Check the options of `set`; what follows `--` is data for the positional parameters."""
        for word in rest:
            if word.text in ("--", "-"):
                return
            if word.text is None or not SET_OPTION.fullmatch(word.text):
                self._findings.add_opaque("set changes how bash reads or runs the line", first.span)
                return

    def _printf(self, first: Word, rest: Words) -> None:
        option = rest[0].text if rest else ""
        if option is not None and not option.startswith("-v"):
            return
        target = option and option[2:]
        if option == "-v":
            target = rest[1].text if len(rest) > 1 else None
        self._findings.assign(target, None, first.span)

    def _exec(self, first: Word, rest: Words) -> None:
        if any(word.text is None for word in rest[:2]):
            self._findings.add_opaque("exec with unknown words", first.span)

    def _names(self, name: str, first: Word, rest: Words) -> None:
        """Note the variables that a builtin names."""
        options = "".join(word.text[1:] for word in rest if word.text is not None and word.text[:1] in ("-", "+"))
        if set(options) & set(NAMING_BUILTINS[name]):
            self._findings.add_opaque(f"{name} -{options} evaluates values or runs code", first.span)
        self._findings.has_arrays |= not set(options).isdisjoint("aA")
        is_exported = name == "export" or "x" in options
        for word in rest:
            if word.text is None:
                self._unknown_name(name, word, is_exported=is_exported)
            elif word.text[:1] not in ("-", "+"):
                self._known_name(name, word.text, first, is_exported=is_exported)

    def _known_name(self, name: str, text: str, first: Word, *, is_exported: bool) -> None:
        target, equals, value = text.partition("=")
        if value.startswith("("):
            self._findings.add_opaque(f"{name} reads a quoted array as code", first.span)
        is_data = name in DATA_BUILTINS or not equals
        self._findings.assign(
            target.rstrip("+"), None if is_data else value, first.span, is_exported=is_exported and not is_data
        )

    def _unknown_name(self, name: str, word: Word, *, is_exported: bool) -> None:
        """Note a word with an expansion: the name is known in `export NAME=$x`."""
        match = _ASSIGNED.match(self._findings.text(*word.span))
        if match is None or name not in DECLARING_BUILTINS:
            self._findings.assign(None, None, word.span)
        elif name == "export":
            self._findings.assign(match[1], None, word.span, is_exported=True)
        else:
            self._findings.declare_data(match[1], word.span, is_exported=is_exported)

    def _wait(self, first: Word, rest: Words) -> None:
        """Check `wait`, which sets a variable with `-p`."""
        for word in rest:
            if word.text is None:
                self._words.arithmetic(self._findings.text(*word.span).strip('"'), word.span)
            elif not _AWAITED.fullmatch(word.text):
                self._findings.add_opaque("wait may set a variable", first.span)


def _without_options(words: Words) -> Words:
    """Return the words after `-p` and `--`."""
    while words and words[0].text in ("-p", "--"):
        words = words[1:]
    return words
