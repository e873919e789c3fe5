"""A tool is declared once, by a decorator on a typed function; everything else about it follows from that.

The function's name is the tool's name, its signature the schema, its docstring the text the model reads. The decorator
says what the tool does to the world. Imports neither `mcp` nor pydantic: a declaration is plain data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_ATTRIBUTE = "__coretools_declaration__"


class Effect(Enum):
    """What a tool does to the world, in the terms of the protocol's four hints."""

    READ = "read"
    """Changes nothing."""
    ADD = "add"
    """Creates, and never destroys or replaces what was there."""
    CHANGE = "change"
    """May replace or destroy what was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What the decorator says of a tool."""

    effect: Effect
    idempotent: bool
    """Calling again with the same arguments changes nothing more."""
    open_world: bool
    """Reaches things that the roots don't bound: programs of the project, the network."""
    long_running: bool
    """May take longer than a client likes to wait."""
    structured: bool
    """The result goes out as structured content with an output schema, beside its text."""
    profiles: frozenset[str]
    """Profiles that show it; `all` does too, unless there is none."""

    @property
    def read_only(self) -> bool:
        """Changes nothing."""
        return self.effect is Effect.READ

    @property
    def hidden(self) -> bool:
        """Left out of automation: not listed to agents and not callable by them."""
        return not self.profiles

    @property
    def destructive(self) -> bool:
        """May replace or destroy what was there."""
        return self.effect is Effect.CHANGE


def tool(
    effect: Effect,
    *,
    idempotent: bool | None = None,
    open_world: bool = False,
    long_running: bool = False,
    structured: bool = False,
    profiles: tuple[str, ...] | None = None,
) -> Callable[[Function], Function]:
    """Declare a function or method as a tool.

    `idempotent` defaults to True for what only reads. `profiles` defaults to `read`, `dev` and `ci` for what only
    reads and to `dev` and `ci` for the rest; an empty one hides the tool from automation.
    """
    if profiles is None:
        profiles = ("read", "dev", "ci") if effect is Effect.READ else ("dev", "ci")
    declaration = Declaration(
        effect=effect,
        idempotent=effect is Effect.READ if idempotent is None else idempotent,
        open_world=open_world,
        long_running=long_running,
        structured=structured,
        profiles=frozenset(profiles),
    )

    def declared(function: Function) -> Function:
        setattr(function, _ATTRIBUTE, declaration)
        return function

    return declared


def declaration_of(function: object) -> Declaration | None:
    """The declaration of a function or bound method, or None when it is no tool."""
    found = getattr(function, _ATTRIBUTE, None)
    return found if isinstance(found, Declaration) else None
