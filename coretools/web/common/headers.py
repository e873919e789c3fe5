"""HTTP headers: the names of Streamable HTTP's request headers, and the headers of every response.

To send another header with every response, add it to `RESPONSE_HEADERS`. `RequestValidator`, the first
of the configured middleware, adds them; a handler that sets one of them itself keeps its own value (the console).
"""

from collections.abc import Callable, Sequence

from mcp.server.streamable_http import LAST_EVENT_ID_HEADER, MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import Message, Send

SESSION_HEADER = MCP_SESSION_ID_HEADER.encode("ascii")
REVISION_HEADER = MCP_PROTOCOL_VERSION_HEADER.encode("ascii")
LAST_EVENT_HEADER = LAST_EVENT_ID_HEADER.encode("ascii")

HANDSHAKE_REVISIONS = frozenset(version.encode("ascii") for version in HANDSHAKE_PROTOCOL_VERSIONS)
"""Revisions in which a client opens a session with `initialize`; a request of any other is stateless."""

RESPONSE_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every response, unless the response sets its own value."""

CORS_ALLOWED_HEADERS = (
    "authorization",
    "content-type",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
    "mcp-method",
    "mcp-name",
)
"""Headers that a page may send, besides `mcp-param-` with the name of an argument."""

_CORS_EXPOSED_HEADERS = b"mcp-session-id, www-authenticate, retry-after"
"""Headers that a page may read."""

_RAW_RESPONSE_HEADERS = [(name.lower().encode(), value.encode()) for name, value in RESPONSE_HEADERS.items()]
"""As ASGI needs them: names in lower case."""


def with_response_headers(send: Send, origin: bytes | None) -> Send:
    """Return `send` that adds the headers of every response; the CORS headers too if `origin` may read it."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": _completed(message.get("headers", ()), origin)}
        await send(message)

    return answer


_CLOSE = (b"connection", b"close")


def closing_connection(send: Send, is_last: Callable[[], bool]) -> Send:
    """Return `send` whose response closes its connection if `is_last` is true when it begins (RFC 9112, 9.6)."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start" and is_last():
            headers = [*message.get("headers", ())]
            message = message if _CLOSE in headers else {**message, "headers": [*headers, _CLOSE]}
        await send(message)

    return answer


def _completed(headers: Sequence[tuple[bytes, bytes]], origin: bytes | None) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name.lower() != b"server"]
    names = {name.lower() for name, _ in kept}
    kept += [(name, value) for name, value in _RAW_RESPONSE_HEADERS if name not in names]
    if origin is not None:
        kept.append((b"access-control-allow-origin", origin))
        kept.append((b"access-control-expose-headers", _CORS_EXPOSED_HEADERS))
    # Also without an Origin: a cache must not give a page the answer that was made for no page (Fetch, "CORS protocol
    # and HTTP caches").
    kept.append((b"vary", b"Origin"))
    return kept
