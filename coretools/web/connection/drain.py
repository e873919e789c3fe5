"""The drain: after SIGTERM new work is refused, active requests may finish, and every client gets an answer.

The listener stays open until no request is active or the time is over, so new clients get an answer too.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import anyio
from mcp_types import INTERNAL_ERROR
from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.protocol.draining import Draining
from coretools.web.common.error_response import error_response
from coretools.web.common.events import ResponseState
from coretools.web.common.headers import RESPONSE_HEADERS, closing_connection
from coretools.web.sessions.batches import IS_CALL_KEY
from coretools.web.sessions.session_transport import MESSAGE_KEY

KIND = "ending"
RETRY_SECONDS = "1"
ANSWER_SECONDS = 1.0
"""Given after the drain to write the last answers."""

CUT = "the server is ending and the call did not finish in time; call again"
NOT_BEGUN = "the server is ending and accepts no new work; call again, on another replica if there is one"


class RefuseNewWork:
    """Refuses new requests and streams during the drain. Runs after the body is parsed.

    Notifications, answers to questions and DELETE of a session pass: active calls may need them.
    """

    def __init__(self, app: ASGIApp, draining: Draining) -> None:
        self._app = app
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        is_new = scope["method"] == "GET" or scope.get(IS_CALL_KEY, False)
        if not (is_new and self._draining.has_begun):
            await self._app(scope, receive, send)
            return
        await error_response(503, NOT_BEGUN, kind=KIND, headers={"Retry-After": RETRY_SECONDS})(scope, receive, send)


class DrainMiddleware:
    """Counts active requests and gives them a deadline once the drain begins."""

    def __init__(self, app: ASGIApp, draining: Draining, *, seconds: float) -> None:
        self._app = app
        self._draining = draining
        self._seconds = seconds
        self._ends_at = math.inf
        self._under_way = 0
        self._none_under_way = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        self._under_way += 1
        try:
            closing = closing_connection(send, lambda: self._draining.has_begun)
            await self._serve(scope, receive, ResponseState(closing))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._none_under_way.set()

    async def finished(self) -> float:
        """Wait until no request is active or the time is over; return the seconds that are left."""
        with anyio.move_on_after(self._deadline() - anyio.current_time() + ANSWER_SECONDS):
            while self._under_way:
                self._none_under_way = anyio.Event()
                await self._none_under_way.wait()
        return max(self._deadline() - anyio.current_time(), 0.0)

    def _deadline(self) -> float:
        """Return the deadline, the same for all requests."""
        if self._ends_at == math.inf:
            self._ends_at = anyio.current_time() + self._seconds
        return self._ends_at

    async def _serve(self, scope: Scope, receive: Receive, answer: ResponseState) -> None:
        with anyio.CancelScope() as serving:

            def bound() -> None:
                serving.deadline = self._deadline()

            stop = self._draining.add_listener(bound)
            try:
                await self._app(scope, receive, answer.send)
            finally:
                stop()
        if not serving.cancelled_caught or answer.is_over:
            return
        if answer.is_stream:
            await answer.send({"type": "http.response.body", "body": _last_event(scope), "more_body": False})
        elif not answer.is_begun:
            # The validator, which adds the headers of every response, is within this middleware.
            await error_response(503, CUT, kind=KIND, headers={"Retry-After": RETRY_SECONDS, **RESPONSE_HEADERS})(
                scope, receive, answer.send
            )


def _last_event(scope: Scope) -> bytes:
    """Return the error response for a request whose stream is cut; empty for a stream without a request."""
    message: Mapping[str, Any] | None = scope.get(MESSAGE_KEY)
    if message is None:
        return b""
    error = {"code": INTERNAL_ERROR, "message": CUT, "data": {"kind": KIND}}
    text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
    return f"event: message\r\ndata: {text}\r\n\r\n".encode()
