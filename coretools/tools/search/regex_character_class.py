"""Escapes and `[...]` of the pattern language of `search_text`: characters, and sets of them, for both engines. Pure.

`[...]` in a glob or an ignore file is another language: `coretools.roots.path_globs`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from coretools.roots.path_globs import POSIX_CLASSES

Refuse = Callable[[int, str], NoReturn]
"""Raises the error for what stands at a position of the pattern."""

_SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~")
"""Characters that both engines take literally after a backslash."""

_CONTROLS = {"t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}

_PROPERTY = re.compile(r"\\[pP](?:[A-Za-z]|\{[A-Za-z][A-Za-z0-9_ =:-]*\})")
_NUMBER = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xuU]\{([0-9A-Fa-f]{1,8})\})")
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")

FOUR_I = "iI\u0130\u0131"
"""`i` with and without a dot. Ignoring case, `regex` takes all four as one letter; ripgrep, by Unicode's simple case
folding, takes the first two as one and each of the others by itself."""

NOT_TEXT = r"\udc80-\udcff"
"""The lone surrogates that stand for bytes that are not UTF-8."""


@dataclass(frozen=True, slots=True)
class CharacterClass:
    """A set of characters. Never matches LF, nor (in `strict`) bytes that are not UTF-8."""

    members: str
    negated: bool = False
    wide: bool = False
    """Contains characters that are not listed (`\\W`, a long range): LF and bytes may be among them."""
    properties: bool = False
    """Contains `\\p{...}`, for which the engines fold cases differently."""

    @property
    def own(self) -> str:
        """For `regex`."""
        return self._without(r"\n")

    @property
    def strict(self) -> str:
        """For `regex` and a text with bytes that are not UTF-8."""
        return self._without(r"\n" + NOT_TEXT)

    def ripgrep(self, *, loose: bool) -> str:
        """For ripgrep. `loose`: letters match in both cases, and the set has at least what `regex` matches."""
        if loose and self.properties:
            return "."
        if self.negated:
            return f"[^{self.members}]"
        return f"[{self.members}{FOUR_I if loose else ''}]"

    def _without(self, left_out: str) -> str:
        if self.negated:
            return f"[^{self.members}{left_out}]"
        return f"(?:(?![{left_out}])[{self.members}])" if self.wide else f"[{self.members}]"


_SETS = {
    "d": CharacterClass(r"\d"),
    "w": CharacterClass(r"\w"),
    # Unbounded sets are written as complements, so that LF can be excluded without a look-ahead.
    "D": CharacterClass(r"\d", negated=True),
    "W": CharacterClass(r"\w", negated=True),
    "s": CharacterClass(r"\S", negated=True),
    "S": CharacterClass(r"\s", negated=True),
}


def escaped(character: str) -> str:
    """A character that stands for itself, in both engines, inside brackets and outside."""
    return "\\" + character if character in _SPECIAL else character


def read_escape(text: str, at: int, refuse: Refuse) -> tuple[str | CharacterClass, int]:
    """Return what an escape stands for, and where it ends."""
    character = text[at + 1 : at + 2]
    if character in _SETS:
        return _SETS[character], at + 2
    if character in _CONTROLS:
        return _CONTROLS[character], at + 2
    if character in ("p", "P"):
        match = _PROPERTY.match(text, at)
        if match is None:
            refuse(at, "a property is written \\pL or \\p{Name}")
        return CharacterClass(match[0], wide=True, properties=True), match.end()
    if character in ("x", "u", "U"):
        return _numbered(text, at, refuse)
    problem = _problem(character)
    if problem is not None:
        refuse(at, problem)
    return character, at + 2


def _problem(character: str) -> str | None:
    """Why a character after a backslash stands for nothing; None for a sign that stands for itself."""
    if not character:
        return "a backslash stands at the end; write two for the character"
    if character == "n":
        return "a line break never matches: files are searched line by line"
    if character in "kg0123456789":
        return "back-references are not supported: a pattern takes time linear in the text"
    if character in "AzZ":
        return f"\\{character} is not known; ^ and $ are the start and the end of a line"
    if character in "<>":
        return f"\\{character} is not known; \\b is the edge of a word"
    return f"\\{character} is not known" if character.isascii() and character.isalnum() else None


def _numbered(text: str, at: int, refuse: Refuse) -> tuple[str, int]:
    match = _NUMBER.match(text, at)
    code = int("".join(match.groups("")), 16) if match else -1
    if match is None or code > 0x10FFFF:
        refuse(at, "a character by number is written \\x7F, \\u00E9 or \\u{1F600}")
    return chr(code), match.end()


def read_class(text: str, at: int, refuse: Refuse) -> tuple[CharacterClass, int]:
    """The set of characters between the bracket at `at` and its end, and where it ends."""
    start = at
    negated = text.startswith("^", at + 1)
    at += 1 + negated
    members: list[CharacterClass] = []
    # A bracket directly at the start is a member, not the end.
    while not members or not text.startswith("]", at):
        if at >= len(text):
            refuse(start, "a set of characters is not closed; write \\[ for the character")
        member, at = _member(text, at, refuse)
        members.append(member)
    return CharacterClass(
        "".join(member.members for member in members),
        negated=negated,
        wide=any(member.wide for member in members),
        properties=any(member.properties for member in members),
    ), at + 1


def _member(text: str, at: int, refuse: Refuse) -> tuple[CharacterClass, int]:
    """A character, a range, or a named set within brackets, and where it ends."""
    first, following = _item(text, at, refuse)
    if isinstance(first, CharacterClass):
        return first, following
    if not text.startswith("-", following) or text[following + 1 : following + 2] in ("", "]"):
        return CharacterClass(escaped(first)), following
    last, end = _item(text, following + 1, refuse)
    if isinstance(last, CharacterClass) or last < first:
        refuse(at, "a range ends with a character that is not above its first")
    return CharacterClass(f"{escaped(first)}-{escaped(last)}", wide=first <= "\n" or last >= "\ud800"), end


def _item(text: str, at: int, refuse: Refuse) -> tuple[str | CharacterClass, int]:
    character = text[at]
    if character in "&-~" and text.startswith(character, at + 1):
        refuse(at, "operations on sets are not supported; write \\ before the character")
    match = _POSIX_CLASS.match(text, at)
    if match is not None:
        if match[1] or match[2] not in POSIX_CLASSES:
            refuse(at, f"{match[0]} is not known; there are [:{':] [:'.join(POSIX_CLASSES)}:]")
        return CharacterClass(POSIX_CLASSES[match[2]]), match.end()
    item: str | CharacterClass
    item, end = read_escape(text, at, refuse) if character == "\\" else (character, at + 1)
    if isinstance(item, CharacterClass):
        return (CharacterClass(text[at:end], wide=True) if item.negated else item), end
    if item in "\0\n" or "\ud800" <= item <= "\udfff":
        refuse(at, "NUL, line breaks and lone surrogates stand in no line")
    return item, end
