"""The end of a server as its clients see it: new work is refused, what is under way may finish, and all get an answer.

The listener stays open until nothing is under way, or the time is over: whoever connects is told, not turned away.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import anyio
from mcp_types import INTERNAL_ERROR
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coretools.protocol.process_exit import Draining
from coretools.web.common.error_response import error_response
from coretools.web.common.events import is_stream
from coretools.web.sessions.batches import IS_CALL_KEY
from coretools.web.sessions.response_format import MESSAGE_KEY

KIND = "ending"
RETRY_SECONDS = "1"
ANSWER_SECONDS = 1.0
"""After the time of the drain, for the last answers to be written."""

CUT = "the server is ending, and the call was not through in time; call again"
NOT_BEGUN = "the server is ending and takes nothing new; call again, on another replica where there is one"

_CLOSE = (b"connection", b"close")


class RefuseNewWork:
    """Refuses requests and streams once the server ends. Behind the bodies, which tell what a request is.

    Notifications, answers to questions and the end of a session are not refused: calls under way may need them.
    """

    def __init__(self, app: ASGIApp, draining: Draining) -> None:
        self._app = app
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        is_new = scope["method"] == "GET" or scope.get(IS_CALL_KEY, False)
        if not (is_new and self._draining.has_begun):
            await self._app(scope, receive, send)
            return
        await error_response(503, NOT_BEGUN, kind=KIND, headers={"Retry-After": RETRY_SECONDS})(scope, receive, send)


class DrainMiddleware:
    """An app whose requests have so many seconds once the server ends, and are counted."""

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
            await self._serve(scope, receive, _ResponseState(send, self._draining))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._none_under_way.set()

    async def finished(self) -> float:
        """Wait until nothing is under way, once the server ends; how many seconds of its time are left."""
        with anyio.move_on_after(self._deadline() - anyio.current_time() + ANSWER_SECONDS):
            while self._under_way:
                self._none_under_way = anyio.Event()
                await self._none_under_way.wait()
        return max(self._deadline() - anyio.current_time(), 0.0)

    def _deadline(self) -> float:
        """The same for all, whenever they came."""
        if self._ends_at == math.inf:
            self._ends_at = anyio.current_time() + self._seconds
        return self._ends_at

    async def _serve(self, scope: Scope, receive: Receive, answer: "_ResponseState") -> None:
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
            await error_response(503, CUT, kind=KIND, headers={"Retry-After": RETRY_SECONDS})(
                scope, receive, answer.send
            )


class _ResponseState:
    """How far an answer has come. One that begins while the server ends is the last on its connection."""

    def __init__(self, send: Send, draining: Draining) -> None:
        self._send = send
        self._draining = draining
        self.is_begun = False
        self.is_stream = False
        self.is_over = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_begun, self.is_stream = True, is_stream(message)
            headers = [*message.get("headers", ())]
            if self._draining.has_begun and _CLOSE not in headers:
                message = {**message, "headers": [*headers, _CLOSE]}
        else:
            self.is_over = not message.get("more_body", False)
        await self._send(message)


def _last_event(scope: Scope) -> bytes:
    """The answer to the request whose stream is cut; nothing where the stream is of no request."""
    message: Mapping[str, Any] | None = scope.get(MESSAGE_KEY)
    if message is None:
        return b""
    error = {"code": INTERNAL_ERROR, "message": CUT, "data": {"kind": KIND}}
    text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
    return f"event: message\r\ndata: {text}\r\n\r\n".encode()
