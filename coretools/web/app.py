"""The HTTP application: an ordered list of middleware around the MCP endpoint of the caller's tenant.

A request passes observability, the drain and then `configured_middleware` from top to bottom: the later a check comes,
the more it costs. A reload of the configuration replaces that list; what is outside of it lives as long as the server.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.protocol.draining import Draining
from coretools.web.auth.exposure_checks import allowed_hosts
from coretools.web.auth.jwt_tokens import AcceptedClaims
from coretools.web.auth.local_caller import LocalCallerMiddleware
from coretools.web.auth.middleware import AuthMiddleware
from coretools.web.auth.resource_metadata import metadata_routes, metadata_url
from coretools.web.auth.verifiers import FailureLimiter, ReplaceableVerifier
from coretools.web.common.config import Config
from coretools.web.common.error_response import error_response
from coretools.web.common.principals import Rates, principal_role
from coretools.web.common.urls import ENDPOINT
from coretools.web.connection.drain import RefuseNewWork
from coretools.web.observability.metrics import METRICS_PATH
from coretools.web.replicas.stores import Stores
from coretools.web.sessions.batches import BatchMiddleware
from coretools.web.sessions.request_ids import RequestIdMiddleware
from coretools.web.tenants import Tenant
from coretools.web.validation.rate_limit import ConcurrencyMiddleware, RateLimitMiddleware, RequestCharge
from coretools.web.validation.request_body import BodyMiddleware
from coretools.web.validation.request_validator import RequestValidator

Middleware = Callable[[ASGIApp], ASGIApp]
"""Wraps an application in another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppComponents:
    """The objects that the middleware and the endpoint are made of."""

    config: Config
    port: int
    verifier: ReplaceableVerifier | None
    accepted: AcceptedClaims
    stores: Stores
    tenants: Mapping[str, Tenant]
    """By role."""
    pages: Sequence[Route]
    """Routes beside the endpoint: health, metrics, console."""
    draining: Draining


def configured_middleware(components: AppComponents) -> list[Middleware]:
    """Return the middleware that a reload makes anew from the configuration, outermost first."""
    config, tenants, limiter = components.config, components.tenants, components.stores.rates
    limits, router = config.limits, TenantRouter(tenants)

    def rates_of(role: str) -> Rates:
        tenant = tenants.get(role)
        return Rates() if tenant is None else tenant.role.rates

    return [
        partial(  # host, origin, method, path and header
            RequestValidator,
            hosts=allowed_hosts(config, components.port),
            server=config.server,
            limits=limits,
            # Prometheus sends the address of its target as Host. A page that rebinds a name has no token.
            paths_of_any_host={METRICS_PATH} if config.metrics.tokens else (),
        ),
        partial(PageRouter, pages=_pages(components)),  # only requests to the endpoint go on
        _authentication(components),  # who calls
        partial(RateLimitMiddleware, rates_of=rates_of, limiter=limiter),
        partial(BodyMiddleware, limits=limits),  # from here on the message is known
        partial(BatchMiddleware, revision_of=router.revision_of, charge=RequestCharge(rates_of, limiter)),
        partial(RefuseNewWork, draining=components.draining),
        partial(ConcurrencyMiddleware, rates_of=rates_of),
        RequestIdMiddleware,
    ]


def _authentication(components: AppComponents) -> Middleware:
    config = components.config
    if components.verifier is None:
        return partial(LocalCallerMiddleware, anonymous=config.auth.anonymous)
    return partial(
        AuthMiddleware,
        verifier=components.verifier,
        failures=FailureLimiter(config.limits.failures_per_minute),
        metadata_url=metadata_url(config),
        scopes=config.auth.jwt.scopes if config.auth.jwt else (),
    )


def configured_app(components: AppComponents) -> ASGIApp:
    """Build the part of the application that a reload replaces."""
    return _wrapped(TenantRouter(components.tenants), configured_middleware(components))


class PageRouter:
    """Passes requests to the endpoint on and serves the pages.

    One comparison of the path: a table of routes would be searched with each call.
    """

    def __init__(self, app: ASGIApp, pages: ASGIApp) -> None:
        self._app = app
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await (self._app if scope["path"] == ENDPOINT else self._pages)(scope, receive, send)


class TenantRouter:
    """Passes a request to the tenant of its principal's current role."""

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        self._tenants = tenants

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        tenant = self._tenants.get(principal_role(scope))
        if tenant is None:
            await error_response(403, "your role is not served here", kind="no-role")(scope, receive, send)
        else:
            await tenant.endpoint(scope, receive, send)

    def revision_of(self, scope: Scope) -> str:
        """Return the revision that the session of a request negotiated; empty if its principal has no such session."""
        tenant = self._tenants.get(principal_role(scope))
        return "" if tenant is None else tenant.endpoint.revision_of(scope)


class ReplaceableApp:
    """An application that can be replaced while it serves. A request stays with the one that it began with."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._app(scope, receive, send)

    def replace(self, app: ASGIApp) -> None:
        """Serve later requests with this application."""
        self._app = app


def _wrapped(app: ASGIApp, middleware: Sequence[Middleware]) -> ASGIApp:
    for wrap in reversed(middleware):
        app = wrap(app)
    return app


def _pages(components: AppComponents) -> Router:
    routes = [*metadata_routes(components.config), *components.pages]
    return Router(routes, redirect_slashes=False, default=_not_found)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await error_response(404, f"nothing is here; the endpoint is {ENDPOINT}", kind="not-found")(scope, receive, send)
