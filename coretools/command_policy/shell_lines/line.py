"""A shell line that has been read: its simple commands, assignments and redirects, and the pieces that can't be judged.

Positions are offsets in bytes of the line's UTF-8 form.
"""

from dataclasses import dataclass
from typing import Literal

UNREADABLE = "the grammar can't read the line"
"""Reason of the only piece of a line with a fault, or with a form that the grammar lacks."""

Kind = Literal["literal", "pattern", "dynamic"]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command as bash would pass it on."""

    text: str | None
    """None when only the running shell knows it; it may then be no word at all, or several."""
    kind: Kind
    """`pattern`: a glob; `dynamic`: an expansion."""
    start: int
    end: int
    is_bare: bool = False
    """Whether nothing in it is quoted, so that it can be a reserved word."""

    @property
    def span(self) -> Span:
        """Where it stands."""
        return self.start, self.end


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program or builtin with its words, wherever it stands in the line."""

    words: tuple[Word, ...]
    is_function: bool = False
    """Whether a function of the line has its name."""

    @property
    def known_argv(self) -> tuple[str, ...]:
        """The words before the first unknown one."""
        known: list[str] = []
        for word in self.words:
            if word.text is None:
                break
            known.append(word.text)
        return tuple(known)

    @property
    def is_literal(self) -> bool:
        """Whether all words are known."""
        return all(word.text is not None for word in self.words)

    @property
    def start(self) -> int:
        """Where it starts."""
        return self.words[0].start


@dataclass(frozen=True, slots=True)
class Assignment:
    """A variable that the line sets, in whatever way."""

    name: str
    value: str | None
    """None when it is data, or several values."""
    is_exported: bool
    """Whether programs may see it: before a command, by `export` or `declare`."""


@dataclass(frozen=True, slots=True)
class OpaquePiece:
    """A piece of the line of which the text does not tell what it starts."""

    reason: str
    start: int
    text: str


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """All that a line may start. Without opaque pieces the list of commands is complete."""

    line: str
    commands: tuple[SimpleCommand, ...]
    opaque: tuple[OpaquePiece, ...]
    assignments: tuple[Assignment, ...] = ()

    @property
    def is_readable(self) -> bool:
        """Whether the grammar could read the line."""
        return not any(piece.reason == UNREADABLE for piece in self.opaque)
