"""The parts of the HTTP server, one inside the other: what a request passes on its way to a command, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.protocol.process_exit import Draining
from coretools.web.auth.exposure import allowed_hosts
from coretools.web.auth.failures import FailureLimiter
from coretools.web.auth.jwt_tokens import AcceptedClaims
from coretools.web.auth.middleware import AuthMiddleware, metadata_routes, metadata_url
from coretools.web.auth.verifiers import ReplaceableVerifier
from coretools.web.common.config import Config
from coretools.web.common.error_response import error_response
from coretools.web.common.principals import Rates, principal_role
from coretools.web.connection.drain import RefuseNewWork
from coretools.web.replicas.stores import Stores
from coretools.web.sessions.batches import BatchMiddleware
from coretools.web.sessions.request_ids import RequestIdMiddleware
from coretools.web.tenants import Tenant
from coretools.web.validation.rate_limit import ConcurrencyMiddleware, RateLimitMiddleware, RequestCharge
from coretools.web.validation.request_body import BodyMiddleware
from coretools.web.validation.request_validator import RequestValidator

PATH = "/mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppComponents:
    """What the server is made of."""

    config: Config
    port: int
    verifier: ReplaceableVerifier | None
    accepted: AcceptedClaims
    stores: Stores
    tenants: Mapping[str, Tenant]
    pages: Sequence[Route]
    """What is beside the endpoint: health, metrics, console."""
    draining: Draining


def build_app(parts: AppComponents) -> ASGIApp:
    """What serves one request."""
    config = parts.config
    pages = Router([*metadata_routes(config), *parts.pages], redirect_slashes=False, default=_not_found)
    hosts = allowed_hosts(config, parts.port)
    return RequestValidator(
        _AtPath(_gated(parts), pages), hosts=hosts, server=config.server, limits=config.limits, endpoint=PATH
    )


class _AtPath:
    """The endpoint at its path, which a table of routes would look for with each call; the pages everywhere else."""

    def __init__(self, endpoint: ASGIApp, pages: ASGIApp) -> None:
        self._endpoint = endpoint
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await (self._endpoint if scope["path"] == PATH else self._pages)(scope, receive, send)


class TenantRouter:
    """Leads a request to the tenant that its principal's role has now."""

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        self._tenants = tenants

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        tenant = self._tenants.get(principal_role(scope))
        endpoint: ASGIApp = error_response(403, "your role is not served here", kind="no-role")
        if tenant is not None:
            endpoint = tenant.endpoint
        await endpoint(scope, receive, send)

    def revision_of(self, scope: Scope) -> str:
        """What the session of a request negotiated; empty where there is no such session of its principal."""
        tenant = self._tenants.get(principal_role(scope))
        return "" if tenant is None else tenant.endpoint.revision_of(scope)


class ReplaceableApp:
    """An application that another one can take the place of. A request stays with the one that it began with."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._app(scope, receive, send)

    def replace(self, app: ASGIApp) -> None:
        """Serve what comes from now on by this one."""
        self._app = app


def _gated(parts: AppComponents) -> ASGIApp:
    """The endpoint, behind everything that refuses: the later a check, the more it costs."""

    def rates_of(role: str) -> Rates:
        tenant = parts.tenants.get(role)
        return Rates() if tenant is None else tenant.role.rates

    config = parts.config
    by_role = TenantRouter(parts.tenants)
    slots = ConcurrencyMiddleware(RequestIdMiddleware(by_role), rates_of=rates_of)
    charge = RequestCharge(rates_of, parts.stores.rates)
    bodies = BodyMiddleware(
        BatchMiddleware(RefuseNewWork(slots, parts.draining), revision_of=by_role.revision_of, charge=charge),
        config.limits,
    )
    throttle = RateLimitMiddleware(bodies, rates_of=rates_of, limiter=parts.stores.rates)
    failures = FailureLimiter(config.limits.failures_per_minute)
    scopes = config.auth.jwt.scopes if config.auth.jwt else ()
    return AuthMiddleware(throttle, parts.verifier, failures=failures, metadata_url=metadata_url(config), scopes=scopes)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await error_response(404, f"nothing is here; the endpoint is {PATH}", kind="not-found")(scope, receive, send)
