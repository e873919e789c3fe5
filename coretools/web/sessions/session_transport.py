"""Which requests of a session are answered with JSON, and the SDK's transport that does so for each request.

A stream has five tasks of the SDK and costs as much as the rest of a call. The declaration of a tool shows whether it
may need one: a plain function without a `Call` can neither notify nor ask. The SDK decides between stream and JSON for
a whole session (ADR 0019).
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import Any

import anyio
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification
from starlette.types import Receive, Scope, Send

from coretools.operations.live_catalog import LiveCatalog
from coretools.protocol.open_requests import CANCELLED, OpenRequests, RequestReader, ResponseWriter

MESSAGE_KEY = "coretools.message"
"""ASGI scope key of the parsed message of a POST; without it nothing is known about the request."""

JSON_RESPONSE_KEY = "coretools.json_response"
"""ASGI scope key: true for a request of a session that is answered with JSON."""

JSON_RESPONSE_METHODS = frozenset(
    {
        *("ping", "server/discover", "completion/complete", "logging/setLevel"),
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list"),
        *("resources/subscribe", "resources/unsubscribe"),
    }
)

JsonMessage = Mapping[str, Any]

UsesJsonResponse = Callable[[JsonMessage], bool]


class SessionTransport(StreamableHTTPServerTransport):
    """The SDK's transport of one session, with JSON responses for the requests whose scope says so.

    Request ids pass unchanged between this transport and the SDK's dispatcher, as on stdio.
    """

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[RequestReader, ResponseWriter]]:
        """Open the streams for the dispatcher."""
        async with super().connect() as streams:
            self._requests = OpenRequests(finish_seconds=None)
            yield self._requests.wrap(*streams)

    @property
    def has_open_requests(self) -> bool:
        """Whether a request is not answered yet."""
        return bool(self._requests.ids)

    async def cancel_requests(self) -> None:
        """Cancel every open request, as its client would."""
        for request_id in self._requests.ids:
            message = JSONRPCNotification(jsonrpc="2.0", method=CANCELLED, params={"requestId": request_id})
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the session ends
                if self._read_stream_writer is not None:
                    await self._read_stream_writer.send(SessionMessage(message))

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        transport = self
        if scope.get(JSON_RESPONSE_KEY, False):
            # A shallow copy shares streams and event store with the session and differs in this one setting. Set on the
            # transport itself, it would change the form of other responses that are under way.
            transport = copy(self)
            transport.is_json_response_enabled = True
        await super(SessionTransport, transport)._handle_request(scope, receive, send)


def json_response_rule(catalog: LiveCatalog) -> UsesJsonResponse:
    """Return the rule that selects the requests to one server that need no stream."""

    def uses_json_response(message: JsonMessage) -> bool:
        if message["method"] != "tools/call":
            return message["method"] in JSON_RESPONSE_METHODS
        params = message.get("params") or {}
        command = catalog.current.find(str(params.get("name")))
        return command is not None and command.returns_result_only

    return uses_json_response
