"""Requests that are still under way when the time of the drain is over: ended with an answer where none was begun.

A stream that was begun comes to its end without an answer: its client sees that none came.
"""

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coretools.serving.draining import Draining
from coretools.serving.web.answers import refusal
from coretools.serving.web.operations.watching import is_stream

RETRY_SECONDS = "1"


class Drained:
    """An app whose requests have so many seconds once the server ends."""

    def __init__(self, app: ASGIApp, draining: Draining, *, seconds: float) -> None:
        self._app = app
        self._draining = draining
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        has_begun = does_stream = is_over = False

        async def noting(message: Message) -> None:
            nonlocal has_begun, does_stream, is_over
            if message["type"] == "http.response.start":
                has_begun, does_stream = True, is_stream(message)
            else:
                is_over = not message.get("more_body", False)
            await send(message)

        with anyio.CancelScope() as serving:

            def bound() -> None:
                serving.deadline = anyio.current_time() + self._seconds

            stop = self._draining.hear(bound)
            try:
                await self._app(scope, receive, noting)
            finally:
                stop()
        if not serving.cancelled_caught or is_over:
            return
        if does_stream:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not has_begun:
            said = "the server is ending, and the call was not through in time; call again"
            answer = refusal(503, said, kind="ending", headers={"Retry-After": RETRY_SECONDS, "Connection": "close"})
            await answer(scope, receive, send)
