"""Requests that have nothing to tell but their answer: they are answered with JSON, and no stream is made for them.

A stream has five tasks of the SDK's and costs as much as all the rest of a call. Whether one may be needed is known
from the declaration: a plain function that takes no `Call` can neither tell nor ask anything. The SDK decides it for a
whole server, by one public attribute of its transport and one of its manager; here each request decides (ADR 0024).
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from mcp.server.streamable_http import StreamableHTTPServerTransport

from coretools.call import LOCAL
from coretools.graph import Graph
from coretools.serving.open_requests import OpenRequests, RequestReader, ResponseWriter

MESSAGE_KEY = "coretools.message"
"""Where the scope of a POST has its parsed message; without one nothing is known of it."""

QUIET_METHODS = frozenset(
    {
        *("ping", "server/discover", "completion/complete", "logging/setLevel"),
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list"),
        *("resources/subscribe", "resources/unsubscribe"),
    }
)

Message = Mapping[str, Any]
IsQuiet = Callable[[Message], bool]

is_quiet_now: ContextVar[bool] = ContextVar("the request has nothing to tell but its answer", default=False)
"""Set while a request is handed to the SDK, in the task that does it; the tasks of a session never see it."""


class SessionTransport(StreamableHTTPServerTransport):
    """The SDK's transport, which is told with each request whether it is answered with JSON.

    Ids of requests are taken as they are between it and the SDK's dispatcher, as on stdio.
    """

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[RequestReader, ResponseWriter]]:
        """The two ends for the dispatcher."""
        async with super().connect() as streams:
            yield OpenRequests(finish_seconds=None).around(*streams)

    @property
    def is_json_response_enabled(self) -> bool:
        """Of the request whose task asks."""
        return is_quiet_now.get()

    @is_json_response_enabled.setter
    def is_json_response_enabled(self, value: bool) -> None:
        """What the SDK says of all requests is not asked for."""


def quiet_in(graph: Graph) -> IsQuiet:
    """Tells of the requests to one server."""

    def is_quiet(message: Message) -> bool:
        if message["method"] != "tools/call":
            return message["method"] in QUIET_METHODS
        params = message.get("params") or {}
        command = graph.offer(LOCAL).find(str(params.get("name")))
        return command is not None and command.is_silent

    return is_quiet


def never(_message: Message) -> bool:
    """Nothing is known of the commands: every request may have something to tell."""
    return False
