"""Reads request bodies whole, limits their size and checks their JSON before the rest of the server sees them.

Runs after authentication, so no body of a stranger is read. There is a limit for one body, for the bodies of all active
requests, and for one principal's share of those.
"""

from collections import Counter

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coretools.protocol.stdio.lines import MAX_BATCHED
from coretools.web.common.config import LimitsSection
from coretools.web.common.error_response import ID_KEY, error_response
from coretools.web.common.principals import principal_name
from coretools.web.sessions.batches import BATCH_KEY, may_be_batch, note_message
from coretools.web.validation.json_message import BadJson, Malformed, check_message

PARSE_ERROR = -32700
RETRY_SECONDS = "1"
SHARE = 4
"""One principal may hold a quarter of the bytes of all active bodies."""


class BodyMiddleware:
    """Passes each body to the application in one message; a later disconnect is passed on as usual."""

    def __init__(self, app: ASGIApp, limits: LimitsSection) -> None:
        self._app = app
        self._limits = limits
        self._buffered = 0
        self._buffered_by: Counter[str] = Counter()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the bodies of all active requests."""
        return self._buffered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        counted = _BodyBytes(self, principal_name(scope))
        try:
            answer = await self._read(counted, receive)
            if answer is None:
                return
            if isinstance(answer, Response):
                await answer(scope, receive, send)
                return
            refused = self._checked(scope, answer)
            if refused is not None:
                await refused(scope, receive, send)
                return
            await self._app(scope, _replaying(answer, receive), send)
        finally:
            counted.release()

    def hold(self, principal: str, count: int) -> bool:
        """Count bytes of a body; False if a limit is reached."""
        most = self._limits.bodies_bytes
        share = max(most // SHARE, self._limits.body_bytes)
        if self._buffered + count > most or self._buffered_by[principal] + count > share:
            return False
        self._buffered += count
        self._buffered_by[principal] += count
        return True

    def release(self, principal: str, count: int) -> None:
        """Release counted bytes."""
        self._buffered -= count
        self._buffered_by[principal] -= count
        if self._buffered_by[principal] <= 0:
            del self._buffered_by[principal]

    async def _read(self, counted: "_BodyBytes", receive: Receive) -> bytes | Response | None:
        """Return the body, or a refusal, or None if the client disconnected before its end."""
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            if counted.count + len(part) > self._limits.body_bytes:
                reason = f"the body is over {self._limits.body_bytes} bytes"
                return error_response(413, reason, kind="body-too-large")
            # Counted part by part while it arrives: a Content-Length is a promise, and chunked bodies have none.
            if not counted.add(len(part)):
                reason = "the bodies of active requests reach the limit; try again later"
                return error_response(503, reason, kind="busy", headers={"Retry-After": RETRY_SECONDS})
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _checked(self, scope: Scope, body: bytes) -> Response | None:
        try:
            most = MAX_BATCHED if may_be_batch(scope) else 0
            message = check_message(body, most_batched=most)
        except BadJson as error:
            is_json = not isinstance(error, Malformed)
            if error.request_id is not None:
                scope[ID_KEY] = error.request_id
            return error_response(400, str(error), kind="bad-json", code=None if is_json else PARSE_ERROR)
        if isinstance(message, list):
            scope[BATCH_KEY] = message
        else:
            note_message(scope, message)
        return None


class _BodyBytes:
    """Counts the body of one request."""

    def __init__(self, bodies: BodyMiddleware, principal: str) -> None:
        self._bodies = bodies
        self._principal = principal
        self.count = 0

    def add(self, count: int) -> bool:
        """Count another part of the body."""
        if not self._bodies.hold(self._principal, count):
            return False
        self.count += count
        return True

    def release(self) -> None:
        """Release the body; the request is over."""
        self._bodies.release(self._principal, self.count)


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that delivers the body and then the client's disconnect."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def hear() -> Message:
        return first.pop() if first else await receive()

    return hear
