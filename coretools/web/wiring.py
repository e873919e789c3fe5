"""What the operator sees of a running server: figures, log, spans, health, console; wired to what they look at."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.routing import Route
from starlette.types import ASGIApp

from coretools.app.assembly import Assembly
from coretools.errors import Unreachable
from coretools.operations.dispatch import CallObserver
from coretools.operations.live_catalog import LiveCatalog
from coretools.protocol.process_exit import Draining
from coretools.redaction.redactor import Redactor, secret_values
from coretools.web.auth.exposure import is_exposed
from coretools.web.auth.failures import Failures
from coretools.web.auth.verifiers import TokenFile
from coretools.web.common.config import Config
from coretools.web.common.events import RequestWatcher, Watchers
from coretools.web.observability.access_log import CallJournal, Observed, RequestJournal
from coretools.web.observability.console_login import Operators
from coretools.web.observability.console_page import Console
from coretools.web.observability.console_state import Board, ServerSeen, SessionSeen, WorkplaceSeen, workplace_seen
from coretools.web.observability.health import Check, Health, commands_check, roots_check
from coretools.web.observability.metrics import Metrics, MetricsPage
from coretools.web.observability.tracing import Tracing
from coretools.web.replicas.stores import Stores
from coretools.web.tenants import Workplace


@dataclass(kw_only=True)
class Standing:
    """How the server stands now: what metrics and console ask."""

    stores: Stores
    kind: str
    """Of the stores: `memory` or `redis`."""
    draining: Draining
    opened: Mapping[str, Workplace] = field(default_factory=dict)
    """By role; set once they are open."""
    are_stores_fine: bool = True

    def sessions(self) -> Sequence[SessionSeen]:
        """Those that are open, oldest first."""
        found = [
            SessionSeen(
                id=session.id,
                principal=session.principal,
                role=role,
                age_seconds=session.age_seconds,
                idle_seconds=session.idle_seconds,
            )
            for role, workplace in self.opened.items()
            for session in workplace.endpoint.manager.sessions.values()
        ]
        return sorted(found, key=lambda one: -one.age_seconds)

    def workplaces(self) -> Sequence[WorkplaceSeen]:
        """One for each role."""
        return [workplace_seen(role, workplace.assembly) for role, workplace in self.opened.items()]

    def server(self) -> ServerSeen:
        """The server as a whole."""
        return ServerSeen(
            replica=self.stores.replica,
            stores=self.kind,
            are_stores_fine=self.are_stores_fine,
            is_draining=self.draining.has_begun,
        )

    async def check_stores(self) -> bool:
        """Whether the stores can be used, and remember it for who looks."""
        try:
            await self.stores.check()
        except Unreachable:
            self.are_stores_fine = False
        else:
            self.are_stores_fine = True
        return self.are_stores_fine


class Overseer:
    """Everything that looks on, made before what it looks at."""

    def __init__(
        self, config: Config, standing: Standing, environment: Mapping[str, str], tracing: Tracing | None = None
    ) -> None:
        self.metrics = Metrics(replica=standing.stores.replica)
        self._config = config
        self._standing = standing
        self._tracing = tracing
        self._board = Board(standing, Redactor(secret_values(environment)))
        self.metrics.supply(standing)

    def watcher(self, role: str, catalog: LiveCatalog) -> CallObserver:
        """What is told of the calls of a role."""
        names = [command.name for command in catalog.registry]
        watchers: list[CallObserver] = [self.metrics.calls(role, names), CallJournal()]
        if self._config.console.tokens:
            watchers.append(self._board.calls(role))
        if self._tracing is not None:
            watchers.append(self._tracing.calls())
        return Watchers(watchers)

    def observed(self, app: ASGIApp, endpoint: str) -> ASGIApp:
        """An app whose requests are seen."""
        watchers: list[RequestWatcher] = [self.metrics, RequestJournal()]
        if self._config.console.tokens:
            watchers.append(self._board)
        return Observed(app, watchers, endpoint=endpoint, tracing=self._tracing)

    def routes(self) -> list[Route]:
        """Health, metrics, and the console where it is on.

        Raises:
            BadSetting: a token file can't be used.
        """
        health = Health(self._checks(), lambda: self._standing.draining.has_begun)
        found = health.routes()
        page = self._metrics_page()
        if page is not None:
            found.append(Route("/metrics", endpoint=page))
        if self._config.console.tokens:
            found += self._console().routes()
        return found

    def _checks(self) -> dict[str, Check]:
        opened: Collection[Workplace] = self._standing.opened.values()

        def required() -> list[Assembly]:
            return [one.assembly for one in opened if one.role.settings.policy.confinement.require is not None]

        return {
            "roots": roots_check(lambda: [workplace.assembly.roots for workplace in opened]),
            "stores": self._standing.check_stores,
            "commands": commands_check(required),
        }

    def _metrics_page(self) -> ASGIApp | None:
        """None where nobody may read it: it is on by default, but not for strangers."""
        section = self._config.metrics
        if not section.enabled:
            return None
        if section.tokens:
            return MetricsPage(self.metrics, TokenFile(section.tokens, roles=None))
        return None if is_exposed(self._config) else MetricsPage(self.metrics)

    def _console(self) -> Console:
        verifier = TokenFile(self._config.console.tokens, roles=None)
        operators = Operators(verifier, Failures(self._config.limits.failures_per_minute))
        server = self._config.server
        is_secure = bool(server.tls_certificate or server.proxies)
        return Console(self._board, operators, self._standing.draining, is_secure=is_secure)
