"""An offer of commands as an MCP server, for both protocol eras, on the SDK's lowlevel `Server`.

The lowlevel server and a dispatch of our own: strict arguments, one copy of each result, public API only
(docs/adr/0001). Serves tools, and the output of runs as resources; the transport is the entry point's choice.
"""

from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from coretools import __version__
from coretools.dispatch import Dispatcher, Outcome
from coretools.errors import UnknownTool
from coretools.registry import Command, Offer
from coretools.serving.progress import ClientCall
from coretools.serving.resources import RunResources

SERVER_NAME = "coretools"

ERROR_KEY = "coretools/error"
"""Key in `_meta` of a failed result: the kind of the error, for programs."""

FACTS_KEY = "coretools/facts"
"""Key in `_meta` of a result: small values for programs, such as an exit code."""

FAILED_KEY = "coretools/failed"
"""Key in `_meta`, true when the call worked and the thing that was run failed (a test, a command)."""

LONG_RUNNING_KEY = "coretools/longRunning"

LIST_SECONDS = 60
"""How long a client of the stateless era may keep the list of tools: it is fixed while the server runs."""


def build_server(dispatcher: Dispatcher, instructions: str, runs: RunResources | None = None) -> Server[Any]:
    """A server that offers what the dispatcher offers. Not started; serves any number of connections."""
    listing = _Listing(dispatcher.offer)

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context, params
        return listing.result

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            command = dispatcher.offer.get(params.name)
        except UnknownTool as error:
            # The protocol has this one as an error of the request, not of the tool (server/tools, "Error Handling").
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from error
        call = ClientCall(context.session)
        return as_result(await dispatcher.dispatch(command, params.arguments or {}, call))

    server: Server[Any] = Server(
        SERVER_NAME,
        version=__version__,
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=runs.list if runs else None,
        on_list_resource_templates=runs.list_templates if runs else None,
        on_read_resource=runs.read if runs else None,
        # Without it the SDK asks list_tools for the schema on every stateless HTTP call.
        get_tool_input_schema=listing.input_schema,
    )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=SERVER_NAME))
    return server


def as_result(outcome: Outcome) -> types.CallToolResult:
    """An outcome on the wire: its text once, and the structured form only where the tool declares one."""
    meta: dict[str, Any] = {}
    if outcome.facts:
        meta[FACTS_KEY] = on_the_wire(outcome.facts)
    if outcome.failed:
        meta[FAILED_KEY] = True
    if outcome.error is not None:
        meta[ERROR_KEY] = outcome.error.kind
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=on_the_wire(outcome.text))],
        structured_content=on_the_wire(outcome.data),
        is_error=outcome.error is not None,
        _meta=meta or None,
    )


def on_the_wire(value: Any) -> Any:
    """A JSON value without lone surrogates, which UTF-8 can't carry; a name with one is shown in escaped form."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [on_the_wire(item) for item in value]
    if isinstance(value, dict):
        return {on_the_wire(key): on_the_wire(item) for key, item in value.items()}
    return value


def as_tool(command: Command, *, shows_output: bool) -> types.Tool:
    """A command as the protocol lists it, with the four hints always explicit."""
    declared = command.declaration
    return types.Tool(
        name=command.name,
        description=command.description,
        input_schema=command.arguments.schema(),
        output_schema=command.output_schema if shows_output else None,
        annotations=types.ToolAnnotations(
            read_only_hint=declared.read_only,
            destructive_hint=declared.destructive,
            idempotent_hint=declared.idempotent,
            open_world_hint=declared.open_world,
        ),
        _meta={LONG_RUNNING_KEY: True} if declared.long_running else None,
    )


class _Listing:
    """The list of tools of one offer, built when it is first asked for: a start pays nothing for it."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._result: types.ListToolsResult | None = None

    @property
    def result(self) -> types.ListToolsResult:
        if self._result is None:
            self._result = types.ListToolsResult(
                tools=[as_tool(command, shows_output=self._offer.shows_outputs) for command in self._offer],
                ttl_ms=LIST_SECONDS * 1000,
                cache_scope="public",
            )
        return self._result

    def input_schema(self, name: str) -> dict[str, Any] | None:
        return next((tool.input_schema for tool in self.result.tools if tool.name == name), None)
