"""A command is declared once, by decorators on a typed function; everything else about it follows from that.

The function's name is the command's name, its signature the schema, its docstring what people and models read. `tool`,
`resource` and `prompt` ask for a surface, and may stand together; `at`, `details`, `metadata`, `asks`, `hidden` and
`automation_hidden` say more. Their order does not matter, but nothing can be said of a function that a registry has
already: `@registry.tool` stands above all of them. Imports neither `mcp` nor pydantic: a declaration is data.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import NoneType
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

from coretools.errors import BadSetting

Function = TypeVar("Function", bound=Callable[..., Any])

READ_PROFILES = ("read", "dev", "ci")
CHANGE_PROFILES = ("dev",)
"""Profiles that show a command by default, beside `all`: a pipeline (`ci`) gets what changes things by name only."""

_EFFECTS = "Effect.READ is read-only, Effect.ADD changes and never destroys, Effect.CHANGE may destroy"

_ATTRIBUTE = "__coretools_declaration__"
_REGISTERED = "__coretools_registered__"
"""Attribute of a function that a registry has; its value is that function, for `functools.wraps` copies attributes."""


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


class Hints(TypedDict, total=False):
    """What may be said of a tool beside its effect."""

    title: str
    """A name for people; clients show it in place of the function's."""
    idempotent: bool
    """Calling again with the same arguments changes nothing more. By default what only reads is."""
    open_world: bool
    """Reaches things outside the server: the network, programs."""
    long_running: bool
    """May take longer than a client likes to wait."""
    structured: bool
    """Whether the result goes out as structured content too. By default it does unless it is a `Result` or content."""
    profiles: tuple[str, ...]
    """Profiles that show it: by default `read`, `dev` and `ci` for what only reads, `dev` for the rest. An empty tuple
    hides the tool from automation."""


_HINT_TYPES: Mapping[str, tuple[type, ...]] = {
    "title": (str,),
    "idempotent": (bool,),
    "open_world": (bool,),
    "long_running": (bool,),
    "structured": (bool, NoneType),
    "profiles": (tuple, list, frozenset),
}
"""What each hint is: another kind would break the list of every client."""


@runtime_checkable
class DeclaredQuestion(Protocol):
    """What a question (`coretools.questions.kinds`) says of itself before it is asked."""

    @property
    def key(self) -> str:
        """Its name in `answers`."""
        ...

    def answer_schema(self) -> dict[str, Any]:
        """JSON Schema of an answer that is given beforehand."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What the decorators say of a command."""

    surfaces: frozenset[Surface] = frozenset()
    title: str = ""
    effect: Effect = Effect.READ
    idempotent: bool = True
    """Calling again with the same arguments changes nothing more."""
    open_world: bool = False
    """Reaches things that the roots don't bound: programs of the project, the network."""
    long_running: bool = False
    """May take longer than a client likes to wait."""
    nonblocking: bool = False
    """A plain function that is tried on the event loop first (`coretools.operations.call`)."""
    structured: bool | None = None
    """Whether the result goes out as structured content with an output schema, beside its text; None: as its type
    has it."""
    profiles: frozenset[str] = frozenset(READ_PROFILES)
    """Profiles that show it; `all` does too, unless there is none."""
    route: tuple[str, ...] = ()
    """Words below its context, `{name}` for one that is a parameter; empty: the function's name."""
    details: str = ""
    """For agents and the reference, not for a list of commands."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Sent as `_meta`; keys in reverse-DNS form."""
    uri: str = ""
    """Address of the resource, or its template (RFC 6570)."""
    mime_type: str = ""
    """Empty: what goes with the type of the result."""
    version: Callable[..., object] | str | None = None
    """Says which version the resource has, or names the method that does."""
    asks: tuple[str, ...] = ()
    """Keys of the questions it may ask; each can be answered beforehand in the argument `answers`."""
    questions: Mapping[str, DeclaredQuestion] = field(default_factory=dict)
    """Those of them that were declared as questions, by key."""
    unlisted_asks: tuple[str, ...] = ()
    """Those of them that its schema does not name."""
    same_policy_as: tuple[str, ...] = ()
    """Tools that do the same: a question that the operator wants before one of them stands before this too, and without
    one of them this is left out."""
    needs_confirmation: bool = False
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


def tool(effect: Effect, **hints: Unpack[Hints]) -> Decorator:
    """Declare a function or method as a tool.

    Raises:
        BadSetting: the first argument is no `Effect`, or a hint has no such name.
    """
    if not isinstance(effect, Effect):
        raise BadSetting(f"a tool says what it does to the world: write tool(Effect.READ), not tool({effect!r:.60})")
    unknown = sorted(hints.keys() - _HINT_TYPES.keys())
    if unknown:
        raise BadSetting(
            f"tool(...): {', '.join(unknown)}: no such hint; there are {', '.join(_HINT_TYPES)}. {_EFFECTS}"
        )
    _check_types("tool", hints)
    return _amend(
        "tool",
        Surface.TOOL,
        effect=effect,
        idempotent=hints.get("idempotent", effect is Effect.READ),
        open_world=hints.get("open_world", False),
        long_running=hints.get("long_running", False),
        structured=hints.get("structured"),
        profiles=frozenset(hints.get("profiles", READ_PROFILES if effect is Effect.READ else CHANGE_PROFILES)),
        **_titled(hints.get("title", "")),
    )


def resource(
    uri: str, *, title: str = "", mime_type: str = "", version: Callable[..., object] | str | None = None
) -> Decorator:
    """Declare a function as a resource, alone or beside `tool`. It only reads.

    `uri` is an address, or a template each of whose variables is a parameter: `config://{name}{?section}`. `mime_type`
    is by default text/plain for text and application/json for what is structured. `version` is a plain function of the
    same arguments, or the name of a method beside this one: while somebody is subscribed it is called each second, and
    what it gives is compared. Others tell of a change by `Registry.announce`.
    """
    _check_types("resource", {"uri": uri, "title": title, "mime_type": mime_type})
    return _amend("resource", Surface.RESOURCE, uri=uri, mime_type=mime_type, version=version, **_titled(title))


def prompt(*, title: str = "") -> Decorator:
    """Declare a function as a prompt: its arguments are the parameters, its result the text or messages."""
    _check_types("prompt", {"title": title})
    return _amend("prompt", Surface.PROMPT, **_titled(title))


def at(*route: str) -> Decorator:
    """Say where the command stands below its context: `at("remote", "add")` in the context `git` is `git remote add`.

    A word `{name}` takes the value of that parameter on a command line; names of tools leave it out.
    """
    return _amend("at", route=route)


def details(text: str) -> Decorator:
    """Say more to agents and in the reference than the docstring does."""
    _check_types("details", {"its text": text})
    return _amend("details", details=text)


def metadata(values: Mapping[str, Any]) -> Decorator:
    """Send these values as `_meta` wherever the command is listed."""
    _check_types("metadata", {f"key {key!r:.60}": key for key in values})
    return _amend("metadata", metadata=dict(values))


def asks(*questions: str | DeclaredQuestion, is_listed: bool = True) -> Decorator:
    """Name the questions that the command may ask (`coretools.questions.kinds`): each as itself, or by its key.

    The schema has an argument `answers` for them, unless `is_listed` is False: it is taken all the same then. What an
    answer looks like is in the schema for those that are given as themselves.
    """
    for question in questions:
        if isinstance(question, type) or not isinstance(question, str | DeclaredQuestion):
            raise BadSetting(f"@asks: {question!r:.60} is no question and no key; write AskText(key=..., message=...)")
    known = {question.key: question for question in questions if not isinstance(question, str)}
    keys = tuple(question if isinstance(question, str) else question.key for question in questions)
    return _amend("asks", asks=keys, questions=known, unlisted_asks=() if is_listed else keys)


def same_policy_as(*tools: str) -> Decorator:
    """Have what the operator says of one of these tools hold for this command too, because it does the same.

    A question that he wants before one of them, and that he leaves one out.
    """
    return _amend("same_policy_as", same_policy_as=tools)


def raw_schema(schema: Mapping[str, Any]) -> Decorator:
    """Publish this JSON Schema (2020-12) as it stands. The function takes the checked arguments as one mapping."""
    return _amend("raw_schema", input_schema=dict(schema))


def nonblocking(function: Function) -> Function:
    """Try a plain function on the event loop first: for what is called often and is quick.

    Where it would have to wait for anything it calls `coretools.operations.call.require_thread()` before that; then it
    is called again, in a worker thread.
    """
    return _amend("nonblocking", nonblocking=True)(function)


def automation_hidden(function: Function) -> Function:
    """Keep the command from agents: it is for the command line and the REPL."""
    return _amend("automation_hidden", is_automation_hidden=True)(function)


def hidden(function: Function) -> Function:
    """Keep the command out of every list and help."""
    return _amend("hidden", is_hidden=True)(function)


def declaration_of(function: object) -> Declaration | None:
    """The declaration of a function or bound method; None when nothing asks for a surface."""
    found = getattr(function, _ATTRIBUTE, None)
    return found if isinstance(found, Declaration) and found.surfaces else None


def source_of(function: Callable[..., Any]) -> str:
    """Where a function stands, for messages."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or '?'}.{name}"


def mark_registered(function: Callable[..., Any]) -> None:
    """Say that a registry has the function: what is declared of it later would be lost."""
    plain = getattr(function, "__func__", function)
    setattr(plain, _REGISTERED, plain)


def _check_types(by: str, values: Mapping[str, object]) -> None:
    """Refuse a value of another kind than it is declared to be; text, where nothing else is said."""
    for name, value in values.items():
        kinds = _HINT_TYPES.get(name, (str,))
        if not isinstance(value, kinds):
            raise BadSetting(f"@{by}: {name} is {kinds[0].__name__}, not {type(value).__name__}")


def _titled(title: str) -> dict[str, str]:
    """The title, where one is given: a command that is tool and resource may say it with either."""
    return {"title": title} if title else {}


def _amend(by: str, *surfaces: Surface, **said: Any) -> Decorator:
    def declared(function: Function) -> Function:
        before = getattr(function, _ATTRIBUTE, None) or Declaration()
        amended = replace(before, surfaces=before.surfaces | frozenset(surfaces), **said)
        if amended != before and getattr(function, _REGISTERED, None) is function:
            raise BadSetting(
                f"{source_of(function)}: @{by} comes after the registry has the command, and would change nothing; "
                f"write @{by} below @registry.tool or @registry.add"
            )
        try:
            setattr(function, _ATTRIBUTE, amended)
        except AttributeError as error:
            raise BadSetting(f"{source_of(function)}: can't be declared; write a function or method for it") from error
        return function

    return declared
