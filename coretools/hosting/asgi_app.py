"""An ASGI application for one server: without authentication on a loopback address, or with the author's verifier."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from coretools.web.auth.middleware import AuthMiddleware
from coretools.web.auth.verifiers import FailureLimiter
from coretools.web.common.config import LimitsSection
from coretools.web.common.principals import DEFAULT_ROLE, Principal, Rates
from coretools.web.endpoint import Endpoint
from coretools.web.replicas.memory_stores import MemoryStores
from coretools.web.sessions.batches import BatchMiddleware
from coretools.web.sessions.request_ids import RequestIdMiddleware
from coretools.web.sessions.session_limiter import SessionLimiter
from coretools.web.validation.rate_limit import ConcurrencyMiddleware, RateLimitMiddleware, RequestCharge
from coretools.web.validation.request_body import BodyMiddleware

Verify = Callable[[str], Awaitable[str | None]]
"""Returns the name of the caller to whom a bearer token belongs; None if the token is not valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """Options of the application. `hosts` and `origins` are checked by the SDK."""

    path: str
    limits: LimitsSection
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    verify: Verify | None = None
    """None: every client is one principal, without limits."""
    rates: Rates = field(default_factory=Rates)
    """Limits of each principal."""


def asgi_app(
    server: Server[Any],
    options: AppOptions,
    running: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> Starlette:
    """Return an application that serves one server. Its lifespan, which includes `running`, must be run."""
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*options.hosts],
        allowed_origins=[*options.origins],
    )
    stores = MemoryStores()
    endpoint = Endpoint(server, role=DEFAULT_ROLE, stores=stores, session_limiter=SessionLimiter(options.limits))
    endpoint.manager.security_settings = security

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with running(), stores.running(), endpoint.running():
            yield

    app = Starlette(routes=[Route(options.path, endpoint=_checked(endpoint, options, stores))], lifespan=lifespan)
    app.state.endpoint = endpoint
    return app


def _checked(endpoint: Endpoint, options: AppOptions, stores: MemoryStores) -> ASGIApp:
    """Return the endpoint behind what reads bodies and, with a verifier, admits and limits principals."""
    identified = RequestIdMiddleware(endpoint)
    if options.verify is None:
        return BodyMiddleware(
            BatchMiddleware(identified, revision_of=endpoint.revision_of, charge=_free), options.limits
        )

    def rates_of(_role: str) -> Rates:
        return options.rates

    slots = ConcurrencyMiddleware(identified, rates_of=rates_of)
    charge = RequestCharge(rates_of, stores.rates)
    bodies = BodyMiddleware(BatchMiddleware(slots, revision_of=endpoint.revision_of, charge=charge), options.limits)
    limited = RateLimitMiddleware(bodies, rates_of=rates_of, limiter=stores.rates)
    failures = FailureLimiter(options.limits.failures_per_minute)
    return AuthMiddleware(limited, _AuthorsVerifier(options.verify), failures=failures)


class _AuthorsVerifier:
    """A function of the author's as a verifier of tokens."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a token; None if it is not valid."""
        name = await self._verify(token)
        return Principal(name=name) if name else None

    def admits(self, _name: str, _role: str) -> bool:
        """Whether a principal still has access: its streams are verified by their tokens."""
        return True


async def _free(_scope: Scope, _count: int) -> Response | None:
    return None
