"""What the command line prints: a result for a person or as JSON, the tools as a table."""

import json
import textwrap
from collections.abc import Sequence

import mcp_types as types

from coretools.cli.manual import cut
from coretools.protocol.listing import LONG_RUNNING_KEY


def result_text(result: types.CallToolResult) -> str:
    """The text of a result, one block a line."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def tools_table(tools: Sequence[types.Tool], width: int) -> str:
    """The tools, a line each: name, what it does to the world, first sentence."""
    longest = max((len(tool.name) for tool in tools), default=0)
    lines = []
    for tool in tools:
        sentence = (tool.description or "").split(". ")[0].rstrip(".")
        line = f"{tool.name:<{longest}}  {effect_of(tool):<7} {sentence}"
        lines.append(cut(line, width))
    return "\n".join(lines)


def effect_of(tool: types.Tool) -> str:
    """What a tool does to the world, in one word."""
    hints = tool.annotations or types.ToolAnnotations()
    if hints.read_only_hint:
        return "reads"
    return "changes" if hints.destructive_hint else "adds"


def tool_page(tool: types.Tool) -> str:
    """One tool with its arguments."""
    required = set(tool.input_schema.get("required", ()))
    notes = " Long-running." if (tool.meta or {}).get(LONG_RUNNING_KEY) else ""
    lines = [f"{tool.name} ({effect_of(tool)}){notes}", "", *textwrap.wrap(tool.description or "", 100), ""]
    for name, schema in tool.input_schema.get("properties", {}).items():
        default = "required" if name in required else f"default {json.dumps(schema.get('default'))}"
        said = f": {schema['description']}" if "description" in schema else ""
        lines.append(f"  {name} ({schema.get('type', 'object')}, {default}){said}")
    return "\n".join(lines)
