"""What there is to know of every command, as data: the source of the reference pages, the table of tools and help.

Built from the declarations and from nothing else, so that no text about a command is written twice. Plain JSON values
in frozen objects (`as_json`); `coretools.reference` makes pages of it, `coretools.client.manual` help.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from coretools.declare import Declaration, Surface
from coretools.registry import Command, Registry
from coretools.route import Context
from coretools.schema import ANSWERS

_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "{} characters or more",
    "maxLength": "{} characters at most",
    "minItems": "{} or more",
    "maxItems": "{} at most",
    "pattern": "matches {}",
    "format": "format {}",
}
"""Words of JSON Schema that bound a value, as they read in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterPage:
    """One parameter of a command."""

    name: str
    type: str
    """As a reader of JSON calls it: `string`, `integer`, `list of string`, `object`, `integer or string`, `any`."""
    is_required: bool
    default: Any
    """As JSON has it; null too where there is none."""
    description: str
    choices: tuple[Any, ...]
    limits: tuple[str, ...]
    fields: tuple["ParameterPage", ...]
    """Of an object, or of the objects of a list."""
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPage:
    """One command."""

    route: tuple[str, ...]
    name: str
    tool_set: str
    summary: str
    details: str
    """What follows the summary: the rest of the docstring and what is said to agents."""
    effect: str
    hints: Mapping[str, bool]
    """The four of the protocol, and whether it may take long."""
    surfaces: tuple[str, ...]
    uri: str
    mime_type: str
    parameters: tuple[ParameterPage, ...]
    asks: tuple[str, ...]
    profiles: tuple[str, ...]
    for_agents: bool
    is_hidden: bool
    is_structured: bool
    metadata: Mapping[str, Any]

    @property
    def words(self) -> str:
        """How it is typed, without arguments."""
        return " ".join(self.route)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """All of it, in the order in which the commands were registered."""

    contexts: tuple[Context, ...]
    commands: tuple[CommandPage, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain: dict[str, Any] = to_jsonable_python(asdict(self))
        return plain

    @property
    def tool_sets(self) -> dict[str, list[CommandPage]]:
        """The commands of each set, in their order."""
        sets: dict[str, list[CommandPage]] = {}
        for command in self.commands:
            sets.setdefault(command.tool_set, []).append(command)
        return sets


def documentation_of(commands: Registry | Iterable[Command], contexts: Iterable[Context] = ()) -> Documentation:
    """What there is to know of a registry, or of some of its commands. Hidden ones are left out."""
    said = commands.contexts if isinstance(commands, Registry) else contexts
    return Documentation(
        contexts=tuple(said),
        commands=tuple(page_of(command) for command in commands if not command.declaration.is_hidden),
    )


def page_of(command: Command) -> CommandPage:
    """What there is to know of one command, hidden or not."""
    declared = command.declaration
    return CommandPage(
        route=command.route,
        name=command.name,
        tool_set=command.tool_set,
        summary=command.summary,
        details=_details(command),
        effect=declared.effect.value,
        hints=_hints(declared),
        surfaces=tuple(surface.value for surface in Surface if command.is_a(surface)),
        uri=declared.uri,
        mime_type=command.mime_type if declared.uri else "",
        parameters=_parameters(command),
        asks=declared.asks,
        profiles=tuple(sorted(declared.profiles)),
        for_agents=declared.for_agents,
        is_hidden=declared.is_hidden,
        is_structured=command.output.is_structured,
        metadata=declared.metadata,
    )


def type_of(schema: Mapping[str, Any]) -> str:
    """The type that a schema asks for, in words."""
    arms = schema.get("anyOf") or schema.get("oneOf")
    if arms:
        return " or ".join(dict.fromkeys(type_of(arm) for arm in arms))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    if kind is None and "enum" in schema:
        return "string"
    return str(kind or "any")


def choices_of(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values that a schema names; of a list those of its items."""
    if "const" in schema:
        return (schema["const"],)
    if schema.get("type") == "array":
        return choices_of(schema.get("items", {}))
    return tuple(schema.get("enum", ()))


def _details(command: Command) -> str:
    rest = (inspect.getdoc(command.function) or "").partition("\n\n")[2]
    return "\n\n".join(part.strip() for part in (rest, command.declaration.details) if part.strip())


def _hints(declared: Declaration) -> dict[str, bool]:
    return {
        "read_only": declared.read_only,
        "destructive": declared.destructive,
        "idempotent": declared.idempotent,
        "open_world": declared.open_world,
        "long_running": declared.long_running,
    }


def _parameters(command: Command) -> tuple[ParameterPage, ...]:
    found = _fields(command.arguments.schema(), _defaults(command))
    return tuple(one for one in found if not (one.name == ANSWERS and command.declaration.asks))


def _fields(schema: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[ParameterPage, ...]:
    required = schema.get("required", ())
    return tuple(
        ParameterPage(
            name=name,
            type=type_of(shape),
            is_required=name in required,
            default=defaults.get(name, shape.get("default")),
            description=shape.get("description", ""),
            choices=choices_of(shape),
            limits=tuple(said.format(shape[word]) for word, said in _BOUNDS.items() if word in shape),
            fields=_fields(shape.get("items", shape), {}),
            schema=shape,
        )
        for name, shape in schema.get("properties", {}).items()
    )


def _defaults(command: Command) -> dict[str, Any]:
    """Defaults from the signature: the schema leaves out those that say nothing to a model."""
    if command.declaration.input_schema is not None:
        return {}
    found = {}
    for name, parameter in inspect.signature(command.function).parameters.items():
        if parameter.default is not parameter.empty:
            found[name] = _as_json(parameter.default)
    return found


def _as_json(value: object) -> Any:
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        return str(value)
