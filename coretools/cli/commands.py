"""What `coretools tools` prints, of a server inside this process."""

import difflib
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import mcp_types as types
from mcp import Client

from coretools.app.assembly import assembled
from coretools.cli.render import tool_page, tools_table
from coretools.cli.terminal import Screen, coloured_table, put
from coretools.config.settings import Settings
from coretools.errors import UnknownTool
from coretools.protocol.server import build_server

# A real server inside this process, and a real client of it: what `coretools tools` lists comes from it.


@asynccontextmanager
async def in_process(settings: Settings) -> AsyncIterator[Client]:
    """A client connected to a server with these settings. At the end every child of the server is gone.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    async with assembled(settings, dict(os.environ)) as assembly:
        # Who types a call at a shell may say yes in it.
        asking = replace(settings.asking, trusts_answers=True)
        server = build_server(
            assembly.catalog, assembly.dispatcher, assembly.identity, assembly.resources, asking=asking
        )
        async with Client(server, cache=None) as client:
            yield client


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
