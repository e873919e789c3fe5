"""Limits for each principal: requests per second and concurrent requests."""

import math
from collections import Counter
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.errors import Unreachable
from coretools.web.common.error_response import error_response
from coretools.web.common.headers import LAST_EVENT_HEADER
from coretools.web.common.principals import Rates, principal_name, principal_role
from coretools.web.replicas.stores import UNREACHABLE, RateLimiter
from coretools.web.sessions.batches import IS_CALL_KEY

RETRY_AFTER = "Retry-After"

LONGEST_WAIT = 3600
"""Largest Retry-After, in seconds."""

SHORT_WAIT = 1

RatesOf = Callable[[str], Rates]


class RequestCharge:
    """Charges requests to the rate of their principal."""

    def __init__(self, rates_of: RatesOf, limiter: RateLimiter) -> None:
        """`rates_of` returns the rates of a role."""
        self._rates_of = rates_of
        self._limiter = limiter

    async def __call__(self, scope: Scope, count: int = 1) -> Response | None:
        """Charge `count` requests to the principal of a request; return the refusal if that is too many."""
        rates = self._rates_of(principal_role(scope))
        try:
            for _ in range(count):
                wait = await self._limiter.take(
                    f"requests:{principal_name(scope)}", per_second=rates.requests_per_second, burst=rates.burst
                )
                if wait:
                    headers = _after(wait)
                    limit = f"you may send {rates.requests_per_second:g} requests per second"
                    reason = f"{limit}; wait for {headers[RETRY_AFTER]} s"
                    return error_response(429, reason, kind="too-many-requests", headers=headers)
        except Unreachable:
            return error_response(503, UNREACHABLE, kind=Unreachable.kind, headers=_after(SHORT_WAIT))
        return None


class RateLimitMiddleware:
    """Refuses requests above the rate of their principal, before the body is read. Runs after authentication."""

    def __init__(self, app: ASGIApp, *, rates_of: RatesOf, limiter: RateLimiter) -> None:
        """`rates_of` returns the rates of a role."""
        self._app = app
        self._charge = RequestCharge(rates_of, limiter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refused = await self._charge(scope)
        await (refused or self._app)(scope, receive, send)


class ConcurrencyMiddleware:
    """Limits the concurrent requests of one principal. Runs after the body is parsed.

    Requests take a slot. Notifications, answers to the server's questions and DELETE do not: when all slots are taken,
    these free some. Neither does the one GET stream of each session: a principal with all its sessions open must still
    be able to call. A resumed stream (Last-Event-ID) takes a slot of a second kind with the same limit, because a
    session may have any number of them.
    """

    def __init__(self, app: ASGIApp, *, rates_of: RatesOf) -> None:
        self._app = app
        self._rates_of = rates_of
        self._taken: Counter[str] = Counter()
        self._resumed: Counter[str] = Counter()

    @property
    def taken(self) -> dict[str, int]:
        """Slots in use, by principal."""
        return dict(self._taken)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        taken = self._slots_for(scope)
        if taken is None:
            await self._app(scope, receive, send)
            return
        name = principal_name(scope)
        most = self._rates_of(principal_role(scope)).concurrent
        if taken[name] >= most:
            await _too_many(most)(scope, receive, send)
            return
        taken[name] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            taken[name] -= 1
            if not taken[name]:
                del taken[name]

    def _slots_for(self, scope: Scope) -> Counter[str] | None:
        """Return the kind of slot that a request takes; None if it takes none."""
        if scope["method"] == "GET" and any(name == LAST_EVENT_HEADER for name, _ in scope["headers"]):
            return self._resumed
        return self._taken if scope["method"] == "POST" and scope.get(IS_CALL_KEY, True) else None


def _too_many(most: int) -> Response:
    reason = f"{most} of your requests are being served, which is your limit; wait for one or cancel it"
    return error_response(429, reason, kind="too-many-at-once", headers=_after(SHORT_WAIT))


def _after(seconds: float) -> dict[str, str]:
    return {RETRY_AFTER: str(min(max(math.ceil(seconds), 1), LONGEST_WAIT))}
