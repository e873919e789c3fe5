"""What `coretools mcp` prints of foreign servers. Nothing of it can control the terminal or forge a line.

Names and results come from anybody: control characters and those that reorder text or are not seen are written as
escapes, whether the output is a terminal or a pipe, which may end in one.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import mcp_types as types

from coretools.cli.common.terminal import aligned, truncate
from coretools.client.approval.decisions import approved_part
from coretools.client.common.arguments import schema_types
from coretools.client.common.visible_text import JOINERS, escape_invisible

MAX_SHOWN = 2_000
"""Characters of each argument that an approval shows: half of its begin, half of its end."""


def visible(text: str) -> str:
    """Escape what would control a terminal, reorder its text or not be seen; keep line breaks, tabs and joiners.

    For results and other content. What somebody decides about is shown by `in_line` or `block`.
    """
    return escape_invisible(text, kept=JOINERS)


def in_line(text: str) -> str:
    """Return the same on one line, without joiners; no pipeline finds a command in it."""
    return without_commands(" ".join(escape_invisible(text).split()))


def block(text: str) -> str:
    """Return text of several lines, each with a mark at its beginning that no text can forge."""
    return "\n".join(f"  | {without_commands(escape_invisible(line))}" for line in text.split("\n"))


def without_commands(text: str) -> str:
    """Escape the mark of commands that GitHub Actions takes anywhere in a line."""
    return text.replace("##[", "#\\x23[")


def table(rows: Sequence[Sequence[str]], width: int) -> str:
    """Return columns, with the last one cut at the width of the terminal."""
    return "\n".join(truncate(line, width) for line in aligned([list(map(in_line, row)) for row in rows]))


def tool_page(tool: types.Tool) -> str:
    """Return the whole declaration of a tool: what an approval is about, and what a model can see."""
    declared = approved_part(tool.model_dump(mode="json", by_alias=True, exclude_none=True))
    name, description, schema = declared.pop("name"), declared.pop("description", ""), declared.pop("inputSchema")
    lines = [in_line(name), "", block(description), "", *_argument_lines(schema), ""]
    for key, value in ({"inputSchema": schema} | declared).items():
        lines.append(block(f"{key}: {json.dumps(value, ensure_ascii=False, indent=2)}"))
    return "\n".join(lines)


def signature(tool: types.Tool) -> str:
    """Return a tool with its arguments and their types, as on one line of a declaration."""
    properties, required = tool.input_schema.get("properties"), tool.input_schema.get("required")
    shown = []
    for name, shape in properties.items() if isinstance(properties, dict) else ():
        is_required = isinstance(required, list) and name in required
        choices = shape.get("enum") if isinstance(shape, dict) else None
        types_ = map(str, choices) if isinstance(choices, list) else sorted(schema_types(shape))
        shown.append(f"{name}{'' if is_required else '?'}: {'|'.join(types_) or 'any'}")
    return f"{tool.name}({', '.join(shown)})"


def _argument_lines(schema: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a tool in short; the schema has the rest."""
    properties, required = schema.get("properties"), schema.get("required")
    lines = []
    for name, given in properties.items() if isinstance(properties, dict) else ():
        shape = given if isinstance(given, dict) else {}
        need = "required" if isinstance(required, list) and name in required else "optional"
        text = f"{name} ({shape.get('type', 'any')}, {need}): {shape.get('description', '')}"
        lines.append(f"  {in_line(text)}")
    return lines


def result_text(result: types.CallToolResult) -> str:
    """Return the content of a result: text as it is, other blocks by their kind and size."""
    blocks = [block_text(block) for block in result.content]
    if not blocks and result.structured_content is not None:
        blocks = [json.dumps(result.structured_content, ensure_ascii=False, indent=2)]
    return visible("\n".join(blocks))


def result_json(server: str, tool: str, result: types.CallToolResult, error: Mapping[str, Any] | None) -> str:
    """Return a result as one JSON object of a fixed shape; `error` says which assertion failed."""
    shape = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return as_json(
        {
            "server": server,
            "tool": tool,
            "ok": not result.is_error and error is None,
            "content": shape.get("content", []),
            "structuredContent": shape.get("structuredContent"),
            "error": error,
        }
    )


def as_json(value: Any) -> str:
    """Return JSON in ASCII: control characters are escaped, and so is the mark of a command of GitHub Actions."""
    return json.dumps(value, ensure_ascii=True, indent=2).replace("##[", "#\\u0023[")


def event_line(event: str, facts: Mapping[str, Any]) -> str:
    """Return an event as one line of JSON, with the time."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"event": event, "time": now, **facts}, ensure_ascii=True).replace("##[", "#\\u0023[")


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Return arguments as an approval shows them: a long one never hides another."""
    lines = [f"  {_name(name)} = {_shortened(escape_invisible(_json(value)))}" for name, value in arguments.items()]
    return "\n".join(lines) or "  no arguments"


def _name(name: str) -> str:
    """A plain name as it is; one that could be taken for more than a name as JSON."""
    return name if name.isidentifier() and name.isascii() else _shortened(escape_invisible(_json(name)))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shortened(text: str) -> str:
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2
    return f"{text[:half]} [... {len(text) - MAX_SHOWN} more characters ...] {text[-half:]}"


def block_text(block: types.ContentBlock) -> str:
    """Return a block of content as text, with controls as they are; of binary content its kind and size."""
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.EmbeddedResource):
        resource = block.resource
        return resource.text if isinstance(resource, types.TextResourceContents) else f"[resource {resource.uri}]"
    if isinstance(block, types.ResourceLink):
        return f"[resource {block.uri}]"
    return f"[{block.type} {block.mime_type}, {len(block.data) * 3 // 4} bytes; --output json has it]"
