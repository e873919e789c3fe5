"""The SDK's own HTTP app, on uvicorn as it comes: what a call costs before any of our layers.

One lowlevel server behind three paths: `/json` answers with JSON, `/stream` with streams, `/resumable` with streams
whose events are kept, as ours are. Arguments: the file that `read_file` reads.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from starlette.applications import Starlette

from benchmarks.http_tools import Meeting
from benchmarks.workplace import SAMPLE_BYTES, sample_text
from coretools.serving.web.replay import SessionEvents
from coretools.serving.web.shared.memory_stores import MemoryStores

BACKLOG = 2048

SAMPLE = sample_text()


def _tool(name: str, *parameters: str) -> types.Tool:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return types.Tool(name=name, description=f"The benchmark's {name}.", input_schema=schema)


TOOLS = {tool.name: tool for tool in (_tool("echo", "path"), _tool("read_file", "path"), _tool("told"))}
TOOLS["meet"] = types.Tool(
    name="meet",
    description="The benchmark's meet.",
    input_schema={"type": "object", "properties": {"count": {"type": "integer"}, "word": {"type": "string"}}},
)


class BareTools:
    """Constant text, the same with a progress before it, a file read in a worker thread, and a meeting."""

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
        if params.name == "told":
            await context.session.report_progress(1, 1, "read")
        elif params.name == "read_file":
            text = await anyio.to_thread.run_sync(self._read)
        elif params.name == "meet":
            text = await self._meeting.join(given["count"], given["word"])
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    def _read(self) -> str:
        with self._path.open("rb") as file:
            return file.read(SAMPLE_BYTES).decode()


def input_schema(name: str) -> dict[str, Any] | None:
    """Given to the SDK, which else asks for the list on stateless calls."""
    return TOOLS[name].input_schema if name in TOOLS else None


def app(path: str) -> Starlette:
    """The three, with one lifespan."""
    tools = BareTools(path)
    parts = []
    for at, options in (
        ("/json", {"json_response": True}),
        ("/stream", {}),
        ("/resumable", {"event_store": _events()}),
    ):
        server: Server[Any] = Server(
            "bare", on_list_tools=tools.list, on_call_tool=tools.call, get_tool_input_schema=input_schema
        )
        parts.append(server.streamable_http_app(streamable_http_path=at, **options))

    @asynccontextmanager
    async def lifespan(whole: Starlette) -> AsyncIterator[None]:
        del whole
        async with AsyncExitStack() as stack:
            for part in parts:
                await stack.enter_async_context(part.router.lifespan_context(part))
            yield

    return Starlette(routes=[route for part in parts for route in part.routes], lifespan=lifespan)


def _events() -> SessionEvents:
    """One store for all sessions, as the SDK has it: with that alone a client can get another's answers."""
    events = SessionEvents(MemoryStores())
    events.open("all")
    return events


if __name__ == "__main__":
    uvicorn.run(app(sys.argv[1]), port=0, backlog=BACKLOG)
