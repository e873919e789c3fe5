"""Words as bash builds them: quoted, unquoted and unknown pieces, and brace expansion.

Each character of a word has a mark beside it, so that a quoted `*` or `{` is told from one that means something.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

from coretools.command_policy.shell_lines.line import Kind

MAX_BRACE_WORDS = 256
"""Words that the braces of one word may expand to; beyond, the words count as unknown."""

PLAIN, QUOTED, UNKNOWN, EMPTY = "p", "q", "u", "e"
"""Marks: an unquoted and a quoted character, an expansion, and quotes, which make a word even if nothing is in them."""

_NO_CHARACTER = "\0"
"""Stands beside the marks of pieces without text; a line can't hold it."""

_ESCAPES = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_ANSI_PIECE = re.compile(
    r"\\(?:(?P<name>[abeEfnrtv\\'\"?])|(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})"
    r"|[uU](?P<unicode>[0-9a-fA-F]{1,8}))|(?P<text>[^\\]+)|(?P<bad>\\)"
)


@dataclass(frozen=True, slots=True)
class Pieces:
    """The characters of a word and their marks, both of the same length."""

    text: str = ""
    marks: str = ""

    def __add__(self, other: "Pieces") -> "Pieces":
        return Pieces(self.text + other.text, self.marks + other.marks)

    def __getitem__(self, part: slice) -> "Pieces":
        return Pieces(self.text[part], self.marks[part])

    def plain_at(self, characters: str, start: int = 0) -> int:
        """Return the index of the first of these characters that is not quoted, or -1."""
        matches = re.compile(f"[{re.escape(characters)}]").finditer(self.text, start)
        return next((match.start() for match in matches if self.marks[match.start()] == PLAIN), -1)

    @property
    def is_bare(self) -> bool:
        """Whether nothing in it is quoted or expanded."""
        return set(self.marks) <= {PLAIN}

    @property
    def value(self) -> str:
        """The text without quotes."""
        return self.text.replace(_NO_CHARACTER, "")

    @property
    def kind(self) -> Kind:
        """Whether the value is what the program gets."""
        if UNKNOWN in self.marks or self._has_tilde():
            return "dynamic"
        return "literal" if self.plain_at("*?[") < 0 else "pattern"

    def _has_tilde(self) -> bool:
        """Whether a `~` may stand for a directory: at the start, and after = and : in what looks like an assignment."""
        at = self.plain_at("~")
        while at >= 0:
            if at == 0 or self.text[at - 1] in "=:":
                return True
            at = self.plain_at("~", at + 1)
        return False


UNKNOWN_PIECE = Pieces(_NO_CHARACTER, UNKNOWN)
EMPTY_PIECE = Pieces(_NO_CHARACTER, EMPTY)


def quoted(text: str) -> Pieces:
    """Return quoted text."""
    return EMPTY_PIECE + Pieces(text, QUOTED * len(text))


def unquoted(text: str) -> Pieces:
    """Return text outside quotes, its backslashes removed."""
    pieces = Pieces()
    for match in re.finditer(r"\\(.)|([^\\]+)", text, re.DOTALL):
        pieces += quoted(match[1]) if match[2] is None else Pieces(match[2], PLAIN * len(match[2]))
    return pieces


def double_quoted(text: str) -> Pieces:
    """Return the text between double quotes that hold no expansion."""
    return quoted(re.sub(r"\\([\\$`\"\n])", lambda match: match[1].strip("\n"), text))


def ansi_quoted(text: str) -> Pieces:
    """Return the text of `$'...'`. What depends on the locale, ends the string or is a control key is unknown."""
    pieces = EMPTY_PIECE
    for match in _ANSI_PIECE.finditer(text):
        if match["text"] is not None:
            pieces += quoted(match["text"])
        elif match["name"] is not None:
            pieces += quoted(_ESCAPES[match["name"]])
        else:
            pieces += _coded_character(match)
    return pieces


def _coded_character(match: re.Match[str]) -> Pieces:
    digits = match["hex"] or match["unicode"]
    code = int(match["octal"], 8) if match["octal"] else int(digits or "0", 16)
    return quoted(chr(code)) if 0 < code < 127 and match["bad"] is None else UNKNOWN_PIECE


def expand_braces(word: Pieces) -> list[Pieces]:
    """Return the words that a word with braces stands for; a sequence, or anything out of the ordinary, is unknown."""
    done: list[Pieces] = []
    pending = [word]
    while pending:
        if len(pending) + len(done) > MAX_BRACE_WORDS:
            return [UNKNOWN_PIECE]
        current = pending.pop()
        alternatives = _first_alternatives(current)
        if alternatives is None:
            return [UNKNOWN_PIECE]
        if alternatives:
            pending += alternatives[::-1]
        else:
            done.append(current)
    return done


def _first_alternatives(word: Pieces) -> list[Pieces] | None:
    """Expand the first braces; an empty list if there are none, None if it is uncertain what bash makes of them."""
    if word.plain_at("{") < 0:
        return []
    if word.plain_at(",") < 0:  # `{}` and the like are plain text
        return None if re.search(r"\.\.", word.text) else []
    start = word.plain_at("{")
    cuts = _cuts(word, start)
    if len(cuts) < 3:  # a brace that isn't closed, or has no comma: bash has rules of its own for these
        return None
    return [word[:start] + word[left + 1 : right] + word[cuts[-1] + 1 :] for left, right in pairwise(cuts)]


def _cuts(word: Pieces, start: int) -> list[int]:
    """Return the positions of a brace, its commas, and the brace that closes it; empty if none does."""
    level, cuts, at = 0, [start], start
    while at >= 0:
        character = word.text[at]
        level += (character == "{") - (character == "}")
        if level == 0:
            return [*cuts, at]
        if character == "," and level == 1:
            cuts.append(at)
        at = word.plain_at("{},", at + 1)
    return []
