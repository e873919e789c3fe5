"""Find commands by the words of their routes, and list the commands below a prefix.

Words of a route may be typed with `-` for `_`. Hidden commands are found, but never listed.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coretools.errors import UnknownTool
from coretools.operations.catalog import Selection, commands_for_people, withholding_reason
from coretools.operations.command import Command
from coretools.operations.declare import Channel
from coretools.operations.registry import Registry
from coretools.operations.route import VARIABLE, Context


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """A command, the values in its route, and the number of words that it matched.

    Optional words at the end of a route can be left out; then `count` is smaller than its length.
    """

    command: Command
    route_values: dict[str, str]
    count: int


class Routes:
    """The commands of one catalog, by their routes."""

    def __init__(self, registry: Registry, selection: Selection, channel: Channel = "command-line") -> None:
        self._commands = _unique_by_route(commands_for_people(registry, selection, channel))
        self._withheld = {
            command.route: reason for command in registry if (reason := withholding_reason(command, selection))
        }
        self._contexts: dict[tuple[str, ...], Context] = {context.words: context for context in registry.contexts}

    def context(self, words: Sequence[str]) -> Context | None:
        """Return the context at these words, if it is declared."""
        return self._contexts.get(tuple(map(normalize, words)))

    def summary(self, words: Sequence[str]) -> str:
        """Return the summary of the context at these words; empty if none is declared."""
        context = self.context(words)
        return context.summary if context else ""

    def at(self, words: Sequence[str]) -> RouteMatch | None:
        """Return the command whose route matches most words; fixed words win over variables, then whole routes."""
        best: RouteMatch | None = None
        best_rank = (0, 0, False)
        for command, route in ((one, route) for one in self._commands for route in (one.route, *one.other_routes)):
            values = _values(route, words)
            if values is not None and len(words) >= _required_length(command):
                count = min(len(words), len(route))
                rank = (count, count - len(values), count == len(route))
                if rank > best_rank:
                    best, best_rank = RouteMatch(command, values, count), rank
        return best

    def below(self, words: Sequence[str], *, within: Sequence[str] = ()) -> list[Command]:
        """Return visible commands whose routes begin with the words, and literally with `within`, and are longer."""
        return [
            command
            for command in self._commands
            if not command.declaration.is_hidden
            and len(command.route) > len(words)
            and _values(command.route, words) is not None
            and command.route[: len(within)] == tuple(within)
        ]

    def get(self, words: Sequence[str]) -> RouteMatch:
        """Return the command at the start of the words.

        Raises:
            UnknownTool: there is none; the message says why, suggests a similar one, or lists those below.
        """
        match = self.at(words)
        if match is not None:
            return match
        typed = " ".join(words)
        for route, reason in self._withheld.items():
            if len(words) >= len(route) and _values(route, words) is not None:
                raise UnknownTool(f"{' '.join(route)} is not available here: {reason}")
        if not words:
            raise UnknownTool("a command is missing; `--help` lists them")
        below = self.below(words)
        if below:
            following = dict.fromkeys(route_word(command.route[len(words)]) for command in below)
            raise UnknownTool(f"{typed}: continue with {', '.join(following)}; --help behind it explains them")
        raise UnknownTool(f"no command {typed[:80]!r} here; {self._close(typed)}`--help` lists them")

    def _close(self, typed: str) -> str:
        lines = [" ".join(command.route) for command in self._commands if not command.declaration.is_hidden]
        lines += [command.name for command in self._commands if not command.declaration.is_hidden]
        close = difflib.get_close_matches(normalize(typed), lines, n=1)
        by_name = {command.name: " ".join(map(route_word, command.route)) for command in self._commands}
        return f"did you mean {by_name.get(close[0], close[0])}? " if close else ""


def options_at(routes: Routes, words: Sequence[str]) -> frozenset[str]:
    """Return the options of the command at the start of the words; none if there is no command.

    Not `--help`, which shows the page of every command: a parameter of this name is given as `--help=VALUE`.
    """
    match = routes.at(leading_words(words))
    names = match.command.arguments.schema().get("properties", {}) if match else ()
    return frozenset(f"--{name.replace('_', '-')}" for name in names if name != "help")


def normalize(word: str) -> str:
    """Return a word in the spelling of routes and parameters."""
    return word.replace("-", "_")


def route_word(word: str) -> str:
    """Return a word of a route for display: `{id}` becomes `ID`."""
    variable = VARIABLE.fullmatch(word)
    return variable[1].upper() if variable else word


def leading_words(words: Sequence[str]) -> list[str]:
    """Return the words before the first option."""
    count = next((at for at, word in enumerate(words) if word.startswith("-") and word != "-"), len(words))
    return list(words[:count])


def _values(route: Sequence[str], words: Sequence[str]) -> dict[str, str] | None:
    """Return the values of a route's variables, as far as both sequences go; None if a word differs."""
    values = {}
    for expected, word in zip(route, words, strict=False):
        variable = VARIABLE.fullmatch(expected)
        if variable:
            values[variable[1]] = word
        elif normalize(word) != normalize(expected):
            return None
    return values


def _required_length(command: Command) -> int:
    """Return the number of words in a route without the parameters at its end that have a default."""
    length = len(command.route)
    while (variable := VARIABLE.fullmatch(command.route[length - 1])) and (
        variable[1] not in command.arguments.required
    ):
        length -= 1
    return length


def _unique_by_route(commands: Iterable[Command]) -> list[Command]:
    """Return one command per route: a prompt has the same route as the one that it overrides."""
    by_route: dict[tuple[str, ...], Command] = {}
    for command in commands:
        if not command.overrides or command.route not in by_route:
            by_route[command.route] = command
    return list(by_route.values())
