"""State of handshake-era connections (log level, subscriptions), and the rules that only their revisions have.

A connection is identified by the parameters of its handshake, which the SDK keeps as long as the connection. Its
notifications are sent in the task of `notifications/initialized`, which ends with the connection: no cleanup is needed,
and a slow reader delays only itself.
"""

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from coretools.operations.declare import Surface
from coretools.operations.session_state import SessionState
from coretools.protocol.resource_addresses import NoResource

DEFAULT_LOG_LEVEL: types.LoggingLevel = "info"
"""Log level of a connection until its client sets one (`logging/setLevel`)."""


class HandshakeConnection:
    """State of one connection."""

    def __init__(self) -> None:
        self.level = DEFAULT_LOG_LEVEL
        self.state = SessionState()
        self.is_notified = False
        self.subscriptions: dict[str, Callable[[], None]] = {}
        """Subscribed addresses, and the function that ends each subscription."""
        self._changed_lists: set[Surface] = set()
        self._updated_uris: set[str] = set()
        self._has_changes = asyncio.Event()
        self._is_replaced = False

    def lists_changed(self, kinds: frozenset[Surface]) -> None:
        """Note changed lists; several changes before the client reads are one notification."""
        self._changed_lists |= kinds
        self._has_changes.set()

    def resource_updated(self, uri: str) -> None:
        """Note a changed resource, if the client subscribed to it."""
        if uri in self.subscriptions:
            self._updated_uris.add(uri)
            self._has_changes.set()

    def stop(self) -> None:
        """Send nothing more: a new handshake replaced this one."""
        self._is_replaced = True
        self._has_changes.set()

    async def send_changes(self, session: ServerSession) -> None:
        """Send notifications as changes are noted, until cancelled or stopped."""
        while True:
            await self._has_changes.wait()
            # Cleared before the sets are taken: what is noted while this sends wakes the loop again.
            self._has_changes.clear()
            if self._is_replaced:
                return
            lists, self._changed_lists = self._changed_lists, set()
            updated, self._updated_uris = self._updated_uris, set()
            for kind in sorted(lists, key=lambda one: one.value):
                await _SENDERS[kind](session)
            for uri in sorted(updated):
                await session.send_resource_updated(uri)


_SENDERS = {
    Surface.TOOL: ServerSession.send_tool_list_changed,
    Surface.RESOURCE: ServerSession.send_resource_list_changed,
    Surface.PROMPT: ServerSession.send_prompt_list_changed,
}


class HandshakeConnections:
    """All connections of the handshake era."""

    def __init__(self, *, has_one_client: bool = False) -> None:
        """With one client, as on stdio, its connection is its session in both eras."""
        self._only_state = SessionState() if has_one_client else None
        self._connections: dict[int, HandshakeConnection] = {}
        self._notified: set[HandshakeConnection] = set()

    def __len__(self) -> int:
        return len(self._connections)

    def of(self, context: ServerRequestContext[Any]) -> HandshakeConnection | None:
        """Return the state of the caller's connection; None in the stateless era or without a connection."""
        parameters = context.session.client_params
        if parameters is None or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return None
        connection = self._connections.get(id(parameters))
        if connection is None:
            connection = self._connections[id(parameters)] = HandshakeConnection()
            # Not at exit, when nothing is left to stop.
            weakref.finalize(parameters, self._forget, id(parameters)).atexit = False
        return connection

    def level_of(self, context: ServerRequestContext[Any]) -> types.LoggingLevel:
        """Return the least severe level of messages for the caller. In the stateless era each request states it."""
        connection = self.of(context)
        if connection is not None:
            return connection.level
        return "debug" if context.protocol_version in MODERN_PROTOCOL_VERSIONS else DEFAULT_LOG_LEVEL

    def state_of(self, context: ServerRequestContext[Any]) -> SessionState | None:
        """Return what commands keep for the caller's session; None in the stateless era, unless there is one client."""
        connection = self.of(context)
        return self._only_state if connection is None else connection.state

    async def send_changes(self, context: ServerRequestContext[Any], _: types.NotificationParams | None) -> None:
        """Notify this connection of changes until it ends. Handles `notifications/initialized`."""
        connection = self.of(context)
        if connection is None or connection.is_notified:
            return
        connection.is_notified = True
        self._notified.add(connection)
        try:
            await connection.send_changes(context.session)
        finally:
            self._notified.discard(connection)
            for release in connection.subscriptions.values():
                release()
            connection.subscriptions.clear()

    def lists_changed(self, kinds: frozenset[Surface]) -> None:
        """Notify every connection of changed lists."""
        for connection in self._notified:
            connection.lists_changed(kinds)

    def resource_updated(self, uri: str) -> None:
        """Notify the subscribers of a changed resource."""
        for connection in self._notified:
            connection.resource_updated(uri)

    def _forget(self, key: int) -> None:
        self._connections.pop(key).stop()


RESOURCE_NOT_FOUND = -32002
"""Error code of the revisions up to 2025-11-25; later ones do not use it."""


class Discovery:
    """Answers `server/discover` with the revisions of both eras; the SDK's handler names only those without a session.

    A client that learns the eras of a server from the answer sees what it is offered, whichever way it asks.
    """

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    @property
    def instructions(self) -> str | None:
        """The instructions of the server as they are now."""
        return self._server.instructions

    async def answer(self, ctx: ServerRequestContext[Any], _: types.RequestParams | None) -> types.DiscoverResult:
        """Handle one request."""
        return types.DiscoverResult(
            supported_versions=[*MODERN_PROTOCOL_VERSIONS, *reversed(HANDSHAKE_PROTOCOL_VERSIONS)],
            capabilities=self._server.get_capabilities(protocol_version=ctx.protocol_version),
            instructions=self.instructions,
        )


class HandshakeRules:
    """Middleware for what the handshake revisions do differently from 2026-07-28; other requests pass unchanged.

    One handshake per connection (basic/lifecycle), -32002 for an unknown resource (server/resources, "Error
    Handling"), and `server/discover`, which those revisions lack: a client of both eras may send it in any session.
    """

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Handle one message."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.request_id is None:
            return await call_next(ctx)
        if ctx.session.client_params is not None:
            if ctx.method == "initialize":
                message = "this connection is already initialized; open another one to negotiate again"
                raise MCPError(code=types.INVALID_REQUEST, message=message)
            if ctx.method == "server/discover":
                discovered = await self._discovery.answer(ctx, None)
                return discovered.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            result = await call_next(ctx)
        except NoResource as error:
            if not ctx.method.startswith("resources/"):
                raise
            raise MCPError(code=RESOURCE_NOT_FOUND, message=error.message, data=error.data) from error
        if ctx.method == "initialize" and isinstance(result, dict) and self._discovery.instructions:
            # The SDK answers with the instructions of the moment at which the transport was opened.
            result["instructions"] = self._discovery.instructions
        return result
