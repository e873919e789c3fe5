"""Keeps the ids of active requests unique within a session.

The SDK stores the response to a request under its id: a second request with the same id would get the first one's
response, and the first would wait forever.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.web.common.error_response import error_response
from coretools.web.common.headers import SESSION_HEADER
from coretools.web.common.principals import principal_name

REQUEST_ID_KEY = "coretools.request_id"
"""ASGI scope key: the request id as text, because the SDK takes `1` and `"1"` for the same id."""


class RequestIdMiddleware:
    """Refuses a request whose id is in use by an active request of its session."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._used: set[tuple[str, bytes, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        session = dict(scope["headers"]).get(SESSION_HEADER)
        number = scope.get(REQUEST_ID_KEY)
        if session is None or number is None:
            await self._app(scope, receive, send)
            return
        # With the principal: other callers that send this session id must not see or block its owner's requests.
        key = (principal_name(scope), session, number)
        if key in self._used:
            reason = "this request id is in use in this session; each active request needs its own"
            await error_response(400, reason, kind="id-in-use")(scope, receive, send)
            return
        self._used.add(key)
        try:
            await self._app(scope, receive, send)
        finally:
            self._used.discard(key)
