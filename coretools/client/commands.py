"""What `coretools call` and `coretools tools` do, on a server inside this process."""

import difflib
import json
import os
import shutil
from dataclasses import dataclass

import mcp_types as types
from mcp import Client

from coretools.client.arguments import parse_arguments
from coretools.client.colour import coloured_table
from coretools.client.output import complain, put
from coretools.client.render import (
    error_json,
    error_kind,
    has_failed,
    result_json,
    result_text,
    still_running,
    tool_page,
    tools_table,
)
from coretools.client.session import in_process
from coretools.client.terminal import Screen, escaped
from coretools.errors import CoreError, UnknownTool, exit_code_of
from coretools.serving.ending import Ending, until_signalled
from coretools.settings import Settings

FAILED = 1
"""Exit code when the call worked and what it ran failed."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call as it stands on the command line."""

    tool: str
    words: list[str]
    as_json: bool


async def call(settings: Settings, request: Request) -> int:
    """Call one tool and print its result: text on stdout, or JSON; an error's sentence on stderr.

    Returns:
        The exit code, by kind of failure.
    """
    ending = Ending()
    exit_code = 0
    async with in_process(settings) as client, until_signalled(ending):
        exit_code = await _call(client, request)
    return ending.exit_code or exit_code


async def _call(client: Client, request: Request) -> int:
    try:
        tool = _find((await client.list_tools()).tools, request.tool)
        arguments = parse_arguments(request.words, tool.input_schema)
    except CoreError as error:
        # Not raised: the task groups around would wrap it.
        if request.as_json:
            put(error_json(request.tool, error))  # the error's own exit code says more
        else:
            complain(str(error))
        return error.exit_code
    result = await client.call_tool(request.tool, arguments)
    kind = error_kind(result)
    unprinted = 0
    if request.as_json:
        unprinted = put(result_json(request.tool, result))
    elif kind is None:
        text = result_text(result)
        unprinted = put(escaped(text) if Screen.of(os.environ).shows_results else text)
    else:
        complain(result_text(result))
    run = still_running(result)
    if run is not None:
        complain(f"{run} still ran and is stopped: a run ends with the process that started it, which ends now")
    if kind is not None:
        return exit_code_of(kind)
    return FAILED if has_failed(result) else unprinted


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
