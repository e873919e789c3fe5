"""Which command a person means by the words of a line, and which stand below a word.

A word of a route may be typed with `-` in place of `_`. Hidden commands are found, and shown nowhere.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from coretools.errors import UnknownTool
from coretools.operations.catalog import Selection, commands_for_people, withholding_reason
from coretools.operations.command import Command
from coretools.operations.registry import Registry
from coretools.operations.route import VARIABLE, Context


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """A command, the values that stand in its route, and how many words those took."""

    command: Command
    route_values: dict[str, str]
    count: int


class Routes:
    """The commands of one moment by their routes."""

    def __init__(self, registry: Registry, selection: Selection) -> None:
        self._commands = _unique_by_route(commands_for_people(registry, selection))
        self._withheld = {
            command.route: reason for command in registry if (reason := withholding_reason(command, selection))
        }
        self._contexts: dict[tuple[str, ...], Context] = {context.words: context for context in registry.contexts}

    def __iter__(self) -> Iterator[Command]:
        """Every command that is shown."""
        return (command for command in self._commands if not command.declaration.is_hidden)

    def context(self, words: Sequence[str]) -> Context | None:
        """What is said of a context, if anything."""
        return self._contexts.get(tuple(map(normalize, words)))

    def at(self, words: Sequence[str]) -> RouteMatch | None:
        """The command whose route the words begin with: the longest, and of those the one with most words as typed."""
        best: RouteMatch | None = None
        best_rank = (0, 0)
        for command in self._commands:
            values = _values(command.route, words)
            if values is not None and len(words) >= len(command.route):
                rank = (len(command.route), len(command.route) - len(values))
                if rank > best_rank:
                    best, best_rank = RouteMatch(command, values, len(command.route)), rank
        return best

    def below(self, words: Sequence[str], *, within: Sequence[str] = ()) -> list[Command]:
        """The commands that are shown whose routes begin with the words, and are longer; and as they stand `within`."""
        return [
            command
            for command in self._commands
            if not command.declaration.is_hidden
            and len(command.route) > len(words)
            and _values(command.route, words) is not None
            and command.route[: len(within)] == tuple(within)
        ]

    def get(self, words: Sequence[str]) -> RouteMatch:
        """The command that is meant.

        Raises:
            UnknownTool: none; says why, what comes close, or what stands below.
        """
        found = self.at(words)
        if found is not None:
            return found
        typed = " ".join(words)
        for route, reason in self._withheld.items():
            if len(words) >= len(route) and _values(route, words) is not None:
                raise UnknownTool(f"{' '.join(route)} is not offered here: {reason}")
        below = self.below(words)
        if below:
            following = dict.fromkeys(route_word(command.route[len(words)]) for command in below)
            raise UnknownTool(f"{typed}: go on with {', '.join(following)}; `{typed} --help` says more")
        raise UnknownTool(f"no command {typed[:80]!r} here; {self._close(typed)}`--help` lists them")

    def _close(self, typed: str) -> str:
        lines = [" ".join(command.route) for command in self._commands if not command.declaration.is_hidden]
        lines += [command.name for command in self._commands if not command.declaration.is_hidden]
        close = difflib.get_close_matches(normalize(typed), lines, n=1)
        by_name = {command.name: " ".join(map(route_word, command.route)) for command in self._commands}
        return f"did you mean {by_name.get(close[0], close[0])}? " if close else ""


def options_at(routes: Routes, words: Sequence[str]) -> frozenset[str]:
    """The options of the command that the words begin with; none when they begin with none."""
    found = routes.at(leading_words(words))
    names = found.command.arguments.schema().get("properties", {}) if found else ()
    return frozenset(f"--{name.replace('_', '-')}" for name in names)


def normalize(word: str) -> str:
    """A word as routes and parameters have it."""
    return word.replace("-", "_")


def route_word(word: str) -> str:
    """A word of a route for a reader: `{id}` is `ID`."""
    found = VARIABLE.fullmatch(word)
    return found[1].upper() if found else word


def leading_words(words: Sequence[str]) -> list[str]:
    """The words before the first option."""
    count = next((at for at, word in enumerate(words) if word.startswith("-") and word != "-"), len(words))
    return list(words[:count])


def _values(route: Sequence[str], words: Sequence[str]) -> dict[str, str] | None:
    """The values of the parameters in a route as far as both go; None when a word is another."""
    values = {}
    for expected, word in zip(route, words, strict=False):
        variable = VARIABLE.fullmatch(expected)
        if variable:
            values[variable[1]] = word
        elif normalize(word) != normalize(expected):
            return None
    return values


def _unique_by_route(commands: Iterable[Command]) -> list[Command]:
    """One for each route: a prompt that overrides another has the route of what it overrides."""
    found: dict[tuple[str, ...], Command] = {}
    for command in commands:
        if not command.overrides or command.route not in found:
            found[command.route] = command
    return list(found.values())
