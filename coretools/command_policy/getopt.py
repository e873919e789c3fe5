"""Tell options from operands in an argv, as getopt_long(3) does. In doubt, assume the dangerous reading.

Pure. Programs accept more than their manuals show: `--checkpoint-act=X`, `-cIf PROGRAM`, `-IPROGRAM`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from coretools.command_policy.subcommand import Words

_NUMBER = re.compile(r"--?[0-9]+")


@dataclass(frozen=True, slots=True)
class Option:
    """An option found in the words; `name` is the full name (`--checkpoint-action`, `-I`)."""

    name: str
    value: str | None
    index: int
    """Index of the word that holds the option."""
    is_known: bool = True
    takes_next: bool = False
    """Whether its value is the next word."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A word that is no option. `--` itself is never one."""

    word: str
    index: int


@dataclass(frozen=True)
class Options:
    """The options of a program, in getopt notation: `a:` takes a value, `a::` only one in the same word.

    A long option ends in `=` if it takes a value, and in `=?` if it takes only one in the same word.
    """

    short: str = ""
    long: str = ""
    stops_at_operand: bool = False
    """Whether the first operand ends the options, as in programs that run the rest."""

    @cached_property
    def letters(self) -> dict[str, int]:
        """Map each letter to how it takes a value: 0 never, 1 always, 2 in the same word only."""
        return {letter: len(colons) for letter, colons in re.findall(r"([^:])(:{0,2})", self.short)}

    @cached_property
    def names(self) -> dict[str, int]:
        """Map each long name to the same."""
        return {name: len(sign) for name, sign in re.findall(r"([^\s=]+)(=\??)?", self.long)}

    def scan(self, words: Words) -> Iterator[Option | Operand]:
        """Yield the options and operands of `words`, in order."""
        index, has_ended = 0, False
        while index < len(words):
            word = words[index]
            if has_ended or not word.startswith("-") or word == "-":
                yield Operand(word, index)
                has_ended = has_ended or self.stops_at_operand
            elif word == "--":
                has_ended = True
            else:
                following = words[index + 1] if index + 1 < len(words) else None
                options = tuple(self._of_word(word, index, following))
                yield from options
                index += options[-1].takes_next
            index += 1

    def anywhere(self, words: Words) -> Iterator[Option]:
        """Yield the options in every word, wherever it stands: as a value, after `--`, after an operand.

        Whether a letter takes a value differs between versions of a program (`tar -H`); an option that starts a program
        must not hide as such a value.
        """
        for index, word in enumerate(words):
            if word.startswith("-") and word not in ("-", "--") and not _NUMBER.fullmatch(word):
                yield from self._of_word(word, index, words[index + 1] if index + 1 < len(words) else None)

    def _of_word(self, word: str, index: int, following: str | None) -> Iterator[Option]:
        """Yield the options in one word."""
        if _NUMBER.fullmatch(word):  # nice -5, head -20
            yield Option(word, None, index)
        elif word.startswith("--"):
            yield self._long(word, index, following)
        else:
            yield from self._cluster(word, index, following)

    def _long(self, word: str, index: int, following: str | None) -> Option:
        typed, equals, joined = word.partition("=")
        names = [typed[2:]] if typed[2:] in self.names else [name for name in self.names if name.startswith(typed[2:])]
        if not names:
            return Option(typed, joined if equals else None, index, is_known=False)
        # An ambiguous abbreviation is an error to the program. Assume the worst: the option that takes a value.
        name = max(names, key=lambda name: self.names[name])
        kind = self.names[name]
        if equals or kind != 1:
            return Option(f"--{name}", joined if equals else None, index)
        return Option(f"--{name}", following, index, takes_next=True)

    def _cluster(self, word: str, index: int, following: str | None) -> Iterator[Option]:
        for at, letter in enumerate(word[1:], 1):
            kind = self.letters.get(letter)
            rest = word[at + 1 :]
            if kind is None:
                yield Option(f"-{letter}", None, index, is_known=False)
            elif kind == 0:
                yield Option(f"-{letter}", None, index)
            elif rest or kind == 2:
                yield Option(f"-{letter}", rest or None, index)
                return
            else:
                yield Option(f"-{letter}", following, index, takes_next=True)
                return
