"""Turn a command line into argv and back, by the quoting rules of a shell.

Pure. Quotes and backslashes mean what they mean to sh (or to a Windows program). Nothing is expanded: `$HOME`, `~` and
`*` are ordinary words. Shell operators (`|`, `&&`, `>`, ...) are refused with an alternative, because models write such
lines by habit and would take a literal `|` for a pipe.
"""

import re
from collections.abc import Sequence
from typing import Literal

from coretools.errors import CommandSyntax

Rules = Literal["posix", "windows"]

BLANKS = " \t\n\r"
"""Separators of words. A line break does not separate commands here, so it is a blank like the others."""

POSIX_OPERATORS = (";", "&&", "&", "||", "|", ">>", ">", "<", "`", "$(")
"""Refused outside quotes; a longer operator precedes its prefix."""

WINDOWS_OPERATORS = ("&&", "&", "||", "|", ">>", ">", "<")
"""The same for cmd.exe."""

_POSIX_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")
"""What a POSIX shell takes literally, except a first word that is an assignment or a reserved word."""

_POSIX_RESERVED = frozenset(("case", "do", "done", "elif", "else", "esac", "fi", "for", "if", "then", "until", "while"))
"""Reserved first words (POSIX, Shell Command Language 2.4); `!`, `{` and `}` are never safe."""

_POSIX_PLAIN = re.compile(r"""[^ \t\n\r'"\\;&|<>`$]+""")
_POSIX_PLAIN_IN_QUOTES = re.compile(r'[^"\\]+')
"""Runs of ordinary characters, matched at once: one character at a time costs a microsecond each."""

LONGEST = 2 * 1024 * 1024
"""Most characters of a line: what Linux accepts in all (execve(2), with the usual stack); other systems accept less."""

_ESCAPED_IN_QUOTES = '$`"\\'
"""What a backslash escapes between double quotes (POSIX, Shell Command Language 2.2.3); else it is literal."""


def split(line: str, *, rules: Rules = "posix") -> list[str]:
    """The words of a command line.

    "posix": single quotes, double quotes and backslash as in sh (POSIX, Shell Command Language 2.2). "windows": double
    quotes and backslash as in Microsoft's C runtime since 2008; the first word follows the same rules.

    Raises:
        CommandSyntax: an unclosed quote, a backslash at the end, a shell operator outside quotes, a NUL, no word at
            all, or more characters than any system accepts.
    """
    if len(line) > LONGEST:
        raise CommandSyntax(
            f"the command has {len(line)} characters; {LONGEST} is the most. Pass the data in a file or on stdin",
            LONGEST,
        )
    position = line.find("\0")
    if position >= 0:
        raise CommandSyntax(f"NUL character at position {position}; no argument can hold one", position)
    words = _PosixSplitter(line).words() if rules == "posix" else _WindowsSplitter(line).words()
    if not words:
        raise CommandSyntax("the command is empty; name a program", 0)
    return words


def words(argv: Sequence[str]) -> list[str]:
    """Words given one by one, taken literally.

    Raises:
        CommandSyntax: no word at all, an empty first one, a NUL, or more characters than any system accepts.
    """
    if not argv or not argv[0]:
        raise CommandSyntax("the command has no program; its first word names one", 0)
    if any("\0" in word for word in argv):
        raise CommandSyntax("a word of the command holds a NUL, which no argument can", 0)
    if sum(len(word) + 1 for word in argv) > LONGEST:
        raise CommandSyntax(f"the command has more than {LONGEST} characters; pass data on stdin", LONGEST)
    return list(argv)


def join(argv: Sequence[str], *, rules: Rules = "posix") -> str:
    """The command line whose words are `argv`: the inverse of `split`, and safe to pass to a shell with these rules.

    Raises:
        CommandSyntax: a word contains a NUL.
    """
    if rules == "windows":
        words = [_quoted_windows(word) for word in argv]
    else:
        words = [_quoted_posix(word, is_first=at == 0) for at, word in enumerate(argv)]
    line = " ".join(words)
    position = line.find("\0")
    if position >= 0:
        raise CommandSyntax("NUL character in a word; no argument can hold one", position)
    return line


split_command_line, join_command_line = split, join  # their public names


class _PosixSplitter:
    """One pass over a line by POSIX rules."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0
        self._word: list[str] | None = None
        """Pieces of the word being read; None between words (an empty list is an empty word: '')."""
        self._words: list[str] = []

    def words(self) -> list[str]:
        """All words of the line."""
        while self._at < len(self._line):
            character = self._line[self._at]
            if character in BLANKS:
                self._end_word()
                self._at += 1
            elif character == "'":
                self._single_quotes()
            elif character == '"':
                self._double_quotes()
            elif character == "\\":
                self._backslash()
            elif match := _POSIX_PLAIN.match(self._line, self._at):
                self._add(match[0], length=len(match[0]))
            else:
                _refuse_operator(self._line, self._at, POSIX_OPERATORS, instead="sh -c '...'")
                self._add(character)
        self._end_word()
        return self._words

    def _add(self, text: str, *, length: int = 1) -> None:
        """Add text to the word and step over `length` characters of the line."""
        if self._word is None:
            self._word = []
        self._word.append(text)
        self._at += length

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append("".join(self._word))
            self._word = None

    def _single_quotes(self) -> None:
        end = self._line.find("'", self._at + 1)
        if end < 0:
            raise _never_closed("'", self._at)
        self._add(self._line[self._at + 1 : end], length=end + 1 - self._at)

    def _double_quotes(self) -> None:
        opened = self._at
        self._add("")
        while self._at < len(self._line):
            character = self._line[self._at]
            following = self._line[self._at + 1 : self._at + 2]
            if character == '"':
                self._at += 1
                return
            if match := _POSIX_PLAIN_IN_QUOTES.match(self._line, self._at):
                self._add(match[0], length=len(match[0]))
            elif character == "\\" and following == "\n":
                self._at += 2
            elif character == "\\" and following and following in _ESCAPED_IN_QUOTES:
                self._add(following, length=2)
            else:
                self._add(character)
        raise _never_closed('"', opened)

    def _backslash(self) -> None:
        following = self._line[self._at + 1 : self._at + 2]
        if not following:
            raise CommandSyntax(
                f"backslash at the end (position {self._at}) escapes nothing; write \\\\ for a backslash", self._at
            )
        if following == "\n":  # a continued line: both disappear, the word goes on
            self._at += 2
        else:
            self._add(following, length=2)


class _WindowsSplitter:
    """One pass over a line by the rules of Microsoft's C runtime ("Parsing C command-line arguments")."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0
        self._opened: int | None = None
        """Position of the open quote, if any."""
        self._pieces: list[str] = []

    def words(self) -> list[str]:
        """All words of the line."""
        words = []
        while self._at < len(self._line):
            if self._line[self._at] in BLANKS:
                self._at += 1
            else:
                words.append(self._one_word())
        return words

    def _one_word(self) -> str:
        self._pieces = []
        while self._at < len(self._line):
            character = self._line[self._at]
            if character in BLANKS and self._opened is None:
                break
            if character == "\\":
                self._backslashes()
            elif character == '"':
                self._quote()
            else:
                self._plain(character)
        if self._opened is not None:
            raise _never_closed('"', self._opened)
        return "".join(self._pieces)

    def _backslashes(self) -> None:
        """A run of backslashes: literal, except before a quote, where each pair is one and an odd one escapes it."""
        start = self._at
        while self._line.startswith("\\", self._at):
            self._at += 1
        length = self._at - start
        if not self._line.startswith('"', self._at):
            self._pieces.append("\\" * length)
            return
        self._pieces.append("\\" * (length // 2))
        if length % 2:
            self._pieces.append('"')
            self._at += 1

    def _quote(self) -> None:
        if self._opened is None:
            self._opened = self._at
        elif self._line.startswith('""', self._at):  # doubled inside quotes: one literal quote
            self._pieces.append('"')
            self._at += 1
        else:
            self._opened = None
        self._at += 1

    def _plain(self, character: str) -> None:
        if self._opened is None:
            _refuse_operator(self._line, self._at, WINDOWS_OPERATORS, instead='cmd /c "..."')
        self._pieces.append(character)
        self._at += 1


def _refuse_operator(line: str, position: int, operators: Sequence[str], *, instead: str) -> None:
    for operator in operators:
        if line.startswith(operator, position):
            raise CommandSyntax(
                f"{operator} at position {position}: no shell reads this line. Make separate calls, or run a shell by"
                f" name ({instead}); quote the word if the character is meant as it stands",
                position,
            )


def _never_closed(quote: str, position: int) -> CommandSyntax:
    return CommandSyntax(f"the quote {quote} at position {position} is never closed", position)


def _quoted_posix(word: str, *, is_first: bool) -> str:
    is_shells = is_first and ("=" in word or word in _POSIX_RESERVED)
    if word and not is_shells and _POSIX_SAFE.issuperset(word):
        return word
    # Between single quotes only the quote itself is special: close, add it in double quotes, open again.
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _quoted_windows(word: str) -> str:
    special = (*BLANKS, '"', *(operator[0] for operator in WINDOWS_OPERATORS))
    if word and not any(character in word for character in special):
        return word
    pieces = ['"']
    backslashes = 0
    for character in word:
        if character == "\\":
            backslashes += 1
            continue
        # Backslashes count only before a quote: there each is doubled, and one more escapes the quote.
        pieces.append("\\" * (2 * backslashes + 1 if character == '"' else backslashes) + character)
        backslashes = 0
    return "".join(pieces) + "\\" * (2 * backslashes) + '"'
