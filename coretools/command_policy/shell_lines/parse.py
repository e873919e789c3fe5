"""Read a shell line, after telling in a few microseconds whether a line needs a shell at all."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from coretools.command_policy.shell_lines.findings import Findings
from coretools.command_policy.shell_lines.grammar import encode, parse_tree
from coretools.command_policy.shell_lines.line import UNREADABLE, ParsedLine
from coretools.command_policy.shell_lines.names import CODE_BUILTINS, RESERVED, STATE_BUILTINS
from coretools.command_policy.shell_lines.statements import StatementReader

_PROGRAMS_TOO = frozenset(("true", "false", "test", "["))
_SHELL_WORDS = (RESERVED | CODE_BUILTINS | STATE_BUILTINS | {"time", "command", "builtin", "exec", ":"}) - _PROGRAMS_TOO
"""First words that only a shell has, or that mean something else there."""

_PLAIN = re.compile(
    r"""
    [ \t\r\n]*+
    (?>(?:
        [^ \t\r\n'"\\;&|<>`$*?\[(){}\#~]++   # text that means the same to a program
      | [ \t\r]++
      | '[^']*+'
      | "(?>(?:[^"\\$`]++|\\.)*)"
      | \\.
      | (?<=[^\s])\#                    # no comment within a word
      | (?<=[^\s=:])~                   # HEAD~1
      | \{[^\s'"\\,.{}$`;&|<>*?\[()]*+\}   # {} and stash@{0}: neither a list nor a sequence
    )*)
    [ \t\r\n]*+
    """,
    re.VERBOSE | re.DOTALL,
)
_FIRST_WORD = re.compile(r"[ \t\r\n]*+([^\s'\"\\]*+)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\+?=|\[)")


def needs_shell(line: str) -> bool:
    """Whether bash would do more with a line than start one program with the words as they stand.

    True also for a line with an unclosed quote.
    """
    if _PLAIN.fullmatch(line) is None:
        return True
    match = _FIRST_WORD.match(line)
    first = match[1] if match is not None else ""
    return first in _SHELL_WORDS or _ASSIGNMENT.match(first) is not None


def parse_line(line: str, variables: Mapping[str, str] = MappingProxyType({})) -> ParsedLine:
    """Return every simple command that a bash line may start, and the pieces that can't be judged.

    `variables` are those that the caller sets for the shell: arithmetic evaluates their values.
    Takes well under a millisecond for most lines, and up to half a second for a hostile one. The parser holds the
    interpreter's lock, so other threads wait too.

    Raises:
        CommandSyntax: the line exceeds a limit, holds a character that no line can hold, or names no program.
    """
    source = encode(line)
    root = parse_tree(source)
    findings = Findings(source, variables)
    if root.has_error:
        findings.add_opaque(UNREADABLE, (0, len(source)))
    else:
        StatementReader(findings).line(root)
    return findings.result(line)
