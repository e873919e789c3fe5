"""Decorators that declare a typed function as a command: a tool, a resource, a prompt, or several of these.

The name of the function is the name of the command, its signature the schema, and its docstring the description for
people and models. `tool`, `resource` and `prompt` each add a surface; `at`, `details`, `metadata`, `asks`, `hidden` and
`channels` add properties. Their order does not matter, but `@registry.tool` and `@registry.add` stand above
all of them: a registered function can't be declared further. Imports neither `mcp` nor pydantic.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType, NoneType
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

from coretools.errors import BadSetting
from coretools.operations.server_info import Icon

Function = TypeVar("Function", bound=Callable[..., Any])

READ_PROFILES = ("read", "dev", "ci")
CHANGE_PROFILES = ("dev",)
"""Profiles that include a command by default, besides `all`. A command that changes things must name `ci` itself."""

_EFFECTS = "Effect.READ is read-only, Effect.ADD changes and never destroys, Effect.CHANGE may destroy"

_ATTRIBUTE = "__coretools_declaration__"
_REGISTERED = "__coretools_registered__"
"""Attribute of a registered function. Its value is that function, because `functools.wraps` copies attributes."""


Channel = Literal["mcp", "command-line", "repl", "none"]
"""Where a call comes from: an MCP client (an agent), a shell, the REPL, or code."""

CHANNELS: tuple[Channel, ...] = ("mcp", "command-line", "repl")
"""Channels that a command can be declared for. Code calls what it likes."""


class Decorator(Protocol):
    """Declares a property of a function and returns the function."""

    def __call__(self, function: Function, /) -> Function:
        """The same function."""
        ...


class Effect(Enum):
    """The effect of a command, from which the protocol's tool annotations follow."""

    READ = "read"
    """Changes nothing."""
    ADD = "add"
    """Creates, and never replaces or destroys anything."""
    CHANGE = "change"
    """May replace or destroy something."""


class Surface(Enum):
    """The kinds of protocol objects that a command can be."""

    TOOL = "tool"
    RESOURCE = "resource"
    PROMPT = "prompt"


class Labels(TypedDict, total=False):
    """Optional properties of any command, for clients and people."""

    title: str
    """A name for people, which clients show in place of the command's name."""
    tags: tuple[str, ...]
    """Words by which clients can group commands; sent in `_meta` as `coretools/tags`."""
    icons: tuple[Icon, ...]
    """Icons for clients."""


class Hints(Labels, total=False):
    """Optional properties of a tool."""

    name: str
    """Its name within its context, in place of the function's."""
    aliases: tuple[str, ...]
    """Further names within its context. They are accepted and not listed."""
    deadline_seconds: float
    """A call that takes longer ends with `DeadlinePassed`. A plain function ends at its next `check_cancelled()`."""
    result_bytes: int
    """A longer result is not sent: the call ends with `TooLarge`."""
    idempotent: bool
    """Repeating a call with the same arguments has no further effect. By default true for `Effect.READ`."""
    open_world: bool
    """Interacts with things outside the server, such as the network or other programs."""
    long_running: bool
    """May take longer than clients usually wait."""
    structured: bool
    """Whether the result is also sent as structured content. By default true except for `Result` and content."""
    profiles: tuple[str, ...]
    """Profiles that include it: by default `read`, `dev` and `ci` for `Effect.READ`, otherwise `dev`. An empty tuple
    hides the tool from agents."""


_HINT_TYPES: Mapping[str, tuple[type, ...]] = {
    "title": (str,),
    "idempotent": (bool,),
    "open_world": (bool,),
    "long_running": (bool,),
    "structured": (bool, NoneType),
    "profiles": (tuple, list, frozenset),
    "name": (str,),
    "aliases": (tuple, list),
    "tags": (tuple, list),
    "icons": (tuple, list),
    "deadline_seconds": (float, int),
    "result_bytes": (int,),
}
"""Accepted types of each hint: a value of another type would break the tool list of every client."""

_ITEM_TYPES: Mapping[str, type] = {"aliases": str, "tags": str, "icons": Icon}


class Aliases:
    """Other names for a parameter: `Annotated[str, Aliases("file_path", "filename")]`.

    They are accepted and not listed in the schema. Declare only names that mean the same; `hints` are names of
    something else for which the parameter is the remedy, and appear only in the suggestion of an error.
    """

    __slots__ = ("_milliseconds", "accepted", "hints", "ignored", "item_fields", "switches")

    def __init__(
        self,
        *names: str,
        milliseconds: Sequence[str] = (),
        hints: Sequence[str] = (),
        ignored: Sequence[str] = (),
        switches: Mapping[str, Mapping[bool, Any]] = MappingProxyType({}),
        item_fields: bool = False,
    ) -> None:
        """`milliseconds` are names of the same duration in that unit; it is rounded up to whole seconds.

        `ignored` are names of remarks that change nothing, as a description for the user; they are dropped.
        `switches` are names of booleans with the value of this parameter that each stands for, if any. With
        `item_fields`, the fields of one item of a list are accepted beside the other arguments.
        """
        self._milliseconds = frozenset(milliseconds)
        self.accepted = (*names, *milliseconds)
        self.hints = tuple(hints)
        self.ignored = tuple(ignored)
        self.switches = dict(switches)
        self.item_fields = item_fields

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that is accepted."""
        return (*self.accepted, *self.ignored, *self.switches)

    def converted(self, name: str, value: Any) -> Any:
        """The value in the unit of the parameter. A value that is no number is left to the validation."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return math.ceil(value / 1000) if is_number and name in self._milliseconds else value


@runtime_checkable
class DeclaredQuestion(Protocol):
    """The part of a question (`coretools.questions.kinds`) that a declaration uses."""

    @property
    def key(self) -> str:
        """Its name in `answers`."""
        ...

    @property
    def needs_person(self) -> bool:
        """Whether the caller may not answer it beforehand."""
        ...

    def answer_schema(self) -> dict[str, Any]:
        """JSON Schema of a prefilled answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The properties that the decorators declare."""

    surfaces: frozenset[Surface] = frozenset()
    title: str = ""
    tags: tuple[str, ...] = ()
    icons: tuple[Icon, ...] = ()
    aliases: tuple[str, ...] = ()
    """Further names within its context, accepted and not listed."""
    deadline_seconds: float | None = None
    result_bytes: int | None = None
    channels: frozenset[Channel] = frozenset(CHANNELS)
    """Where it exists: it can be neither listed nor called elsewhere."""
    effect: Effect = Effect.READ
    idempotent: bool = True
    """Repeating a call with the same arguments has no further effect."""
    open_world: bool = False
    """Interacts with things outside the roots: programs of the project, the network."""
    long_running: bool = False
    """May take longer than clients usually wait."""
    nonblocking: bool = False
    """A plain function that is tried on the event loop first; it raises `WouldBlock` if it would have to wait."""
    structured: bool | None = None
    """Whether the result is sent as structured content with an output schema, besides its text; None: by its type."""
    profiles: frozenset[str] = frozenset(READ_PROFILES)
    """Profiles that include it. `all` does too, unless this is empty."""
    route: tuple[str, ...] = ()
    """Words after its context, `{name}` for a parameter; empty for the name of the function."""
    details: str = ""
    """More text for agents and the reference, not shown in lists of commands."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Sent as `_meta`; keys have reverse-DNS prefixes."""
    uri: str = ""
    """URI of the resource, or its URI template (RFC 6570)."""
    mime_type: str = ""
    """Empty to derive it from the return type."""
    version: Callable[..., object] | str | None = None
    """A function that returns the version of the resource, or the name of such a method."""
    asks: tuple[str, ...] = ()
    """Keys of the questions it may ask; each can be prefilled in the argument `answers`."""
    questions: Mapping[str, DeclaredQuestion] = field(default_factory=dict)
    """The questions that were declared as objects, by key."""
    unlisted_asks: tuple[str, ...] = ()
    """Keys that are not listed in the schema."""
    same_policy_as: tuple[str, ...] = ()
    """Tools whose policy applies to this command too: a confirmation required for one of them is required here, and if
    one of them is left out, so is this command."""
    needs_confirmation: bool = False
    """Whether a person must confirm each call. Set from the operator's policy, never declared."""
    input_schema: Mapping[str, Any] | None = None
    """Published unchanged in place of the schema of the signature."""
    output_schema: Mapping[str, Any] | None = None
    """Published unchanged as the schema of the result, which another server made."""
    is_foreign: bool = False
    """Offered by another server: its name may have capital letters."""
    withheld: str = ""
    """Why agents are not offered it now; empty if they are."""
    is_hidden: bool = False
    """Left out of every list and of help; a person who knows its name can call it."""

    @property
    def read_only(self) -> bool:
        """Changes nothing."""
        return self.effect is Effect.READ

    @property
    def for_agents(self) -> bool:
        """Whether agents may list and call it."""
        return bool(self.profiles) and "mcp" in self.channels and not self.is_hidden

    @property
    def arguments(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Names of the arguments in its own schema, and of the required ones; None if the signature has them."""
        if self.input_schema is None:
            return None
        return tuple(self.input_schema.get("properties", ())), tuple(self.input_schema.get("required", ()))

    @property
    def destructive(self) -> bool:
        """May replace or destroy something."""
        return self.effect is Effect.CHANGE


def tool(effect: Effect, **hints: Unpack[Hints]) -> Decorator:
    """Declare a function or method as a tool.

    Raises:
        BadSetting: the first argument is not an `Effect`, or a hint is unknown or of the wrong type.
    """
    if not isinstance(effect, Effect):
        raise BadSetting(f"a tool needs an effect: write tool(Effect.READ), not tool({effect!r:.60})")
    unknown = sorted(hints.keys() - _HINT_TYPES.keys())
    if unknown:
        raise BadSetting(
            f"tool(...): unknown hint {', '.join(unknown)}; choose from {', '.join(_HINT_TYPES)}. {_EFFECTS}"
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
        deadline_seconds=hints.get("deadline_seconds"),
        result_bytes=hints.get("result_bytes"),
        aliases=tuple(hints.get("aliases", ())),
        **_labelled(hints),
        **({"route": (hints["name"],)} if "name" in hints else {}),
    )


def resource(
    uri: str,
    *,
    mime_type: str = "",
    version: Callable[..., object] | str | None = None,
    **labels: Unpack[Labels],
) -> Decorator:
    """Declare a function as a resource, alone or in addition to `tool`. A resource only reads.

    `uri` is a URI, or a template whose variables are parameters: `config://{name}{?section}`. `mime_type` is by default
    text/plain for text and application/json for structured results. `version` is a plain function of the same
    arguments, or the name of a method of the same object: while a client is subscribed it is called each second, and
    a different return value is a change. Without it, report changes with `Registry.announce`.
    """
    _check_types("resource", {"uri": uri, "mime_type": mime_type, **labels})
    return _amend("resource", Surface.RESOURCE, uri=uri, mime_type=mime_type, version=version, **_labelled(labels))


def prompt(**labels: Unpack[Labels]) -> Decorator:
    """Declare a function as a prompt: its parameters are the arguments, its result is the text or messages."""
    _check_types("prompt", labels)
    return _amend("prompt", Surface.PROMPT, **_labelled(labels))


def at(*route: str) -> Decorator:
    """Set the route below the context: `at("remote", "add")` in the context `git` is `git remote add`.

    A word `{name}` takes the value of that parameter on a command line; tool names leave it out.
    """
    return _amend("at", route=route)


def details(text: str) -> Decorator:
    """Add text to the docstring for agents and the reference."""
    _check_types("details", {"its text": text})
    return _amend("details", details=text)


def metadata(values: Mapping[str, Any]) -> Decorator:
    """Send these values as `_meta` wherever the command is listed."""
    _check_types("metadata", {f"key {key!r:.60}": key for key in values})
    return _amend("metadata", metadata=dict(values))


def asks(*questions: str | DeclaredQuestion, is_listed: bool | None = None) -> Decorator:
    """Declare the questions that the command may ask (`coretools.questions.kinds`), as objects or by their keys.

    The argument `answers` takes their answers. Its schema describes those of questions declared as objects which need
    no person. A key may be that of a confirmation, so its answer is listed only with `is_listed=True`; with `is_listed=
    False` none is.
    """
    for question in questions:
        if isinstance(question, type) or not isinstance(question, str | DeclaredQuestion):
            raise BadSetting(
                f"@asks: {question!r:.60} is neither a question nor a key; write AskText(key=..., message=...)"
            )
    known = {question.key: question for question in questions if not isinstance(question, str)}
    keys = tuple(question if isinstance(question, str) else question.key for question in questions)
    listed = {key for key, question in known.items() if not question.needs_person}
    listed |= set(keys) - known.keys() if is_listed else set()
    unlisted = keys if is_listed is False else tuple(key for key in keys if key not in listed)
    return _amend("asks", asks=keys, questions=known, unlisted_asks=unlisted)


def same_policy_as(*tools: str) -> Decorator:
    """Apply the operator's policy for these tools to this command too, because it does the same.

    That is: a confirmation before one of them, and leaving one of them out.
    """
    return _amend("same_policy_as", same_policy_as=tools)


def raw_schema(schema: Mapping[str, Any]) -> Decorator:
    """Publish this JSON Schema (2020-12) unchanged. The function takes the validated arguments as one mapping."""
    return _amend("raw_schema", input_schema=dict(schema))


def foreign(
    schema: Mapping[str, Any], *, output_schema: Mapping[str, Any] | None = None, withheld: str = ""
) -> Decorator:
    """Declare a command of another server, with its own schemas; `withheld` is why it is not offered now."""
    described = {"input_schema": dict(schema), "output_schema": output_schema}
    return _amend("foreign", **described, is_foreign=True, withheld=withheld)


def nonblocking(function: Function) -> Function:
    """Try a plain function on the event loop first. For functions that are called often and are usually quick.

    Before it waits for anything, the function calls `coretools.operations.call.require_thread()`. That raises
    `WouldBlock` on the event loop, and the dispatcher calls the function again in a worker thread.
    """
    return _amend("nonblocking", nonblocking=True)(function)


def channels(*names: Channel) -> Decorator:
    """Offer the command in these channels only: `mcp`, `command-line`, `repl`. Elsewhere it does not exist.

    Raises:
        BadSetting: no channel, or an unknown one.
    """
    return _amend("channels", channels=checked_channels(names))


def checked_channels(names: Sequence[str]) -> frozenset[Channel]:
    """The channels of these names.

    Raises:
        BadSetting: none, or an unknown one.
    """
    chosen = frozenset(one for one in CHANNELS if one in names)
    if len(chosen) != len(set(names)) or not chosen:
        raise BadSetting(f"channels: choose from {', '.join(CHANNELS)}, not {', '.join(map(str, names)) or 'none'}")
    return chosen


def hidden(function: Function) -> Function:
    """Hide the command from every list and from help."""
    return _amend("hidden", is_hidden=True)(function)


def declaration_of(function: object) -> Declaration | None:
    """The declaration of a function or bound method; None if it declares no surface."""
    declaration = getattr(function, _ATTRIBUTE, None)
    return declaration if isinstance(declaration, Declaration) and declaration.surfaces else None


def source_of(function: Callable[..., Any]) -> str:
    """Module and qualified name of a function, for messages."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or '?'}.{name}"


def mark_registered(function: Callable[..., Any]) -> None:
    """Mark a function as registered: later declarations would have no effect and are refused."""
    plain = getattr(function, "__func__", function)
    setattr(plain, _REGISTERED, plain)


def _check_types(by: str, values: Mapping[str, object]) -> None:
    """Refuse a value of the wrong type. Names without an entry in `_HINT_TYPES` are text."""
    for name, value in values.items():
        kinds = _HINT_TYPES.get(name, (str,))
        if not isinstance(value, kinds):
            raise BadSetting(f"@{by}: {name} must be {kinds[0].__name__}, not {type(value).__name__}")
        item = _ITEM_TYPES.get(name, object)
        if isinstance(value, tuple | list) and not all(isinstance(one, item) for one in value):
            raise BadSetting(f"@{by}: {name} has {item.__name__} values only")
        if name in ("deadline_seconds", "result_bytes") and isinstance(value, int | float) and value <= 0:
            raise BadSetting(f"@{by}: {name} must be above 0")


def _labelled(labels: Mapping[str, Any]) -> dict[str, Any]:
    """The labels that are given: a command that is a tool and a resource may have each with either."""
    given = {name: labels[name] for name in ("title", "tags", "icons") if labels.get(name)}
    return {name: value if name == "title" else tuple(value) for name, value in given.items()}


def _amend(by: str, *surfaces: Surface, **properties: Any) -> Decorator:
    def declared(function: Function) -> Function:
        before = getattr(function, _ATTRIBUTE, None) or Declaration()
        amended = replace(before, surfaces=before.surfaces | frozenset(surfaces), **properties)
        if amended != before and getattr(function, _REGISTERED, None) is function:
            raise BadSetting(
                f"{source_of(function)}: @{by} is applied after registration and would have no effect; "
                f"write @{by} below @registry.tool or @registry.add"
            )
        try:
            setattr(function, _ATTRIBUTE, amended)
        except AttributeError as error:
            raise BadSetting(f"{source_of(function)}: can't be declared; wrap it in a function or method") from error
        return function

    return declared
