"""`coretools mcp call`: check the arguments, ask for approval, call, print the result."""

from collections.abc import Sequence
from difflib import get_close_matches

import mcp_types as types

from coretools.cli.mcp_approval import require_approval
from coretools.cli.mcp_line import Line, connected
from coretools.cli.mcp_output import in_line, result_json, result_text
from coretools.cli.terminal import print_error, print_text
from coretools.client.approvals import ProposedCall
from coretools.client.arguments import check_arguments, parse_arguments
from coretools.client.decisions import server_digest
from coretools.client.errors import SchemaMismatch, ToolFailed
from coretools.errors import InvalidArguments, NotFound, UnknownTool

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Largest file that an argument takes its value from."""


async def call(line: Line) -> int:
    """Call a tool."""
    name, tool_name, *given = line.options.words
    entry = line.startable(name)
    async with connected(line, [entry]) as connections:
        connection = connections[name]
        await connection.wait_settled()
        tool = find_tool(await connection.tools(), name, tool_name)
        arguments = parse_arguments(given, tool.input_schema, _read_file)
        try:
            check_arguments(arguments, tool.input_schema)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"server {name!r}: tool {tool_name!r}: {error}") from error
        proposed = ProposedCall(name, server_digest(entry, line.environment), tool, arguments)
        await require_approval(line, proposed, connection.tools)
        with line.screen.progress() as show:
            result = await connection.call(tool_name, arguments, show)
        for remark in connection.remarks():
            print_error(in_line(f"server {name!r}: {remark}"))
    if line.options.as_json:
        code = print_text(result_json(name, tool_name, result))
    else:
        text = result_text(result)
        code = print_text(text) if text else 0
    return code or (ToolFailed.exit_code if result.is_error else 0)


def find_tool(tools: Sequence[types.Tool], server: str, name: str) -> types.Tool:
    """Return a tool by name.

    Raises:
        UnknownTool: the server has none of this name.
    """
    for tool in tools:
        if tool.name == name:
            return tool
    near = get_close_matches(name, [tool.name for tool in tools], n=1)
    meant = f"; did you mean {near[0]}?" if near else f"; `coretools mcp tools {server}` lists them"
    raise UnknownTool(f"server {server!r} has no tool {name!r}{meant}")


def _read_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise NotFound(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise InvalidArguments(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArguments(f"{path}: not UTF-8 text") from error
