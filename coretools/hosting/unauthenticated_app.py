"""An ASGI application without authentication: for a loopback address, or behind an authenticating proxy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from coretools.web.common.config import LimitsSection
from coretools.web.common.principals import DEFAULT_ROLE
from coretools.web.endpoint import Endpoint
from coretools.web.replicas.memory_stores import MemoryStores
from coretools.web.sessions.batches import BatchMiddleware
from coretools.web.sessions.request_ids import RequestIdMiddleware
from coretools.web.sessions.session_limiter import SessionLimiter
from coretools.web.validation.request_body import BodyMiddleware


@dataclass(frozen=True, slots=True, kw_only=True)
class UnauthenticatedOptions:
    """Options of the application. `hosts` and `origins` are checked by the SDK."""

    path: str
    limits: LimitsSection
    hosts: tuple[str, ...]
    origins: tuple[str, ...]


def unauthenticated_app(server: Server[Any], options: UnauthenticatedOptions) -> Starlette:
    """Return an application that serves every client as one principal. Its lifespan must be run."""
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
        async with stores.running(), endpoint.running():
            yield

    taken_apart = BatchMiddleware(RequestIdMiddleware(endpoint), revision_of=endpoint.revision_of, charge=_free)
    bodies = BodyMiddleware(taken_apart, options.limits)
    app = Starlette(routes=[Route(options.path, endpoint=bodies)], lifespan=lifespan)
    app.state.endpoint = endpoint
    return app


async def _free(_scope: Scope, _count: int) -> Response | None:
    return None
