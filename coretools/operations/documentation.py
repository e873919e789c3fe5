"""The documentation of every command as data, and the reference pages in Markdown made from it.

Built only from the declarations, so no text about a command is written twice. `coretools docs --write DIRECTORY` writes
the pages, and a test compares them with the declarations; `coretools.cli.common.manual` formats help from the same
data.
"""

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from coretools.config.settings import PROFILES
from coretools.errors import BadSetting
from coretools.operations.arguments import ANSWERS
from coretools.operations.command import Command
from coretools.operations.declare import Declaration, Surface
from coretools.operations.docstring import docstring_of
from coretools.operations.json_schema import understood
from coretools.operations.registry import Registry
from coretools.operations.route import Context

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
"""Keywords of JSON Schema that limit a value, with their wording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterPage:
    """One parameter of a command."""

    name: str
    type: str
    """Its JSON type: `string`, `integer`, `list of string`, `object`, `integer or string`, `any`."""
    is_required: bool
    default: Any
    """As a JSON value; null also without a default."""
    description: str
    choices: tuple[Any, ...]
    limits: tuple[str, ...]
    fields: tuple["ParameterPage", ...]
    """Fields of an object, or of the objects in a list."""
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPage:
    """One command."""

    route: tuple[str, ...]
    name: str
    tool_set: str
    summary: str
    details: str
    """The rest of the docstring and the declared details."""
    effect: str
    hints: Mapping[str, bool]
    """The four annotations of the protocol, and `long_running`."""
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
        """The words of its route, without arguments."""
        return " ".join(self.route)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """The documentation of all commands, in registration order."""

    contexts: tuple[Context, ...]
    commands: tuple[CommandPage, ...]

    def as_json(self) -> dict[str, Any]:
        """The documentation as JSON values."""
        plain: dict[str, Any] = to_jsonable_python(asdict(self))
        return plain

    @property
    def tool_sets(self) -> dict[str, list[CommandPage]]:
        """The commands of each tool set, in their order."""
        sets: dict[str, list[CommandPage]] = {}
        for command in self.commands:
            sets.setdefault(command.tool_set, []).append(command)
        return sets


def documentation_of(commands: Registry | Iterable[Command], contexts: Iterable[Context] = ()) -> Documentation:
    """The documentation of a registry, or of some of its commands. Hidden commands are left out."""
    described = commands.contexts if isinstance(commands, Registry) else contexts
    return Documentation(
        contexts=tuple(described),
        commands=tuple(document_command(command) for command in commands if not command.declaration.is_hidden),
    )


def document_command(command: Command) -> CommandPage:
    """The documentation of one command, hidden or not."""
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
        is_structured=command.return_type.is_structured,
        metadata=declared.metadata,
    )


def type_name(schema: Mapping[str, Any]) -> str:
    """The name of a schema's type."""
    if "$ref" in schema:  # a model that contains itself
        return "object"
    arms = schema.get("anyOf") or schema.get("oneOf")
    if arms:
        return " or ".join(dict.fromkeys(type_name(arm) for arm in arms))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {type_name(schema.get('items', {}))}"
    if kind is None and "enum" in schema:
        return "string"
    return str(kind or "any")


def choices_of(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values that a schema allows; for a list those of its items."""
    if "const" in schema:
        return (schema["const"],)
    if schema.get("type") == "array":
        return choices_of(schema.get("items", {}))
    return tuple(schema.get("enum", ()))


def _details(command: Command) -> str:
    rest = docstring_of(command.function).details
    return "\n\n".join(filter(None, (rest, command.declaration.details.strip())))


def _hints(declared: Declaration) -> dict[str, bool]:
    return {
        "read_only": declared.read_only,
        "destructive": declared.destructive,
        "idempotent": declared.idempotent,
        "open_world": declared.open_world,
        "long_running": declared.long_running,
    }


def _parameters(command: Command) -> tuple[ParameterPage, ...]:
    schema = command.arguments.schema()
    # A schema of somebody else may be anything that JSON Schema allows.
    shown = schema if command.declaration.input_schema is None else understood(schema, _BOUNDS)
    fields = _fields(shown, _defaults(command))
    return tuple(one for one in fields if not (one.name == ANSWERS and command.declaration.asks))


def _fields(schema: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[ParameterPage, ...]:
    required = schema.get("required", ())
    return tuple(
        ParameterPage(
            name=name,
            type=type_name(shape),
            is_required=name in required,
            default=defaults.get(name, shape.get("default")),
            description=shape.get("description", ""),
            choices=choices_of(shape),
            limits=tuple(text.format(shape[keyword]) for keyword, text in _BOUNDS.items() if keyword in shape),
            fields=_fields(shape.get("items", shape), {}),
            schema=shape,
        )
        for name, shape in schema.get("properties", {}).items()
    )


def _defaults(command: Command) -> dict[str, Any]:
    """Defaults from the signature, because the schema leaves out redundant ones."""
    if command.declaration.input_schema is not None:
        return {}
    defaults = {}
    for name, parameter in inspect.signature(command.function).parameters.items():
        if parameter.default is not parameter.empty:
            defaults[name] = _as_json(parameter.default)
    return defaults


def _as_json(value: object) -> Any:
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        return str(value)


# Reference pages in Markdown

INDEX = "README.md"

TABLE_START = "<!-- tools: written by `coretools docs`, do not edit -->"
TABLE_END = "<!-- /tools -->"
"""The lines of a page between which the table of tools is written."""

_PROFILES = (
    "The tools by their sets, and by the profiles that list them; `all` lists every one. `dev` is the default, and\n"
    "`--read-only` takes precedence over every profile."
)

_INTRODUCTION = (
    "Every command, by its tool set. On a command line the words of the first column stand behind `coretools`;\n"
    "the second is its name to a client of the protocol. Lower bounds of 0 and 1 go without saying."
)

_EFFECTS = {"read": "reads", "add": "adds", "change": "changes"}
WRITTEN_BY = "<!-- Written by `coretools docs --write` from the declarations; edit those. -->"


def pages(documentation: Documentation) -> dict[str, str]:
    """All pages by file name: an index, and one for each tool set."""
    sets = documentation.tool_sets
    texts = {INDEX: _index(documentation)}
    for tool_set, commands in sets.items():
        texts[page_name(tool_set)] = _set_page(tool_set, commands)
    return texts


def page_name(tool_set: str) -> str:
    """The file name of a tool set's page."""
    return f"{re.sub(r'[^a-z0-9_-]+', '-', tool_set.lower()) or 'commands'}.md"


def tool_table(documentation: Documentation) -> str:
    """A table with the tools of each set in a row."""
    lines = ["| set | tools |", "|---|---|"]
    for tool_set, commands in documentation.tool_sets.items():
        names = [f"`{command.name}`" for command in commands if command.for_agents and "tool" in command.surfaces]
        if names:
            lines.append(f"| {cell(tool_set)} | {' '.join(names)} |")
    return "\n".join(lines)


def _profile_table(documentation: Documentation) -> list[str]:
    """The tools of each set, in columns by the profiles that list them besides `all`."""
    tools = [one for one in documentation.commands if one.for_agents and "tool" in one.surfaces]
    columns = dict.fromkeys(_listed_in(one) for one in sorted(tools, key=lambda one: -len(set(one.profiles))))
    lines = [
        f"| set | {' | '.join(', '.join(column) or 'only `all`' for column in columns)} |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for tool_set in dict.fromkeys(one.tool_set for one in tools):
        named = [
            " ".join(f"`{one.name}`" for one in tools if one.tool_set == tool_set and _listed_in(one) == column)
            for column in columns
        ]
        lines.append(f"| {cell(tool_set)} | {' | '.join(named)} |")
    return lines


def _listed_in(command: CommandPage) -> tuple[str, ...]:
    return tuple(profile for profile in PROFILES[:-1] if profile in command.profiles)


def insert_table(text: str, table: str) -> str:
    """Replace the table of tools in a page.

    Raises:
        BadSetting: the page lacks the two marker lines.
    """
    before, start, rest = text.partition(TABLE_START)
    _, end, after = rest.partition(TABLE_END)
    if not start or not end:
        raise BadSetting(f"the page has no place for the table of tools; add the lines {TABLE_START} and {TABLE_END}")
    return f"{before}{start}\n\n{table}\n\n{end}{after}"


def _index(documentation: Documentation) -> str:
    lines = [WRITTEN_BY, "", "# Reference", "", _PROFILES, "", *_profile_table(documentation), "", _INTRODUCTION, ""]
    lines += ["| command | name | effect | what it does |", "|---|---|---|---|"]
    for tool_set, commands in documentation.tool_sets.items():
        page = page_name(tool_set)
        for command in commands:
            words = f"[`{cell(command.words)}`]({page}#{command.name})"
            summary = cell(_prose(_sentence(command.summary)))
            lines.append(f"| {words} | `{command.name}` | {_EFFECTS[command.effect]} | {summary} |")
    for context in documentation.contexts:
        if context.summary:
            lines += ["", f"`{' '.join(context.words)}`: {_prose(context.summary)}"]
    return "\n".join(lines) + "\n"


def _set_page(tool_set: str, commands: Iterable[CommandPage]) -> str:
    lines = [WRITTEN_BY, "", f"# {tool_set or 'commands'}", "", f"[All tool sets]({INDEX})"]
    for command in commands:
        lines += ["", *_command(command)]
    return "\n".join(lines) + "\n"


def _command(command: CommandPage) -> list[str]:
    lines = [f"## {command.name}", "", _prose(command.summary)]
    lines += ["", _prose(command.details)] if command.details else []
    lines += ["", f"`coretools {usage(command)}`", "", f"- {_properties(command)}"]
    if command.uri:
        lines.append(f"- resource: `{command.uri}` ({command.mime_type})")
    if command.for_agents:
        lines.append(f"- profiles: {', '.join(dict.fromkeys((*command.profiles, 'all')))}")
    else:
        lines.append("- for people only: no agent is offered it")
    if command.asks:
        lines.append(f"- asks: {', '.join(f'`{key}`' for key in command.asks)} (`--answer KEY=VALUE`)")
    if command.metadata:
        lines.append(f"- metadata: `{json.dumps(command.metadata, ensure_ascii=False, sort_keys=True)}`")
    return [*lines, "", *_parameter_table(command.parameters)]


def usage(command: CommandPage) -> str:
    """The usage line: its words, the required arguments in order, and `[options]`."""
    in_route = {word[1:-1] for word in command.route if word.startswith("{")}
    optional = {parameter.name for parameter in command.parameters if not parameter.is_required}
    words = []
    for word in command.route:
        name = word[1:-1].upper() if word.startswith("{") else word
        words.append(f"[{name}]" if word.startswith("{") and word[1:-1] in optional else name)
    for parameter in command.parameters:
        if parameter.is_required and parameter.name not in in_route:
            many = " ..." if parameter.schema.get("type") == "array" else ""
            words.append(f"{parameter.name.upper()}{many}")
    has_options = any(not parameter.is_required for parameter in command.parameters)
    return " ".join((*words, *(["[options]"] if has_options else [])))


def describe_parameter(parameter: ParameterPage) -> str:
    """Description, choices and limits of a parameter, in one line."""
    parts = [parameter.description.rstrip(".")] if parameter.description else []
    if parameter.choices:
        parts.append("one of " + ", ".join(str(choice) for choice in parameter.choices))
    return "; ".join((*parts, *parameter.limits))


def _properties(command: CommandPage) -> str:
    hints = command.hints
    parts = [", ".join(command.surfaces), _EFFECTS[command.effect]]
    parts += ["idempotent"] if hints["idempotent"] and not hints["read_only"] else []
    parts += ["reaches beyond the roots"] if hints["open_world"] else []
    parts += ["may take long"] if hints["long_running"] else []
    parts += ["structured result"] if command.is_structured else []
    return "; ".join(parts)


def _parameter_table(parameters: Iterable[ParameterPage]) -> list[str]:
    rows = _rows(parameters, "")
    return ["| parameter | type | default | |", "|---|---|---|---|", *rows] if rows else ["No parameters."]


def _rows(parameters: Iterable[ParameterPage], prefix: str) -> list[str]:
    """A row for each parameter, followed by rows for its fields."""
    rows = []
    for one in parameters:
        default = "required" if one.is_required else f"`{json.dumps(one.default, ensure_ascii=False)}`"
        rows.append(
            f"| `{prefix}{one.name}` | {cell(one.type)} | {cell(default)} | {cell(_prose(describe_parameter(one)))} |"
        )
        rows += _rows(one.fields, f"{prefix}{one.name}{'[]' if one.type.startswith('list') else ''}.")
    return rows


def _sentence(text: str) -> str:
    """The first sentence."""
    return text.partition(". ")[0].rstrip(".")


def _prose(text: str) -> str:
    """Markdown with stars escaped, except between backticks."""
    parts = text.split("`")
    return "`".join(part if at % 2 else part.replace("*", "\\*") for at, part in enumerate(parts))


def cell(text: str) -> str:
    """Text as one cell of a table."""
    return " ".join(text.replace("|", "\\|").split())
