"""Connects observability to the running server: metrics, log, traces, health and console."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import anyio
from starlette.routing import Route
from starlette.types import ASGIApp

from coretools.app.assembly import Assembly
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.errors import CoreError, Unreachable
from coretools.operations.dispatch import CallObserver
from coretools.operations.live_catalog import LiveCatalog
from coretools.protocol.draining import Draining
from coretools.redaction.redactor import Redactor, secret_values
from coretools.roots.root import Root
from coretools.services.interface import QueueTotals, ServiceEngine
from coretools.web.auth.exposure_checks import is_exposed
from coretools.web.auth.middleware import AuthMiddleware
from coretools.web.auth.verifiers import FailureLimiter, TokenFileVerifier
from coretools.web.common.config import Config
from coretools.web.common.events import CallWatchers, RequestWatcher
from coretools.web.observability.access_log import CallLog, RequestLog
from coretools.web.observability.console_login import OperatorSessions
from coretools.web.observability.console_page import Console
from coretools.web.observability.console_state import ConsoleState
from coretools.web.observability.health import Check, Health, commands_check, roots_check
from coretools.web.observability.metrics import METRICS_PATH, Metrics, MetricsPage
from coretools.web.observability.middleware import ObservabilityMiddleware
from coretools.web.observability.snapshots import (
    ReloadStatus,
    RootSnapshot,
    ServerSnapshot,
    SessionSnapshot,
    TenantSnapshot,
)
from coretools.web.observability.tracing import Tracing
from coretools.web.replicas.stores import Stores
from coretools.web.tenants import Tenant

TOTALS_SECONDS = 2.0
"""Wait for the numbers of items in queues before a scrape is answered without them."""

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class ServerState:
    """The current state of the server, for metrics and console."""

    stores: Stores
    kind: str
    """Kind of the stores: `memory` or `redis`."""
    services: ServiceEngine
    draining: Draining
    opened: Mapping[str, Tenant] = field(default_factory=dict)
    """Tenants by role; set once they are open."""
    are_stores_fine: bool = True
    reload: ReloadStatus = field(default_factory=ReloadStatus)
    totals: QueueTotals | None = None
    """Of all queues, when the metrics were last read; None if their store did not answer."""

    def sessions(self) -> Sequence[SessionSnapshot]:
        """Return the open sessions, oldest first."""
        snapshots = [
            SessionSnapshot(
                id=session.id,
                principal=session.principal,
                role=role,
                age_seconds=session.age_seconds,
                idle_seconds=session.idle_seconds,
            )
            for role, tenant in self.opened.items()
            for session in tenant.endpoint.manager.sessions.values()
        ]
        return sorted(snapshots, key=lambda one: -one.age_seconds)

    def tenants(self) -> Sequence[TenantSnapshot]:
        """Return a snapshot of each tenant."""
        return [_tenant_snapshot(role, tenant.assembly) for role, tenant in self.opened.items()]

    def server(self) -> ServerSnapshot:
        """Return a snapshot of the server as a whole."""
        return ServerSnapshot(
            replica=self.stores.replica,
            stores=self.kind,
            are_stores_fine=self.are_stores_fine,
            is_draining=self.draining.has_begun,
            has_lease=self.stores.has_lease,
            reload=self.reload,
            totals=self.totals,
        )

    async def check_services(self) -> bool:
        """Check whether the services can be used."""
        await self.services.check()
        return True

    async def refresh_totals(self) -> None:
        """Read the numbers of items in queues for the snapshots."""
        totals = None
        try:
            with anyio.move_on_after(TOTALS_SECONDS):
                totals = await self.services.totals()
        except CoreError as error:
            logger.debug("services: %s", error)
        self.totals = totals

    async def check_stores(self) -> bool:
        """Check whether the stores can be used, and keep the result for the snapshots."""
        try:
            await self.stores.check()
        except Unreachable:
            self.are_stores_fine = False
        else:
            self.are_stores_fine = True
        return self.are_stores_fine


def _tenant_snapshot(role: str, assembly: Assembly) -> TenantSnapshot:
    """Return a snapshot of a role's tenant."""
    protections = {**assembly.runner.protections, "git-confinement": _is_git_confined(assembly.confined_threads)}
    return TenantSnapshot(
        role=role,
        roots=tuple(_roots(assembly.roots)),
        resolver=assembly.roots.resolver_name,
        tier=assembly.runner.tier or "",
        missing=tuple(name for name, holds in protections.items() if not holds),
        children=assembly.runner.running,
        runs=assembly.runs.alive,
    )


def _roots(roots: Iterable[Root]) -> Iterator[RootSnapshot]:
    """Name roots by the last part of their path; duplicates get a number."""
    taken: Counter[str] = Counter()
    for root in roots:
        name = PurePath(root.path).name
        taken[name] += 1
        number = taken[name]
        yield RootSnapshot(name=name if number == 1 else f"{name} ({number})", is_writable=root.writable)


def _is_git_confined(confined_threads: ConfinedThreadPool) -> bool:
    try:
        return confined_threads.is_possible
    except CoreError:  # unknown now
        return False


class ObservabilityWiring:
    """Creates everything that observes the server; made before the tenants."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        environment: Mapping[str, str],
        tracing: Tracing | None,
        tools: set[str],
    ) -> None:
        """`tools` collects the names that spans may contain."""
        self.metrics = Metrics(replica=state.stores.replica)
        self.reload_status = state.reload
        """Kept by the reloader."""
        self._config = config
        self._state = state
        self._tracing = tracing
        self._tools = tools
        self._console_state = ConsoleState(state, Redactor(secret_values(environment)))
        self.metrics.collect_from(state)

    def watcher(self, role: str, catalog: LiveCatalog) -> CallObserver:
        """Create the observer of the calls of a role."""
        names = [command.name for command in catalog.registry]
        self._tools.update(names)
        watchers: list[CallObserver] = [self.metrics.calls(role, names), CallLog()]
        if self._config.console.tokens:
            watchers.append(self._console_state.calls(role))
        if self._tracing is not None:
            watchers.append(self._tracing.calls())
        return CallWatchers(watchers)

    def observed(self, app: ASGIApp) -> ASGIApp:
        """Wrap an application so that its requests are counted, logged and traced."""
        watchers: list[RequestWatcher] = [self.metrics, RequestLog()]
        if self._config.console.tokens:
            watchers.append(self._console_state)
        return ObservabilityMiddleware(app, watchers, tracing=self._tracing)

    def routes(self) -> list[Route]:
        """Return the routes of health, metrics, and the console if it is enabled.

        Raises:
            BadSetting: a token file can't be used.
        """
        health = Health(self._checks(), lambda: self._state.draining.is_announced)
        routes = health.routes()
        page = self._metrics_page()
        if page is not None:
            routes.append(Route(METRICS_PATH, endpoint=page))
        if self._config.console.tokens:
            routes += self._console().routes()
        return routes

    def _checks(self) -> dict[str, Check]:
        opened: Collection[Tenant] = self._state.opened.values()

        def required() -> list[Assembly]:
            return [one.assembly for one in opened if one.role.settings.policy.confinement.require is not None]

        return {
            "roots": roots_check(lambda: [tenant.assembly.roots for tenant in opened]),
            "stores": self._state.check_stores,
            "services": self._state.check_services,
            "commands": commands_check(required),
        }

    def _metrics_page(self) -> ASGIApp | None:
        """None if nobody may read it: metrics are on by default, but an exposed server needs tokens for them."""
        section = self._config.metrics
        if not section.enabled:
            return None
        if section.tokens:
            return AuthMiddleware(
                MetricsPage(self.metrics, refresh=self._state.refresh_totals, is_for_loopback=False),
                TokenFileVerifier(section.tokens, roles=None),
                failures=FailureLimiter(self._config.limits.failures_per_minute),
            )
        refresh = self._state.refresh_totals
        return None if is_exposed(self._config) else MetricsPage(self.metrics, refresh=refresh)

    def _console(self) -> Console:
        verifier = TokenFileVerifier(self._config.console.tokens, roles=None)
        operators = OperatorSessions(verifier, FailureLimiter(self._config.limits.failures_per_minute))
        server = self._config.server
        is_secure = bool(server.tls_certificate or server.proxies)
        return Console(self._console_state, operators, self._state.draining, is_secure=is_secure)
