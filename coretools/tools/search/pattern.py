"""The pattern language of `search_text`, translated for two engines: the `regex` module and ripgrep. Pure.

A pattern is parsed here, and what has the same meaning in both engines is written for each. The rest (look-around,
back-references, what only one engine supports) is refused by name, so an invalid pattern is the same error whatever is
installed.

The pattern for ripgrep may match more than the other, never less: the files it finds are matched again.
"""

import re
from dataclasses import dataclass
from typing import NoReturn, Protocol

import regex

from coretools.errors import InvalidArguments
from coretools.tools.search.regex_character_class import (
    FOUR_I,
    NOT_TEXT,
    CharacterClass,
    escaped,
    read_class,
    read_escape,
)

CHARACTERS = 500
"""Longest pattern. The `regex` module builds a table for a literal in time cubic in its length, ignoring its time limit
and holding the interpreter's lock: 2,000 characters, ignoring case, took 4.3 s; 500 take 0.07 s."""

DEPTH = 100
"""Deepest nesting of groups; the limits of both engines are higher."""

REPEATS = 1_000
"""Most counted repetitions, nested ones multiplied: ripgrep expands all of them, up to 10 MB of program."""

_QUANTIFIER = re.compile(r"[*+?]|\{(?P<least>\d{1,9})(?P<comma>,(?P<most>\d{1,9})?)?\}")
_GROUP = re.compile(r"\(\?(?:P?<[^\W\d]\w*>|(?P<on>[A-Za-z]*)(?:-(?P<off>[A-Za-z]+))?(?P<end>[:)]))")
_LINE_END = r"(?:\r?$)"
"""For ripgrep, which treats the CR of CRLF as part of the line. It consumes the CR, so assertions on the position after
`$` (`\\b`, `^`) must not be passed to ripgrep in a pattern with `$`."""

_ANYWHERE = "(?:)"
_FLAGS = frozenset("imsu")


class Searcher(Protocol):
    """The used part of a compiled pattern of the `regex` module."""

    def search(self, text: str, position: int = 0, /, *, timeout: float | None = None) -> re.Match[str] | None:
        """Find the first match from `position` on; raises TimeoutError after `timeout` seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for both engines."""

    compiled: Searcher
    """Matches within one line of a text with LF line ends."""
    strict: Searcher
    """The same for text in which lone surrogates stand for bytes that are not UTF-8; nothing matches them."""
    ripgrep: str


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the pattern: for `regex`, for `regex` on text with lone surrogates, and for ripgrep."""

    own: str
    strict: str
    ripgrep: str


def parse_pattern(text: str, *, literal: bool, ignore_case: bool) -> Pattern:
    """Parse a pattern; with `literal` every character is an ordinary one.

    Raises:
        InvalidArguments: empty, too long, invalid, or with a construct that linear matching within lines lacks.
    """
    if not text:
        raise InvalidArguments("pattern: is empty")
    if len(text) > CHARACTERS:
        raise InvalidArguments(f"pattern: has {len(text)} characters; the most is {CHARACTERS}")
    reader = _PatternParser(text, ignore_case=ignore_case)
    if literal:
        reader.literal()
    else:
        reader.expression()
    prefix = "(?i)" if reader.ignore_case else ""
    return Pattern(
        compiled=_compiled(prefix + "".join(piece.own for piece in reader.pieces)),
        strict=_compiled(prefix + "".join(piece.strict for piece in reader.pieces)),
        ripgrep=prefix + "".join(piece.ripgrep for piece in reader.pieces),
    )


def _compiled(pattern: str) -> Searcher:
    try:
        compiled: Searcher = regex.compile(pattern, regex.VERSION0 | regex.MULTILINE)
    except regex.error as error:
        # The parser rejects everything else; only unknown properties get here.
        raise InvalidArguments(f"pattern: {error.msg}") from None
    return compiled


class _PatternParser:
    """Parses a pattern in one pass."""

    def __init__(self, text: str, *, ignore_case: bool) -> None:
        self.pieces: list[_Piece] = []
        self.ignore_case = ignore_case
        self._text = text
        self._at = 0
        # Some letters match in both cases, and the case tables of the engines differ slightly.
        self._loose = ignore_case or re.search(r"\(\?[a-z]*i", text) is not None
        self._has_end = "$" in text
        # For the item before a quantifier: its counted repetitions so far, or None if it can't be repeated.
        self._repeated: int | None = None
        self._groups: list[int] = []
        self._most = 1

    def literal(self) -> None:
        """The text as it stands."""
        for character in self._text:
            self._add_character(character)
            self._at += 1

    def expression(self) -> None:
        """The text as a regular expression."""
        steps = {"\\": self._escape, "[": self._class, "(": self._open, ")": self._close}
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in "*+?{" and self._quantifier():
                continue
            if character in steps:
                steps[character]()
                continue
            if character in ".|^$":
                self._sign(character)
            else:
                self._add_character(character)
            self._at += 1
        if self._groups:
            self._refuse("a group is not closed; write \\( for the character")

    def _sign(self, sign: str) -> None:
        if sign == ".":
            self._add("[^\\n]", f"[^\\n{NOT_TEXT}]", ".", repeated=1)
            return
        ripgrep = sign
        if sign == "$":
            ripgrep = _LINE_END
        elif sign == "^" and self._has_end:
            is_first = not self._groups and all(piece.own != "$" for piece in self.pieces)
            ripgrep = "^" if is_first else _ANYWHERE
        self._add(sign, sign, ripgrep, repeated=None)

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidArguments(f"pattern: {what} (at character {self._at + 1})", position=self._at)

    def _add(self, own: str, strict: str, ripgrep: str, *, repeated: int | None) -> None:
        self.pieces.append(_Piece(own, strict, ripgrep))
        self._repeated = repeated
        self._most = max(self._most, repeated or 1)

    def _add_character(self, character: str) -> None:
        if character == "\n":
            self._refuse("a line break never matches: files are searched line by line")
        if character == "\0" or "\ud800" <= character <= "\udfff":
            self._refuse("NUL and lone surrogates stand in no text")
        own = escaped(character)
        ripgrep = f"[{FOUR_I}]" if self._loose and character in FOUR_I else own
        self._add(own, own, ripgrep, repeated=1)

    def _add_class(self, characters: CharacterClass) -> None:
        self._add(characters.own, characters.strict, characters.ripgrep(loose=self._loose), repeated=1)

    def _class(self) -> None:
        characters, self._at = read_class(self._text, self._at, self._refuse_at)
        self._add_class(characters)

    def _escape(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following in ("b", "B"):
            self._at += 2
            own = "\\" + following
            # ripgrep 14 does not match \B next to bytes that are not UTF-8, ripgrep 13 does: any position is accepted.
            self._add(own, own, own if following == "b" and not self._has_end else _ANYWHERE, repeated=None)
            return
        meaning, end = read_escape(self._text, self._at, self._refuse_at)
        if isinstance(meaning, str):
            self._add_character(meaning)
        else:
            self._add_class(meaning)
        self._at = end

    def _refuse_at(self, position: int, what: str) -> NoReturn:
        self._at = position
        self._refuse(what)

    def _open(self) -> None:
        start = "(?:"
        if self._text.startswith("(?", self._at):
            group = self._special_group()
            self._at = group.end()
            if group["end"] == ")":
                self._leading_flags(group)
                return
            # Only the flag i affects matching within one line.
            if "i" in (group["off"] or ""):
                start = "(?-i:"
            elif "i" in (group["on"] or ""):
                start = "(?i:"
        else:
            self._at += 1
        if len(self._groups) == DEPTH:
            self._refuse(f"more than {DEPTH} groups in one another")
        self._add(start, start, start, repeated=None)
        self._groups.append(self._most)
        self._most = 1

    def _special_group(self) -> re.Match[str]:
        if self._text.startswith(("(?=", "(?!", "(?<=", "(?<!"), self._at):
            self._refuse("look-around is not supported: a pattern takes time linear in the text")
        if self._text.startswith("(?P=", self._at):
            self._refuse("back-references are not supported: a pattern takes time linear in the text")
        match = _GROUP.match(self._text, self._at)
        if match is None:
            self._refuse("this kind of group is not known; there are (...), (?:...), (?<name>...) and (?i:...)")
        if not _FLAGS.issuperset((match["on"] or "") + (match["off"] or "")):
            self._refuse("of the flags only i, m, s and u are known")
        return match

    def _leading_flags(self, group: re.Match[str]) -> None:
        """`(?i)` at the start applies to the whole pattern. Elsewhere the engines differ in its scope."""
        if self.pieces:
            self._refuse("flags in the middle reach differently far; write (?i:...) around what they are for")
        if "i" in group["on"]:
            self.ignore_case = True
        if "i" in (group["off"] or ""):
            self.ignore_case = False

    def _close(self) -> None:
        if not self._groups:
            self._refuse("a group is closed that was not opened; write \\) for the character")
        self._at += 1
        inside = self._most
        self._most = self._groups.pop()
        self._add(")", ")", ")", repeated=inside)

    def _quantifier(self) -> bool:
        """Parse a quantifier. False for a brace that is an ordinary character, as in `struct {`."""
        quantifier = _QUANTIFIER.match(self._text, self._at)
        if quantifier is None:
            return False
        if self._repeated is None:
            self._refuse("there is nothing to repeat; put a group around it, or a backslash before the sign")
        times = self._times(quantifier)
        if self._repeated * times > REPEATS:
            self._refuse(f"repeats more than {REPEATS} times by number")
        repeated = self._repeated * times
        end = quantifier.end() + self._text.startswith("?", quantifier.end())
        sign = self._text[self._at : end]
        self._add(sign, sign, sign, repeated=None)
        self._most = max(self._most, repeated)
        self._at = end
        return True

    def _times(self, quantifier: re.Match[str]) -> int:
        least = int(quantifier["least"] or 1)
        most = int(quantifier["most"] or least)
        if most < least:
            self._refuse("the repetition ends below its start")
        return max(least, most, 1)
