"""One request with an id at a time in a session.

The SDK keeps the answer of each request of a session under its id: a second one with the same id would get the first's
answer, and the first would wait for ever.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.web.common.error_response import error_response
from coretools.web.common.headers import SESSION_HEADER
from coretools.web.common.principals import principal_name

REQUEST_ID_KEY = "coretools.request_id"
"""Where the scope of a POST has the id of its request, as text: the SDK takes `1` and `"1"` for the same."""


class RequestIdMiddleware:
    """Refuses a request whose id is that of another which is being answered in its session."""

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
        # With the principal: what another does with this session's id must not show, nor be in its owner's way.
        key = (principal_name(scope), session, number)
        if key in self._used:
            reason = "a request with this id is being answered in this session; each needs one of its own"
            await error_response(400, reason, kind="id-in-use")(scope, receive, send)
            return
        self._used.add(key)
        try:
            await self._app(scope, receive, send)
        finally:
            self._used.discard(key)
