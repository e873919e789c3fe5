"""One echo tool on the SDK's lowlevel server and on our transport: what a call costs before any of our dispatch."""

from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from coretools.protocol.stdio.transport import claim_standard_streams, stdio_streams

LINE_BYTES = 16 * 1024 * 1024

ECHO = types.Tool(
    name="echo",
    description="Say the text again.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


async def list_tools(
    context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    del context, params
    return types.ListToolsResult(tools=[ECHO])


async def call_tool(context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
    del context
    text = str((params.arguments or {})["text"])
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def input_schema(name: str) -> dict[str, Any] | None:
    """Given to the SDK, which otherwise calls `list_tools` for it on stateless calls."""
    return ECHO.input_schema if name == ECHO.name else None


async def serve() -> None:
    """Serve until the client closes its end."""
    server: Server[Any] = Server(
        "bare", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=input_schema
    )
    with claim_standard_streams() as wire:
        async with stdio_streams(wire, LINE_BYTES, lambda: None) as streams:
            await server.run(*streams, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(serve)
