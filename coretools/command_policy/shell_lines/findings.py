"""What has been found so far in a line that is being read, and the checks on variables, which need the whole line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from coretools.command_policy.shell_lines.line import (
    Assignment,
    OpaquePiece,
    ParsedLine,
    SimpleCommand,
    Span,
    Word,
)
from coretools.command_policy.shell_lines.names import (
    LOCALE_VARIABLE,
    PLAIN_LOCALE,
    PLAIN_NUMBER_VARIABLE,
    SPECIAL_VARIABLE,
)
from coretools.errors import CommandSyntax

MAX_DEPTH = 60
"""Groups and expansions nested in each other. Real lines have under ten; each level costs a few Python frames."""

MAX_COMMANDS = 1_000
"""Simple commands in a line. With rules each takes up to 0.4 ms to judge."""

UNKNOWN_NAME = "?"
"""Name of a variable that only the running shell knows."""

_PLAIN_NUMBER = re.compile(r"-?[0-9]*")
_NAME = re.compile(r"\w*|%\w+", re.ASCII)


@dataclass(slots=True)
class Findings:
    """Collects what a line may start."""

    source: bytes
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the caller sets for the shell, besides the line."""
    commands: list[tuple[Word, ...]] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    """Names of the functions that the line defines."""
    has_arrays: bool = False
    """Whether the line makes an array of a variable."""
    _declared: list[Span] = field(default_factory=list)
    """Where `declare` and `local` assign data."""
    _opaque: dict[tuple[int, int, str], None] = field(default_factory=dict)
    _arithmetic: dict[str, Span] = field(default_factory=dict)
    """Names whose values arithmetic reads, each with one place."""
    _depth: int = 0

    def text(self, start: int, end: int) -> str:
        """Return the text between two offsets."""
        return self.source[start:end].decode("utf-8", "replace")

    def add_opaque(self, reason: str, span: Span) -> None:
        """Note a piece that can't be judged."""
        self._opaque[(*span, reason)] = None

    def add_arithmetic(self, text: str, span: Span) -> None:
        """Note the names in an arithmetic expression."""
        lengths_removed = re.sub(r"\$\{#\w+\}", "", text)
        for name in re.findall(r"[A-Za-z_]\w*|(?<=\$)[0-9]|(?<=\{)[0-9]", lengths_removed):
            self._arithmetic.setdefault(name, span)

    def assign(self, name: str | None, value: str | None, span: Span, *, is_exported: bool = False) -> None:
        """Note that the line sets a variable. A name or value of None is unknown."""
        self.assignments.append(Assignment(name or UNKNOWN_NAME, value, is_exported))
        if name is None or not _NAME.fullmatch(name):
            self.add_opaque("it sets a variable whose name only the running shell knows", span)
        elif SPECIAL_VARIABLE.fullmatch(name):
            if not (PLAIN_NUMBER_VARIABLE.fullmatch(name) and _is_number(value)):
                self.add_opaque(f"setting {name} changes what bash starts or how it reads the line", span)
        else:
            self._check_locale(name, value, span)

    def _check_locale(self, name: str, value: str | None, span: Span) -> None:
        if LOCALE_VARIABLE.fullmatch(name) and (value is None or not PLAIN_LOCALE.fullmatch(value)):
            self.add_opaque(f"{name} may name a locale in which bash reads the line differently", span)

    def declare_data(self, name: str, span: Span, *, is_exported: bool) -> None:
        """Note that `declare` or `local` assigns data. To an array it would assign code: `declare -a x='($(...))'`."""
        self.assign(name, None, span, is_exported=is_exported)
        self._declared.append(span)

    def enter(self, at: int) -> None:
        """Go one level deeper.

        Raises:
            CommandSyntax: too deep.
        """
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CommandSyntax(
                f"the line nests more than {MAX_DEPTH} groups and expansions at byte {at}; put the code in a file", at
            )

    def leave(self) -> None:
        """Go back up."""
        self._depth -= 1

    def result(self, line: str) -> ParsedLine:
        """Return all that was found, after the checks that need the whole line.

        Raises:
            CommandSyntax: too many commands.
        """
        if len(self.commands) > MAX_COMMANDS:
            raise CommandSyntax(f"the line has more than {MAX_COMMANDS} commands; put the code in a file", 0)
        self._check_arithmetic()
        for name, value in self.variables.items():
            self._check_locale(name, value, (0, len(self.source)))
        for span in self._declared if self.has_arrays else ():
            self.add_opaque("data that is assigned to an array may be code", span)
        return ParsedLine(
            line=line,
            commands=tuple(
                SimpleCommand(words, words[0].text in self.functions)
                for words in sorted(self.commands, key=lambda words: words[0].start)
            ),
            opaque=tuple(OpaquePiece(why, start, self.text(start, end)) for start, end, why in self._opaque),
            assignments=tuple(self.assignments),
        )

    def _check_arithmetic(self) -> None:
        """Arithmetic runs `$(...)` in the value of a name, so each value must be a plain number."""
        data = {assigned.name for assigned in self.assignments if not _is_number(assigned.value)}
        data |= {name for name, value in self.variables.items() if not _is_number(value)}
        for name, span in self._arithmetic.items():
            is_special = SPECIAL_VARIABLE.fullmatch(name) and not PLAIN_NUMBER_VARIABLE.fullmatch(name)
            if name in data or is_special or name.isdigit():
                self.add_opaque(f"arithmetic evaluates the value of {name}, which may hold code", span)


def _is_number(value: str | None) -> bool:
    return value is not None and _PLAIN_NUMBER.fullmatch(value) is not None
