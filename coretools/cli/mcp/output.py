"""What `coretools mcp` prints of foreign servers. Nothing of it can control the terminal or forge a line.

Names and results come from anybody: control characters and those that reorder text are written as escapes, whether the
output is a terminal or a pipe, which may end in one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import mcp_types as types

from coretools.cli.common.manual import truncate
from coretools.cli.common.terminal import escape_controls

_MISLEADING = re.compile("[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
"""Unicode's bidirectional formatting characters (UAX 9), line separators, and characters that are not seen, with which
two names look the same. Those that join letters or emoji are left as they are."""

MAX_SHOWN = 2_000
"""Characters of each argument that an approval shows: half of its begin, half of its end."""


def visible(text: str) -> str:
    """Escape what would control a terminal, reorder its text or not be seen; keep line breaks and tabs."""
    return _MISLEADING.sub(lambda found: found[0].encode("unicode_escape").decode(), escape_controls(text))


def in_line(text: str) -> str:
    """The same on one line, in which no pipeline finds a command."""
    return without_commands(" ".join(visible(text).split()))


def without_commands(text: str) -> str:
    """Escape the mark of commands that GitHub Actions takes anywhere in a line."""
    return text.replace("##[", "#\\x23[")


def table(rows: Sequence[Sequence[str]], width: int) -> str:
    """Return columns, with the last one cut at the width of the terminal."""
    shown = [[in_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in shown) for at in range(len(shown[0]))]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in shown]
    return "\n".join(truncate(line, width) for line in lines)


def tool_page(tool: types.Tool) -> str:
    """Return a tool with its arguments."""
    schema = tool.input_schema
    properties = schema.get("properties")
    required = schema.get("required")
    lines = [in_line(tool.name), "", visible(tool.description or ""), ""]
    for name, given in properties.items() if isinstance(properties, dict) else ():
        shape = given if isinstance(given, dict) else {}
        need = "required" if isinstance(required, list) and name in required else "optional"
        text = f"{name} ({shape.get('type', 'any')}, {need}): {shape.get('description', '')}"
        lines.append(f"  {in_line(text)}")
    return "\n".join(lines)


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
    lines = [f"  {_name(name)} = {_shortened(visible(_json(value)))}" for name, value in arguments.items()]
    return "\n".join(lines) or "  no arguments"


def _name(name: str) -> str:
    """A plain name as it is; one that could be taken for more than a name as JSON."""
    return name if name.isidentifier() and name.isascii() else _shortened(visible(_json(name)))


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
