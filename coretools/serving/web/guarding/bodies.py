"""Bodies of requests: read whole, bounded and checked before anything behind this sees the request.

Stands behind the gate, so that nobody who may not call has a body read. What one request may send is bounded, and so
is what all requests hold together, and of that one principal's share.
"""

from collections import Counter

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coretools.serving.lines import MOST_BATCHED
from coretools.serving.web.answers import ID_KEY, refusal
from coretools.serving.web.batches import BATCH_KEY, may_be_batch, note_message
from coretools.serving.web.config import LimitsSection
from coretools.serving.web.guarding.json_form import BadJson, Malformed, check_message
from coretools.serving.web.principals import name_in

PARSE_ERROR = -32700
RETRY_SECONDS = "1"
SHARE = 4
"""One principal's requests hold no more than a quarter of what all may hold."""


class Bodies:
    """An app that gets each body in one message. Later it hears, as ever, that the client went away."""

    def __init__(self, app: ASGIApp, limits: LimitsSection) -> None:
        self._app = app
        self._limits = limits
        self._held = 0
        self._held_by: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Bytes of the bodies of all requests that are under way."""
        return self._held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        holding = _Holding(self, name_in(scope))
        try:
            answer = await self._read(holding, receive)
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
            holding.release()

    def hold(self, principal: str, count: int) -> bool:
        """Count bytes of a body; whether there was room for them."""
        most = self._limits.bodies_bytes
        if self._held + count > most or self._held_by[principal] + count > max(most // SHARE, self._limits.body_bytes):
            return False
        self._held += count
        self._held_by[principal] += count
        return True

    def release(self, principal: str, count: int) -> None:
        """They are held no more."""
        self._held -= count
        self._held_by[principal] -= count
        if self._held_by[principal] <= 0:
            del self._held_by[principal]

    async def _read(self, holding: "_Holding", receive: Receive) -> bytes | Response | None:
        """The body; or why it is not read; None where the client went away before its end."""
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            if holding.count + len(part) > self._limits.body_bytes:
                said = f"the body is over {self._limits.body_bytes} bytes"
                return refusal(413, said, kind="body-too-large")
            if not holding.add(len(part)):
                said = "too much is being sent at once; try again later"
                return refusal(503, said, kind="busy", headers={"Retry-After": RETRY_SECONDS})
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _checked(self, scope: Scope, body: bytes) -> Response | None:
        try:
            most = MOST_BATCHED if may_be_batch(scope) else 0
            message = check_message(body, depth=self._limits.json_depth, most_batched=most)
        except BadJson as error:
            is_json = not isinstance(error, Malformed)
            if error.request_id is not None:
                scope[ID_KEY] = error.request_id
            return refusal(400, str(error), kind="bad-json", code=None if is_json else PARSE_ERROR)
        if isinstance(message, list):
            scope[BATCH_KEY] = message
        else:
            note_message(scope, message)
        return None


class _Holding:
    """What one request holds of the room for bodies."""

    def __init__(self, bodies: Bodies, principal: str) -> None:
        self._bodies = bodies
        self._principal = principal
        self.count = 0

    def add(self, count: int) -> bool:
        """More of the body came."""
        if not self._bodies.hold(self._principal, count):
            return False
        self.count += count
        return True

    def release(self) -> None:
        """The request is over."""
        self._bodies.release(self._principal, self.count)


def _replaying(body: bytes, receive: Receive) -> Receive:
    """What the app hears: the body, then whatever comes after it, which is that the client is gone."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def hear() -> Message:
        return first.pop() if first else await receive()

    return hear
