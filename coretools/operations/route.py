"""Routes of commands: the words typed on a command line, and tool names.

`git` is a context, `git log` a route, and `git_log` the name of the tool with the separator `_`. A word in braces is a
parameter: `contact {id} show` is typed `contact 42 show`, and its tool is named `contact_show`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from coretools.errors import BadSetting
from coretools.operations.declare import CHANNELS, Channel

SEPARATOR = "_"
"""Between the words of a name; some clients accept only this one and `-`."""

WORD = re.compile(r"[a-z][a-z0-9_]*(?:-[a-z0-9]+)*")
VARIABLE = re.compile(r"\{([a-z_][a-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Context:
    """A group of commands, with its description."""

    words: tuple[str, ...]
    summary: str = ""
    details: str = ""
    channels: tuple[Channel, ...] = CHANNELS
    """Where its commands exist."""


def check_route(route: Sequence[str], source: str) -> tuple[str, ...]:
    """Return a valid route.

    Raises:
        BadSetting: the route is empty, has only parameters, or has a word that can't be typed.
    """
    if not any(VARIABLE.fullmatch(word) is None for word in route):
        raise BadSetting(f"{source}: a route needs at least one word besides parameters")
    for word in route:
        if not (WORD.fullmatch(word) or VARIABLE.fullmatch(word)):
            raise BadSetting(
                f"{source}: {word!r} is not valid in a route; use a to z, 0 to 9, _ and -, or {{parameter}}"
            )
    return tuple(route)


def route_in(context: Sequence[str], name: str) -> tuple[str, ...]:
    """The route of a function of this name: `git_log` in the context `git` is `git log`, and so is `log`."""
    prefix = "".join(f"{word}_" for word in context)
    return (*context, name.removeprefix(prefix))


def name_of_route(route: Sequence[str]) -> str:
    """The name of a tool or prompt: the words of its route without the parameters."""
    return SEPARATOR.join(word for word in route if VARIABLE.fullmatch(word) is None)


def route_parameters(route: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters in a route, in their order."""
    return tuple(match[1] for word in route if (match := VARIABLE.fullmatch(word)))
