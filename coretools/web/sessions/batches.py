"""JSON-RPC batches, which only the revision 2025-03-26 supports (basic/index, "Batching").

Each message is processed as its own request, so ids, slots and sessions work as without batches. The responses come in
one stream, each as soon as it is ready.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
from mcp_types import HEADER_MISMATCH, PROTOCOL_VERSION_META_KEY
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coretools.protocol.stdio.lines import BATCH_REVISION
from coretools.web.common.error_response import ID_KEY, error_response
from coretools.web.common.events import is_stream
from coretools.web.common.headers import REVISION_HEADER, SESSION_HEADER
from coretools.web.sessions.request_ids import REQUEST_ID_KEY
from coretools.web.sessions.session_transport import MESSAGE_KEY

BATCH_KEY = "coretools.batch"
"""ASGI scope key: the messages of a batch."""

IS_CALL_KEY = "coretools.is_call"
"""ASGI scope key: whether a POST is a request, not a notification or a response."""

Charge = Callable[[Scope, int], Awaitable[Response | None]]
"""Charges further requests to a principal; returns the refusal if that is too many."""


def may_be_batch(scope: Scope) -> bool:
    """Whether a request may be of that revision: in a session, with its header or without any."""
    headers = dict(scope["headers"])
    return SESSION_HEADER in headers and headers.get(REVISION_HEADER, b"") in (b"", BATCH_REVISION.encode())


def note_message(scope: Scope, message: Mapping[str, Any]) -> None:
    """Put what is known about a single message into the scope."""
    scope[IS_CALL_KEY] = "id" in message and "method" in message
    if scope[IS_CALL_KEY]:
        scope[ID_KEY] = message["id"]
        scope[REQUEST_ID_KEY] = str(message["id"])
        scope[MESSAGE_KEY] = message


class BatchMiddleware:
    """Splits batches into single requests."""

    def __init__(self, app: ASGIApp, *, revision_of: Callable[[Scope], str], charge: Charge) -> None:
        """`revision_of` returns the negotiated revision of a request's session."""
        self._app = app
        self._revision_of = revision_of
        self._charge = charge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        batch: Sequence[Mapping[str, Any]] | None = scope.get(BATCH_KEY)
        if batch is None:
            await self._app(scope, receive, send)
            return
        refused = await self._refused(scope, batch)
        if refused is not None:
            await refused(scope, receive, send)
            return
        answer = _BatchResponse(send, has_requests=any("id" in one and "method" in one for one in batch))
        gone = anyio.Event()
        async with anyio.create_task_group() as watching:
            watching.start_soon(_watch, receive, gone)
            async with anyio.create_task_group() as parts:
                for message in batch:
                    parts.start_soon(self._one, scope, message, gone, answer)
            watching.cancel_scope.cancel()
        await answer.end()

    async def _refused(self, scope: Scope, batch: Sequence[Mapping[str, Any]]) -> Response | None:
        if self._revision_of(scope) != BATCH_REVISION:
            reason = f"send one JSON-RPC message; batches need the revision {BATCH_REVISION}, which this session lacks"
            return error_response(400, reason, kind="bad-json")
        if any(message.get("method") == "initialize" for message in batch):
            return error_response(400, "initialize can't be part of a batch", kind="bad-json")
        return await self._charge(scope, len(batch) - 1)

    async def _one(self, scope: Scope, message: Mapping[str, Any], gone: anyio.Event, answer: "_BatchResponse") -> None:
        body = json.dumps(message).encode()
        own = {name: value for name, value in scope.items() if name != BATCH_KEY}
        own["headers"] = [
            *((name, value) for name, value in scope["headers"] if name != b"content-length"),
            (b"content-length", str(len(body)).encode()),
        ]
        note_message(own, message)
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if first:
                return first.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        await self._app(own, receive, answer.part())


class _BatchResponse:
    """The response to a batch: one event stream, or 202 if it has no requests."""

    def __init__(self, send: Send, *, has_requests: bool) -> None:
        self._send = send
        self._has_requests = has_requests
        self._has_begun = False
        self._lock = anyio.Lock()
        self._status = 202

    def part(self) -> Send:
        """Return the `send` for the response to one message."""
        has_events = False

        async def send(message: Message) -> None:
            nonlocal has_events
            if message["type"] == "http.response.start":
                has_events = is_stream(message)
                self._status = max(self._status, message["status"])
            elif self._has_requests and (body := message.get("body", b"")):
                await self._write(body if has_events else b"event: message\r\ndata: " + body + b"\r\n\r\n")

        return send

    async def end(self) -> None:
        """Finish the response, once every part is answered."""
        if not self._has_requests:
            await self._send({"type": "http.response.start", "status": self._status, "headers": []})
        else:
            await self._begin()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, body: bytes) -> None:
        async with self._lock:  # events must not interleave
            await self._begin()
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})


async def _watch(receive: Receive, gone: anyio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


# The revision in the header must equal the one in the envelope (2026-07-28, basic/transports). The SDK compares them if
# the header names a stateless revision; this module does if it names another one or is missing.


def header_mismatch(scope: Scope, header: bytes | None) -> Response | None:
    """Return the refusal of a request whose header and envelope name different revisions, or None."""
    message = scope.get(MESSAGE_KEY)
    # `initialize` belongs to the handshake era, whatever its envelope, as on stdio.
    if message is None or message["method"] == "initialize":
        return None
    meta = (message.get("params") or {}).get("_meta")
    if not isinstance(meta, dict) or PROTOCOL_VERSION_META_KEY not in meta:
        return None
    stated = meta[PROTOCOL_VERSION_META_KEY]
    if isinstance(stated, str) and header is not None and stated == header.decode("latin-1"):
        return None
    how = "is missing" if header is None else "names another revision than the request"
    text = f"MCP-Protocol-Version {how}; it must be the value of _meta's {PROTOCOL_VERSION_META_KEY}"
    return error_response(400, text, kind="header-mismatch", code=HEADER_MISMATCH)


def no_stream_here() -> Response:
    """Return the refusal of GET and DELETE in the stateless era."""
    reason = (
        "this revision has no stream to GET and no session to DELETE; POST a subscriptions/listen request to be"
        " notified of changes"
    )
    return error_response(405, reason, kind="unknown-method", headers={"Allow": "POST"})
