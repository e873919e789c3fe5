"""`coretools tools`: list the tools, as a client gets them from a server inside this process."""

import difflib
import json
import os
import shutil
import textwrap
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import mcp_types as types
from mcp import Client

from coretools.app.assembly import open_assembly
from coretools.cli.common.colours import colour_tools_table
from coretools.cli.common.terminal import TerminalCapabilities, print_text, truncate
from coretools.config.settings import Settings
from coretools.errors import UnknownTool
from coretools.protocol.listing import LONG_RUNNING_KEY
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.protocol.server import ServerOptions, build_server


def result_text(result: types.CallToolResult) -> str:
    """Return the text of a result, one block per line."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def tools_table(tools: Sequence[types.Tool], width: int) -> str:
    """Return a table of the tools: name, effect, first sentence of the description."""
    longest = max((len(tool.name) for tool in tools), default=0)
    lines = []
    for tool in tools:
        sentence = (tool.description or "").split(". ")[0].rstrip(".")
        line = f"{tool.name:<{longest}}  {effect_of(tool):<7} {sentence}"
        lines.append(truncate(line, width))
    return "\n".join(lines)


def effect_of(tool: types.Tool) -> str:
    """Return the effect of a tool in one word."""
    hints = tool.annotations or types.ToolAnnotations()
    if hints.read_only_hint:
        return "reads"
    return "changes" if hints.destructive_hint else "adds"


def tool_page(tool: types.Tool) -> str:
    """Return the page of one tool with its arguments."""
    required = set(tool.input_schema.get("required", ()))
    notes = " Long-running." if (tool.meta or {}).get(LONG_RUNNING_KEY) else ""
    lines = [f"{tool.name} ({effect_of(tool)}){notes}", "", *textwrap.wrap(tool.description or "", 100), ""]
    for name, schema in tool.input_schema.get("properties", {}).items():
        default = "required" if name in required else f"default {json.dumps(schema.get('default'))}"
        description = f": {schema['description']}" if "description" in schema else ""
        lines.append(f"  {name} ({schema.get('type', 'object')}, {default}){description}")
    return "\n".join(lines)


@asynccontextmanager
async def in_process(settings: Settings) -> AsyncIterator[Client]:
    """Return a client of a server in this process, with these settings. At the end no child process remains.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    async with open_assembly(settings, dict(os.environ)) as assembly:
        # The person who types a call may give a confirmation in it.
        asking = replace(settings.asking, trusts_answers=True)
        options = ServerOptions(runs=assembly.resources, questions=QuestionFactory(asking))
        server = build_server(assembly.catalog, assembly.dispatcher, assembly.identity, options)
        async with Client(server, cache=None) as client:
            yield client


async def tools(settings: Settings, name: str | None, as_json: bool) -> int:
    """Print the tools of a profile, or one of them with its arguments."""
    async with in_process(settings) as client:
        listed = (await client.list_tools()).tools
    chosen = [_find(listed, name)] if name else listed
    if as_json:
        shapes = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in chosen]
        return print_text(json.dumps(shapes, ensure_ascii=False, indent=2))
    if name:
        return print_text(tool_page(chosen[0]))
    table = tools_table(chosen, shutil.get_terminal_size((100, 24)).columns)
    return print_text(colour_tools_table(table) if TerminalCapabilities.of(os.environ).has_colours else table)


def _find(tools: list[types.Tool], name: str) -> types.Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    close = difflib.get_close_matches(name, [tool.name for tool in tools], n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise UnknownTool(f"no tool {name!r} here; {meant}`coretools tools` lists them, with --profile all the others too")
