"""A command is declared once, by decorators on a typed function; everything else about it follows from that.

The function's name is the command's name, its signature the schema, its docstring what people and models read. `tool`,
`resource` and `prompt` ask for a surface, and may stand together; `at`, `details`, `metadata`, `asks`, `hidden` and
`automation_hidden` say more. Their order does not matter. Imports neither `mcp` nor pydantic: a declaration is data.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

READING = ("read", "dev", "ci")
CHANGING = ("dev", "ci")
"""Profiles that show a command by default: all of them what only reads, all but `read` the rest."""

_ATTRIBUTE = "__coretools_declaration__"


class Decorator(Protocol):
    """Says something of a function, and gives the function back."""

    def __call__(self, function: Function, /) -> Function:
        """The same function."""
        ...


class Effect(Enum):
    """What a command does to the world, in the terms of the protocol's four hints."""

    READ = "read"
    """Changes nothing."""
    ADD = "add"
    """Creates, and never destroys or replaces what was there."""
    CHANGE = "change"
    """May replace or destroy what was there."""


class Surface(Enum):
    """What a command is to a client of the protocol."""

    TOOL = "tool"
    RESOURCE = "resource"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What the decorators say of a command."""

    surfaces: frozenset[Surface] = frozenset()
    effect: Effect = Effect.READ
    idempotent: bool = True
    """Calling again with the same arguments changes nothing more."""
    open_world: bool = False
    """Reaches things that the roots don't bound: programs of the project, the network."""
    long_running: bool = False
    """May take longer than a client likes to wait."""
    at_once: Callable[..., object] | str | None = None
    """Gives the result where that takes no waiting, or names the method that does."""
    structured: bool = False
    """The result goes out as structured content with an output schema, beside its text."""
    profiles: frozenset[str] = frozenset(READING)
    """Profiles that show it; `all` does too, unless there is none."""
    route: tuple[str, ...] = ()
    """Words below its context, `{name}` for one that is a parameter; empty: the function's name."""
    details: str = ""
    """For agents and the reference, not for a list of commands."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Sent as `_meta`; keys in reverse-DNS form."""
    uri: str = ""
    """Address of the resource, or its template (RFC 6570)."""
    mime_type: str = "text/plain"
    version: Callable[..., object] | str | None = None
    """Says which version the resource has, or names the method that does."""
    asks: tuple[str, ...] = ()
    """Keys of the questions it may ask; each can be answered beforehand in the argument `answers`."""
    unlisted_asks: tuple[str, ...] = ()
    """Those of them that its schema does not name."""
    asked_as: tuple[str, ...] = ()
    """Tools that do the same: a question that the operator wants before one of them stands before this too, and without
    one of them this is left out."""
    asks_first: bool = False
    """The operator wants a person's yes before each call; never declared, but read from his file."""
    input_schema: Mapping[str, Any] | None = None
    """Published as it stands, in place of the schema of the signature."""
    is_automation_hidden: bool = False
    """For people only: no agent sees it or can call it."""
    is_hidden: bool = False
    """In no list and no help; a person who knows its name can call it."""

    @property
    def read_only(self) -> bool:
        """Changes nothing."""
        return self.effect is Effect.READ

    @property
    def for_agents(self) -> bool:
        """Whether an agent may see and call it at all."""
        return bool(self.profiles) and not (self.is_hidden or self.is_automation_hidden)

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
) -> Decorator:
    """Declare a function or method as a tool.

    `idempotent` defaults to True for what only reads. `profiles` defaults to `read`, `dev` and `ci` for what only
    reads and to `dev` and `ci` for the rest; an empty one hides the tool from automation.
    """
    if profiles is None:
        profiles = READING if effect is Effect.READ else CHANGING
    return _amend(
        Surface.TOOL,
        effect=effect,
        idempotent=effect is Effect.READ if idempotent is None else idempotent,
        open_world=open_world,
        long_running=long_running,
        structured=structured,
        profiles=frozenset(profiles),
    )


def resource(
    uri: str, *, mime_type: str = "text/plain", version: Callable[..., object] | str | None = None
) -> Decorator:
    """Declare a function as a resource, alone or beside `tool`. It only reads.

    `uri` is an address, or a template each of whose variables is a parameter: `config://{name}{?section}`. `version`
    is a plain function of the same arguments, or the name of a method beside this one: while somebody is subscribed it
    is called each second, and what it gives is compared. Others tell of a change by `Registry.announce`.
    """
    return _amend(Surface.RESOURCE, uri=uri, mime_type=mime_type, version=version)


def prompt() -> Decorator:
    """Declare a function as a prompt: its arguments are the parameters, its result the text or messages."""
    return _amend(Surface.PROMPT)


def at(*route: str) -> Decorator:
    """Say where the command stands below its context: `at("remote", "add")` in the context `git` is `git remote add`.

    A word `{name}` takes the value of that parameter on a command line; names of tools leave it out.
    """
    return _amend(route=route)


def details(text: str) -> Decorator:
    """Say more to agents and in the reference than the docstring does."""
    return _amend(details=text)


def metadata(values: Mapping[str, Any]) -> Decorator:
    """Send these values as `_meta` wherever the command is listed."""
    return _amend(metadata=dict(values))


def asks(*keys: str, is_listed: bool = True) -> Decorator:
    """Name the questions that the command may ask (`coretools.asking`).

    The schema has an argument `answers` for them, unless `is_listed` is False: it is taken all the same then.
    """
    return _amend(asks=keys, unlisted_asks=() if is_listed else keys)


def at_once(found: Callable[..., object] | str) -> Decorator:
    """Say what may give the result of a plain function without waiting, for what is called often and is quick.

    `found` is a plain function of the same arguments, or the name of a method beside this one. It is called first, on
    the event loop, and gives the result, or None where it would have to wait for anything; then the function itself is
    called, in a worker thread.
    """
    return _amend(at_once=found)


def asked_as(*tools: str) -> Decorator:
    """Have what the operator says of one of these tools hold for this command too, because it does the same.

    A question that he wants before one of them, and that he leaves one out.
    """
    return _amend(asked_as=tools)


def raw_schema(schema: Mapping[str, Any]) -> Decorator:
    """Publish this JSON Schema (2020-12) as it stands. The function takes the checked arguments as one mapping."""
    return _amend(input_schema=dict(schema))


def automation_hidden(function: Function) -> Function:
    """Keep the command from agents: it is for the command line and the REPL."""
    return _amend(is_automation_hidden=True)(function)


def hidden(function: Function) -> Function:
    """Keep the command out of every list and help."""
    return _amend(is_hidden=True)(function)


def declaration_of(function: object) -> Declaration | None:
    """The declaration of a function or bound method; None when nothing asks for a surface."""
    found = getattr(function, _ATTRIBUTE, None)
    return found if isinstance(found, Declaration) and found.surfaces else None


def _amend(*surfaces: Surface, **said: Any) -> Decorator:
    def declared(function: Function) -> Function:
        before = getattr(function, _ATTRIBUTE, None) or Declaration()
        setattr(function, _ATTRIBUTE, replace(before, surfaces=before.surfaces | frozenset(surfaces), **said))
        return function

    return declared
