"""Authentication: no request passes without a valid token, whatever its method, and before its body is read.

The token is accepted in the Authorization header only (RFC 6750, 2.1; URLs are written to logs). It is never logged.
"""

import asyncio
import math
import re
import time
from collections.abc import Sequence

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.errors import CoreError, Unreachable
from coretools.protocol.call_adapter import address_in
from coretools.web.auth.verifiers import FailureLimiter
from coretools.web.common.error_response import error_response
from coretools.web.common.events import ResponseState
from coretools.web.common.principals import NotEntitled, Principal, Verifier, set_principal

LONGEST_TOKEN = 8 * 1024
RETRY_SECONDS = 5
"""Retry-After when tokens can't be verified now."""

RECHECK_SECONDS = 5.0
"""Interval of checks whether the token of an open stream is still valid."""

NOT_VALID = "the token is not valid here, or no longer valid"
"""Sent for every wrong token. The log has the reason (`coretools.web.auth.jwt_tokens`)."""

_BEARER = re.compile(r"bearer +(?P<token>[^ ].*)", re.IGNORECASE | re.DOTALL)
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""`b64token` of RFC 6750, 2.1."""

_LISTENING = b"subscriptions/listen"


class AuthMiddleware:
    """Authenticates a request and puts its principal into the scope, or refuses it."""

    def __init__(
        self,
        app: ASGIApp,
        verifier: Verifier,
        *,
        failures: FailureLimiter,
        metadata_url: str | None = None,
        scopes: Sequence[str] = (),
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        """`metadata_url` and `scopes` go into the challenge: where to get tokens, and for which scopes."""
        self._app = app
        self._verifier = verifier
        self._failures = failures
        self._recheck_seconds = recheck_seconds
        self._challenge = f'resource_metadata="{metadata_url}"' if metadata_url else 'realm="coretools"'
        self._asked = f'scope="{" ".join(scopes)}"' if scopes else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            judged = await self._judged(scope)
            if not isinstance(judged, Principal):
                await judged(scope, receive, send)
                return
            set_principal(scope, judged)
            if _is_long_lived(scope):
                await self._while_good(judged, scope, receive, send)
            else:
                await self._app(scope, receive, send)

    async def _judged(self, scope: Scope) -> Principal | ASGIApp:
        """Return the principal of a request, or the refusal."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) > 1:
            return error_response(400, "send one Authorization header", kind="invalid-request")
        bearer = _BEARER.fullmatch(given[0].decode("latin-1")) if given else None
        if bearer is None:
            return self._unauthorized("send a bearer token in the Authorization header")
        return await self._verified(bearer["token"], address_in(scope))

    async def _verified(self, token: str, address: str) -> Principal | ASGIApp:
        try:
            is_token = len(token) <= LONGEST_TOKEN and _TOKEN.fullmatch(token)
            principal = await self._verifier.verify(token) if is_token else None
        except NotEntitled as error:
            return self._forbidden(error)
        except Unreachable as error:
            return error_response(503, str(error), kind=error.kind, headers={"Retry-After": str(RETRY_SECONDS)})
        # Counted after verification: clients that share an address must not be locked out by others.
        return principal or self._counted(token, address)

    def _counted(self, token: str, address: str) -> ASGIApp:
        """Count a wrong token and return the refusal."""
        seconds = self._failures.record(address, token)
        if seconds <= 0:
            return self._wrong()
        headers = {"Retry-After": str(math.ceil(seconds))}
        reason = "this token is not valid here, and your address sent too many such tokens; wait"
        return error_response(429, reason, kind="too-many-failures", headers=headers)

    def _wrong(self) -> ASGIApp:
        # One text for every fault: the reason would only help an attacker.
        error = f'error="invalid_token", error_description="{NOT_VALID}"'
        return self._unauthorized(NOT_VALID, kind="invalid-token", error=error)

    def _unauthorized(self, message: str, *, kind: str = "unauthorized", error: str = "") -> ASGIApp:
        # RFC 6750, 3.1: no error code for a request without a token.
        challenge = ", ".join(part for part in (error, self._asked, self._challenge) if part)
        return error_response(401, message, kind=kind, headers={"WWW-Authenticate": f"Bearer {challenge}"})

    def _forbidden(self, error: NotEntitled) -> ASGIApp:
        headers = {}
        if error.scopes:
            scopes = " ".join(error.scopes)
            headers["WWW-Authenticate"] = f'Bearer error="insufficient_scope", scope="{scopes}", {self._challenge}'
        return error_response(403, str(error), kind=error.kind, headers=headers)

    async def _while_good(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a stream until it ends or its token expires or is revoked."""
        answer = ResponseState(send)
        with anyio.CancelScope() as limited:
            rechecking = asyncio.create_task(self._recheck(principal, _token_in(scope), limited))
            try:
                await self._app(scope, receive, answer.send)
            finally:
                rechecking.cancel()
        if limited.cancelled_caught and not answer.is_begun:
            await self._wrong()(scope, receive, send)
        elif limited.cancelled_caught and not answer.is_over:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _recheck(self, principal: Principal, token: str, limited: anyio.CancelScope) -> None:
        """Cancel the stream once its token is no longer valid, or belongs to another principal."""
        ends_at = math.inf if principal.expires_at is None else principal.expires_at
        while (left := ends_at - time.time()) > 0:
            await anyio.sleep(min(left, self._recheck_seconds))
            try:
                current = await self._verifier.verify(token)
            except CoreError:  # unknown: the token may be revoked
                break
            if current is None or (current.name, current.role) != (principal.name, principal.role):
                break
        limited.cancel()


def _is_long_lived(scope: Scope) -> bool:
    """Whether a request only listens. A call is authorized at its start and has its own deadline."""
    return scope["method"] == "GET" or (b"mcp-method", _LISTENING) in scope["headers"]


def _token_in(scope: Scope) -> str:
    """Return the token of an authenticated request."""
    given = next(value for name, value in scope["headers"] if name == b"authorization")
    bearer = _BEARER.fullmatch(given.decode("latin-1"))
    return bearer["token"] if bearer else ""
