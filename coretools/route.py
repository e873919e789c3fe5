"""Where commands stand: contexts and routes, the same words on a command line, in the REPL and in the names of tools.

`git` is a context, `git log` a route, `git_log` the name that follows with the separator `_`. A word in braces is a
parameter: `contact {id} show` is typed `contact 42 show`, and its name is `contact_show`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from coretools.errors import BadSetting

SEPARATORS = ("_", "-", ".", "/")
"""What may stand between the words of a route in a name; some clients refuse all but the first two."""

WORD = re.compile(r"[a-z][a-z0-9_]*(?:-[a-z0-9]+)*")
VARIABLE = re.compile(r"\{([a-z_][a-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Context:
    """A group of commands, and what is said of it."""

    words: tuple[str, ...]
    summary: str = ""
    details: str = ""


def checked(route: Sequence[str], source: str) -> tuple[str, ...]:
    """The route, if it is one.

    Raises:
        BadSetting: no word at all, only parameters, or a word that can't be typed.
    """
    if not any(VARIABLE.fullmatch(word) is None for word in route):
        raise BadSetting(f"{source}: a route needs a word that is no parameter")
    for word in route:
        if not (WORD.fullmatch(word) or VARIABLE.fullmatch(word)):
            raise BadSetting(f"{source}: {word!r} is no word of a route; use a to z, 0 to 9, _ and -, or {{parameter}}")
    return tuple(route)


def below(context: Sequence[str], name: str) -> tuple[str, ...]:
    """The route of a function of this name: `git_log` in the context `git` is `git log`, and so is `log`."""
    prefix = "".join(f"{word}_" for word in context)
    return (*context, name.removeprefix(prefix))


def flattened(route: Sequence[str], separator: str) -> str:
    """The name that follows from a route: its words without the parameters."""
    return separator.join(word for word in route if VARIABLE.fullmatch(word) is None)


def parameters(route: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters that stand in a route, in their order."""
    return tuple(found[1] for word in route if (found := VARIABLE.fullmatch(word)))
