"""What `coretools tools` prints, of a server inside this process."""

import difflib
import json
import os
import shutil

import mcp_types as types

from coretools.client.colour import coloured_table
from coretools.client.output import put
from coretools.client.render import (
    tool_page,
    tools_table,
)
from coretools.client.session import in_process
from coretools.client.terminal import Screen
from coretools.errors import UnknownTool
from coretools.settings import Settings


async def tools(settings: Settings, name: str | None, as_json: bool) -> int:
    """Print the tools of a profile, or one of them with its arguments."""
    async with in_process(settings) as client:
        found = (await client.list_tools()).tools
    chosen = [_find(found, name)] if name else found
    if as_json:
        shapes = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in chosen]
        return put(json.dumps(shapes, ensure_ascii=False, indent=2))
    if name:
        return put(tool_page(chosen[0]))
    table = tools_table(chosen, shutil.get_terminal_size((100, 24)).columns)
    return put(coloured_table(table) if Screen.of(os.environ).has_colours else table)


def _find(tools: list[types.Tool], name: str) -> types.Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    close = difflib.get_close_matches(name, [tool.name for tool in tools], n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise UnknownTool(f"no tool {name!r} here; {meant}`coretools tools` lists them")
