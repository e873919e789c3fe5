"""What the handshake revisions have otherwise than 2026-07-28, as one link of the SDK's chain of middleware.

One handshake for a connection (basic/lifecycle), -32002 for a resource that is not there (server/resources, "Error
Handling"), and `server/discover`, which those revisions lack: a client of both eras may ask for it in any session.
"""

from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from coretools.serving.addresses import NoResource

RESOURCE_NOT_FOUND = -32002
"""Of the revisions until 2025-11-25; later ones never use it again."""


class HandshakeRules:
    """Middleware of one server. Requests of the stateless era pass through."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.request_id is None:
            return await call_next(ctx)
        if ctx.session.client_params is not None:
            if ctx.method == "initialize":
                said = "this connection is initialized already; open another one to negotiate again"
                raise MCPError(code=types.INVALID_REQUEST, message=said)
            if ctx.method == "server/discover":
                return self._discovered(ctx)
        try:
            return await call_next(ctx)
        except NoResource as error:
            if not ctx.method.startswith("resources/"):
                raise
            raise MCPError(code=RESOURCE_NOT_FOUND, message=error.message, data=error.data) from error

    def _discovered(self, ctx: ServerRequestContext[Any]) -> dict[str, Any]:
        found = types.DiscoverResult(
            supported_versions=[*MODERN_PROTOCOL_VERSIONS, *reversed(HANDSHAKE_PROTOCOL_VERSIONS)],
            capabilities=self._server.get_capabilities(protocol_version=ctx.protocol_version),
            instructions=self._server.instructions,
        )
        return found.model_dump(by_alias=True, mode="json", exclude_none=True)
