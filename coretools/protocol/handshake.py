"""What is kept of a connection of the handshake era as long as it lasts: its log level, and what it is told of.

A connection is known by the parameters of its handshake, which the SDK holds as long as the connection. It is followed
from `notifications/initialized` on, in the task of that notification, which ends with the connection: so nothing has
to be taken back, and one that reads slowly holds up nobody but itself.
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
from coretools.protocol.resources import NoResource

FIRST_LEVEL: types.LoggingLevel = "info"
"""Until a client says which messages it wants (`logging/setLevel`)."""


class Handshake:
    """What is kept of one connection."""

    def __init__(self) -> None:
        self.level = FIRST_LEVEL
        self.is_followed = False
        self.watched: dict[str, Callable[[], None]] = {}
        """Addresses it subscribed to, and what ends each."""
        self._lists: set[Surface] = set()
        self._updated: set[str] = set()
        self._news = asyncio.Event()
        self._is_over = False

    def note_lists(self, kinds: frozenset[Surface]) -> None:
        """These lists are others; told once, however often it is said before the client reads."""
        self._lists |= kinds
        self._news.set()

    def note_update(self, uri: str) -> None:
        """What is at this address is another, if the client wants to know."""
        if uri in self.watched:
            self._updated.add(uri)
            self._news.set()

    def end(self) -> None:
        """Tell it no more: its handshake was replaced by another."""
        self._is_over = True
        self._news.set()

    async def tell(self, session: ServerSession) -> None:
        """Send what is noted, as it comes; ends by being cancelled, or by `end`."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._is_over:
                return
            lists, self._lists = self._lists, set()
            updated, self._updated = self._updated, set()
            for kind in sorted(lists, key=lambda one: one.value):
                await _SENDERS[kind](session)
            for uri in sorted(updated):
                await session.send_resource_updated(uri)


_SENDERS = {
    Surface.TOOL: ServerSession.send_tool_list_changed,
    Surface.RESOURCE: ServerSession.send_resource_list_changed,
    Surface.PROMPT: ServerSession.send_prompt_list_changed,
}


class Handshakes:
    """All connections of the handshake era."""

    def __init__(self) -> None:
        self._known: dict[int, Handshake] = {}
        self._followed: set[Handshake] = set()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, context: ServerRequestContext[Any]) -> Handshake | None:
        """What is kept of the caller's connection; None where there is none: stateless, or of the other era."""
        parameters = context.session.client_params
        if parameters is None or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return None
        known = self._known.get(id(parameters))
        if known is None:
            known = self._known[id(parameters)] = Handshake()
            weakref.finalize(parameters, self._forget, id(parameters)).atexit = False
        return known

    def level_of(self, context: ServerRequestContext[Any]) -> types.LoggingLevel:
        """From which level on the caller wants messages. In the stateless era each request says so itself."""
        known = self.of(context)
        if known is not None:
            return known.level
        return "debug" if context.protocol_version in MODERN_PROTOCOL_VERSIONS else FIRST_LEVEL

    async def follow(self, context: ServerRequestContext[Any], _: types.NotificationParams | None) -> None:
        """Tell this connection of changes until it ends. The handler of `notifications/initialized`."""
        known = self.of(context)
        if known is None or known.is_followed:
            return
        known.is_followed = True
        self._followed.add(known)
        try:
            await known.tell(context.session)
        finally:
            self._followed.discard(known)
            for release in known.watched.values():
                release()
            known.watched.clear()

    def note_lists(self, kinds: frozenset[Surface]) -> None:
        """Lists that are others, for everybody."""
        for known in self._followed:
            known.note_lists(kinds)

    def note_update(self, uri: str) -> None:
        """A resource that is another, for those who subscribed to it."""
        for known in self._followed:
            known.note_update(uri)

    def _forget(self, key: int) -> None:
        self._known.pop(key).end()


# What the handshake revisions have otherwise than 2026-07-28, as one link of the SDK's chain of middleware.
#
# One handshake for a connection (basic/lifecycle), -32002 for a resource that is not there (server/resources, "Error
# Handling"), and `server/discover`, which those revisions lack: a client of both eras may ask for it in any session.


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
