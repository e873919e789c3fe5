"""The SDK's own HTTP apps on an unmodified uvicorn: what a call costs before any of our layers.

The high-level server, which is what its users write and what the rows over stdio compare with, behind `/json`, that
answers with JSON, and `/stream`, that streams; the lowlevel one, which does less, behind `/lowlevel/json` and
`/lowlevel/stream`. Arguments: the file that `read_file` reads.
"""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from starlette.applications import Starlette

from benchmarks.http_tools import Meeting
from benchmarks.workspace import SAMPLE_BYTES, sample_text

BACKLOG = 2048

SAMPLE = sample_text()


def _tool(name: str, *parameters: str) -> types.Tool:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return types.Tool(name=name, description=f"The benchmark's {name}.", input_schema=schema)


TOOLS = {tool.name: tool for tool in (_tool("echo", "path"), _tool("read_file", "path"), _tool("with_progress"))}
TOOLS["meet"] = types.Tool(
    name="meet",
    description="The benchmark's meet.",
    input_schema={"type": "object", "properties": {"count": {"type": "integer"}, "word": {"type": "string"}}},
)


class BareTools:
    """Tools: constant text, the same after a progress notification, a file read in a worker thread, and a meeting."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._meeting = Meeting()

    async def list(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context, params
        return types.ListToolsResult(tools=list(TOOLS.values()))

    async def call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        text = SAMPLE
        given = params.arguments or {}
        if params.name == "with_progress":
            await context.session.report_progress(1, 1, "read")
        elif params.name == "read_file":
            text = await anyio.to_thread.run_sync(self._read)
        elif params.name == "meet":
            text = await self._meeting.join(given["count"], given["word"])
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    def _read(self) -> str:
        return _read(self._path)


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(SAMPLE_BYTES).decode()


def input_schema(name: str) -> dict[str, Any] | None:
    """Given to the SDK, which otherwise requests the list on stateless calls."""
    return TOOLS[name].input_schema if name in TOOLS else None


def high_level(path: str) -> MCPServer:
    """The same tools as users of the SDK declare them; it runs plain functions in worker threads."""
    server = MCPServer("bare", log_level="ERROR")
    meeting = Meeting()

    # As text alone: the SDK would send every text twice, the second time as structured output.
    @server.tool(structured_output=False)
    async def echo(path: str) -> str:
        """Return 4 KB, whatever the path."""
        del path
        return SAMPLE

    @server.tool(structured_output=False)
    def read_file(path: str) -> str:
        """Read the file, whatever the path."""
        del path
        return _read(sample)

    @server.tool(structured_output=False)
    async def with_progress(context: Context) -> str:
        """Report progress, then return 4 KB."""
        await context.report_progress(1, 1, "read")
        return SAMPLE

    @server.tool(structured_output=False)
    async def meet(count: int, word: str) -> str:
        """Wait until this many calls have arrived, then return the word."""
        return await meeting.join(count, word)

    sample = Path(path)
    return server


def low_level(path: str) -> Server[Any]:
    """The same on the lowlevel server."""
    tools = BareTools(path)
    return Server("bare", on_list_tools=tools.list, on_call_tool=tools.call, get_tool_input_schema=input_schema)


def _parts(path: str) -> Iterator[Starlette]:
    for form, is_json in (("json", True), ("stream", False)):
        yield high_level(path).streamable_http_app(streamable_http_path=f"/{form}", json_response=is_json)
        yield low_level(path).streamable_http_app(streamable_http_path=f"/lowlevel/{form}", json_response=is_json)


def app(path: str) -> Starlette:
    """All of them, with one lifespan."""
    parts = list(_parts(path))

    @asynccontextmanager
    async def lifespan(whole: Starlette) -> AsyncIterator[None]:
        del whole
        async with AsyncExitStack() as stack:
            for part in parts:
                await stack.enter_async_context(part.router.lifespan_context(part))
            yield

    return Starlette(routes=[route for part in parts for route in part.routes], lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(app(sys.argv[1]), port=0, backlog=BACKLOG)
