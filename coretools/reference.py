"""Reference pages in Markdown, and the table of tools, made from the documentation model. Pure.

`coretools docs --write DIRECTORY` writes the pages; a test compares what is in the tree with what the declarations say.
"""

import json
import re
from collections.abc import Iterable

from coretools.documentation import CommandPage, Documentation, ParameterPage
from coretools.errors import BadSetting

INDEX = "README.md"

TABLE_START = "<!-- tools: written by `coretools docs`, do not edit -->"
TABLE_END = "<!-- /tools -->"
"""Between these two lines of a page stands the table of tools."""

_INTRODUCTION = (
    "Every command, by its tool set. On a command line the words of the first column stand behind `coretools`;\n"
    "the second is its name to a client of the protocol. Lower bounds of 0 and 1 go without saying."
)

_EFFECTS = {"read": "reads", "add": "adds", "change": "changes"}
WRITTEN_BY = "<!-- Written by `coretools docs --write` from the declarations; edit those. -->"


def pages(documentation: Documentation) -> dict[str, str]:
    """Every page by the name of its file: an index, and one for each tool set."""
    sets = documentation.tool_sets
    found = {INDEX: _index(documentation)}
    for tool_set, commands in sets.items():
        found[page_name(tool_set)] = _set_page(tool_set, commands)
    return found


def page_name(tool_set: str) -> str:
    """The file of a tool set."""
    return f"{re.sub(r'[^a-z0-9_-]+', '-', tool_set.lower()) or 'commands'}.md"


def tool_table(documentation: Documentation) -> str:
    """The tools of each set in a line."""
    lines = ["| set | tools |", "|---|---|"]
    for tool_set, commands in documentation.tool_sets.items():
        names = " ".join(f"`{command.name}`" for command in commands if _is_tool(command))
        if names:
            lines.append(f"| {cell(tool_set)} | {names} |")
    return "\n".join(lines)


def with_table(text: str, table: str) -> str:
    """A page with the table of tools in its place.

    Raises:
        BadSetting: the page has no such place.
    """
    before, start, rest = text.partition(TABLE_START)
    _, end, after = rest.partition(TABLE_END)
    if not start or not end:
        raise BadSetting(f"the page has no place for the table of tools; add the lines {TABLE_START} and {TABLE_END}")
    return f"{before}{start}\n\n{table}\n\n{end}{after}"


def _index(documentation: Documentation) -> str:
    lines = [WRITTEN_BY, "", "# Reference", "", _INTRODUCTION, ""]
    lines += ["| command | name | effect | what it does |", "|---|---|---|---|"]
    for tool_set, commands in documentation.tool_sets.items():
        page = page_name(tool_set)
        for command in commands:
            words = f"[`{cell(command.words)}`]({page}#{command.name})"
            said = cell(_prose(_sentence(command.summary)))
            lines.append(f"| {words} | `{command.name}` | {_EFFECTS[command.effect]} | {said} |")
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
    lines += ["", f"`coretools {usage(command)}`", "", f"- {_what(command)}"]
    if command.uri:
        lines.append(f"- resource: `{command.uri}` ({command.mime_type})")
    if command.for_agents:
        lines.append(f"- profiles: {', '.join((*command.profiles, 'all'))}")
    else:
        lines.append("- for people only: no agent is offered it")
    if command.asks:
        lines.append(f"- asks: {', '.join(f'`{key}`' for key in command.asks)} (`--answer KEY=VALUE`)")
    if command.metadata:
        lines.append(f"- metadata: `{json.dumps(command.metadata, ensure_ascii=False, sort_keys=True)}`")
    return [*lines, "", *_parameter_table(command.parameters)]


def usage(command: CommandPage) -> str:
    """How it is typed: its words, what must be given in order, and that there are options."""
    in_route = {word[1:-1] for word in command.route if word.startswith("{")}
    words = [word[1:-1].upper() if word.startswith("{") else word for word in command.route]
    for parameter in command.parameters:
        if parameter.is_required and parameter.name not in in_route:
            many = " ..." if parameter.schema.get("type") == "array" else ""
            words.append(f"{parameter.name.upper()}{many}")
    has_options = any(not parameter.is_required for parameter in command.parameters)
    return " ".join((*words, *(["[options]"] if has_options else [])))


def said_of(parameter: ParameterPage) -> str:
    """Description, choices and limits of a parameter, in one line."""
    said = [parameter.description.rstrip(".")] if parameter.description else []
    if parameter.choices:
        said.append("one of " + ", ".join(str(choice) for choice in parameter.choices))
    return "; ".join((*said, *parameter.limits))


def _what(command: CommandPage) -> str:
    hints = command.hints
    said = [", ".join(command.surfaces), _EFFECTS[command.effect]]
    said += ["idempotent"] if hints["idempotent"] and not hints["read_only"] else []
    said += ["reaches beyond the roots"] if hints["open_world"] else []
    said += ["may take long"] if hints["long_running"] else []
    said += ["structured result"] if command.is_structured else []
    return "; ".join(said)


def _parameter_table(parameters: Iterable[ParameterPage]) -> list[str]:
    rows = _rows(parameters, "")
    return ["| parameter | type | default | |", "|---|---|---|---|", *rows] if rows else ["No parameters."]


def _rows(parameters: Iterable[ParameterPage], prefix: str) -> list[str]:
    """A row for each, and for what is in it."""
    rows = []
    for one in parameters:
        default = "required" if one.is_required else f"`{json.dumps(one.default, ensure_ascii=False)}`"
        rows.append(f"| `{prefix}{one.name}` | {cell(one.type)} | {cell(default)} | {cell(_prose(said_of(one)))} |")
        rows += _rows(one.fields, f"{prefix}{one.name}{'[]' if one.type.startswith('list') else ''}.")
    return rows


def _is_tool(command: CommandPage) -> bool:
    return command.for_agents and "tool" in command.surfaces


def _sentence(text: str) -> str:
    """The first sentence."""
    return text.partition(". ")[0].rstrip(".")


def _prose(text: str) -> str:
    """Text whose stars are stars, but for what stands between backticks."""
    parts = text.split("`")
    return "`".join(part if at % 2 else part.replace("*", "\\*") for at, part in enumerate(parts))


def cell(text: str) -> str:
    """A text as one cell of a table."""
    return " ".join(text.replace("|", "\\|").split())
