"""The pattern language of `search_text`, written once for two engines.

A pattern is read here, and what both engines mean alike is written out for each: for the `regex` module, and for
ripgrep. The rest (look-around, back-references, what only one of them knows) is refused by name before either sees it,
so an invalid pattern is the same error whatever is installed. Pure.

The text written for ripgrep may match more than the other, never less: what it finds is matched again.
"""

import re
from dataclasses import dataclass
from typing import NoReturn, Protocol

import regex

from coretools.errors import InvalidArguments
from coretools.tools.search.character_class import FOUR_I, NOT_TEXT, CharacterClass, escaped, read_class, read_escape

CHARACTERS = 500
"""Longest pattern. Our own engine builds a table for a literal in the cube of its length, deaf to its time limit and
with the interpreter's lock held: 2,000 characters without regard to case took 4.3 s, 500 take 0.07 s."""

DEPTH = 100
"""Groups within groups; both engines stop somewhere above."""

REPEATS = 1_000
"""Most repetitions by number, nested ones multiplied: ripgrep builds them all, 10 MB of program at most."""

_QUANTIFIER = re.compile(r"[*+?]|\{(?P<least>\d{1,9})(?P<comma>,(?P<most>\d{1,9})?)?\}")
_GROUP = re.compile(r"\(\?(?:P?<[^\W\d]\w*>|(?P<on>[A-Za-z]*)(?:-(?P<off>[A-Za-z]+))?(?P<end>[:)]))")
_LINE_END = r"(?:\r?$)"
"""For ripgrep, to which the CR of a CRLF is a part of the line. It consumes one, so what asks for the place behind `$`
(`\\b`, `^`) must not be asked of ripgrep in a pattern with `$`."""

_ANYWHERE = "(?:)"
_FLAGS = frozenset("imsu")


class Searcher(Protocol):
    """A compiled pattern of the `regex` module, as far as it is used."""

    def search(self, text: str, position: int = 0, /, *, timeout: float | None = None) -> re.Match[str] | None:
        """The first match from `position` on; TimeoutError after so many seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for both engines."""

    compiled: Searcher
    """Matches within one line of a text whose lines end with LF."""
    strict: Searcher
    """The same for text with bytes that are no UTF-8, as lone surrogates: nothing matches them."""
    ripgrep: str


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the pattern: for `regex`, for `regex` with lone surrogates about, and for ripgrep."""

    own: str
    strict: str
    ripgrep: str


def parse_pattern(text: str, *, literal: bool, ignore_case: bool) -> Pattern:
    """Read a pattern; with `literal` every character stands for itself.

    Raises:
        InvalidArguments: empty, too long, invalid, or with something that line-by-line linear matching does not have.
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
        # The reader lets nothing through but properties that do not exist.
        raise InvalidArguments(f"pattern: {error.msg}") from None
    return compiled


class _PatternParser:
    """Goes through a pattern once, from left to right."""

    def __init__(self, text: str, *, ignore_case: bool) -> None:
        self.pieces: list[_Piece] = []
        self.ignore_case = ignore_case
        self._text = text
        self._at = 0
        # Somewhere letters may match in both cases, where the engines' tables differ a little.
        self._loose = ignore_case or re.search(r"\(\?[a-z]*i", text) is not None
        self._has_end = "$" in text
        # What stands before a quantifier: how often it repeats by number already, or None if nothing can be repeated.
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

    def _add_class(self, found: CharacterClass) -> None:
        self._add(found.own, found.strict, found.ripgrep(loose=self._loose), repeated=1)

    def _class(self) -> None:
        found, self._at = read_class(self._text, self._at, self._refuse_at)
        self._add_class(found)

    def _escape(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following in ("b", "B"):
            self._at += 2
            own = "\\" + following
            # ripgrep 14 has no \B beside bytes that are no UTF-8, ripgrep 13 has: for it, any place may be one.
            self._add(own, own, own if following == "b" and not self._has_end else _ANYWHERE, repeated=None)
            return
        found, end = read_escape(self._text, self._at, self._refuse_at)
        if isinstance(found, str):
            self._add_character(found)
        else:
            self._add_class(found)
        self._at = end

    def _refuse_at(self, position: int, what: str) -> NoReturn:
        self._at = position
        self._refuse(what)

    def _open(self) -> None:
        start = "(?:"
        if self._text.startswith("(?", self._at):
            found = self._special_group()
            self._at = found.end()
            if found["end"] == ")":
                self._leading_flags(found)
                return
            # Of the flags only i changes what matches within one line.
            if "i" in (found["off"] or ""):
                start = "(?-i:"
            elif "i" in (found["on"] or ""):
                start = "(?i:"
        else:
            self._at += 1
        if len(self._groups) == DEPTH:
            self._refuse(f"more than {DEPTH} groups in one another")
        self._add(start, start, start, repeated=None)
        self._groups.append(self._most)
        self._most = 1

    def _special_group(self) -> re.Match[str]:
        self._refuse_other_groups()
        found = _GROUP.match(self._text, self._at)
        if found is None:
            self._refuse("this kind of group is not known; there are (...), (?:...), (?<name>...) and (?i:...)")
        if not _FLAGS.issuperset((found["on"] or "") + (found["off"] or "")):
            self._refuse("of the flags only i, m, s and u are known")
        return found

    def _refuse_other_groups(self) -> None:
        text = self._text
        if any(text.startswith(start, self._at) for start in ("(?=", "(?!", "(?<=", "(?<!")):
            self._refuse("look-around is not supported: a pattern takes time linear in the text")
        if text.startswith("(?P=", self._at):
            self._refuse("back-references are not supported: a pattern takes time linear in the text")

    def _leading_flags(self, found: re.Match[str]) -> None:
        """`(?i)` at the start speaks of the whole pattern. Elsewhere the engines differ in how far it reaches."""
        if self.pieces:
            self._refuse("flags in the middle reach differently far; write (?i:...) around what they are for")
        if "i" in found["on"]:
            self.ignore_case = True
        if "i" in (found["off"] or ""):
            self.ignore_case = False

    def _close(self) -> None:
        if not self._groups:
            self._refuse("a group is closed that was not opened; write \\) for the character")
        self._at += 1
        inside = self._most
        self._most = self._groups.pop()
        self._add(")", ")", ")", repeated=inside)

    def _quantifier(self) -> bool:
        """Take a quantifier. False for a brace that is none: it stands for itself, as in `struct {`."""
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None:
            return False
        if self._repeated is None:
            self._refuse("there is nothing to repeat; put a group around it, or a backslash before the sign")
        times = self._times(found)
        if self._repeated * times > REPEATS:
            self._refuse(f"repeats more than {REPEATS} times by number")
        repeated = self._repeated * times
        end = found.end() + self._text.startswith("?", found.end())
        sign = self._text[self._at : end]
        self._add(sign, sign, sign, repeated=None)
        self._most = max(self._most, repeated)
        self._at = end
        return True

    def _times(self, found: re.Match[str]) -> int:
        least = int(found["least"] or 1)
        most = int(found["most"] or least)
        if most < least:
            self._refuse("the repetition ends below its start")
        return max(least, most, 1)
