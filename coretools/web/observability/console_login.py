"""Logins of the console: by a cookie, or by a token with each request.

A cookie is random and represents a token for an hour at most. The token is verified again with every request, so a
revoked one gives no access.
"""

import hashlib
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

import anyio
from starlette.requests import Request

from coretools.errors import CoreError
from coretools.protocol.call_adapter import address_in
from coretools.web.auth.verifiers import FailureLimiter
from coretools.web.common.principals import NotEntitled, Verifier

SESSION_SECONDS = 3_600.0
MOST_SESSIONS = 32
"""Beyond it the oldest login ends."""

COOKIE = "coretools_console"
LONGEST_TOKEN = 1_024
"""Largest token accepted, in characters; ours have about 50."""


class TooManyFailures(CoreError):
    """An address sent too many wrong tokens."""

    kind = "too-many-failures"

    def __init__(self, seconds: float) -> None:
        super().__init__("too many wrong tokens; wait a minute")
        self.seconds = math.ceil(seconds)


class OperatorSession:
    """One login."""

    def __init__(self, token: str, ends_at: float) -> None:
        self.token = token
        """Kept in memory only, to verify it again with every request."""
        self.ends_at = ends_at
        self.has_left = False
        self.wakes: set[anyio.Event] = set()
        """Events that wake its streams to check access."""

    def leave(self) -> None:
        """Log out; its streams end at once."""
        self.has_left = True
        for wake in self.wakes:
            wake.set()


class OperatorSessions:
    """Logs operators in and out."""

    def __init__(
        self, verifier: Verifier, failures: FailureLimiter, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._verifier = verifier
        self._failures = failures
        self._clock = clock
        self._by_digest: OrderedDict[bytes, OperatorSession] = OrderedDict()

    async def log_in(self, token: str, address: str) -> str | None:
        """Return the cookie for a token; None if the token is not valid.

        Raises:
            TooManyFailures: the token is wrong, and the address must wait. Unreachable: tokens can't be verified now.
        """
        if not await self._is_good(token, address):
            return None
        cookie = secrets.token_urlsafe(32)
        self._by_digest[_digest(cookie)] = OperatorSession(token, self._clock() + SESSION_SECONDS)
        while len(self._by_digest) > MOST_SESSIONS:
            self._by_digest.popitem(last=False)[1].leave()
        return cookie

    def log_out(self, cookie: str) -> None:
        """End the login of a cookie."""
        operator = self._by_digest.pop(_digest(cookie), None)
        if operator is not None:
            operator.leave()

    async def session_of(self, request: Request) -> OperatorSession | None:
        """Return the login of a request, by its cookie or its Authorization header.

        Raises:
            TooManyFailures: the token is wrong, and the address must wait. Unreachable: tokens can't be verified now.
        """
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            is_good = await self._is_good(token.strip(), address_in(request.scope))
            return OperatorSession(token.strip(), math.inf) if is_good else None
        digest = _digest(request.cookies.get(COOKIE, ""))
        operator = self._by_digest.get(digest)
        if operator is None or await self.is_authorized(operator):
            return operator
        del self._by_digest[digest]
        return None

    async def is_authorized(self, operator: OperatorSession) -> bool:
        """Whether a login still gives access.

        Raises:
            Unreachable: tokens can't be verified now.
        """
        if operator.has_left or operator.ends_at <= self._clock():
            return False
        return await self._verified(operator.token)

    async def _is_good(self, token: str, address: str) -> bool:
        # Verified before counting: clients that share an address must not be locked out by others.
        if await self._verified(token):
            return True
        seconds = self._failures.record(address, token)
        if seconds > 0:
            raise TooManyFailures(seconds)
        return False

    async def _verified(self, token: str) -> bool:
        if not token or len(token) > LONGEST_TOKEN:
            return False
        try:
            return await self._verifier.verify(token) is not None
        except NotEntitled:
            return False


def _digest(cookie: str) -> bytes:
    """Hash a cookie for the lookup, so that its timing reveals nothing."""
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).digest()
