"""Metrics for Prometheus. Their names are a stable interface (docs/specs/observability.md).

The server has its own registry. Every label has few values, whatever clients send; the principal is never a label.
"""

import platform
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import asdict

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, ProcessCollector, make_asgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.config.logs import LOST_RECORDS
from coretools.distribution import VERSION
from coretools.operations.dispatch import ActiveCall, Outcome
from coretools.services.interface import QueueTotals
from coretools.web.auth.local_caller import is_forwarded
from coretools.web.common.error_response import error_response
from coretools.web.common.events import Exchange, RequestWatcher, outcome_label
from coretools.web.common.urls import is_loopback
from coretools.web.observability.service_metrics import SECONDS, ServiceMetrics
from coretools.web.observability.snapshots import ReloadStatus, SnapshotSource
from coretools.web.sessions.session_limiter import SessionWatcher

MOST_WORDS = 64
"""Largest number of values of a label from code, such as error kinds; other registries may have many."""

METRICS_PATH = "/metrics"

UNKNOWN = "unknown"
OTHER = "other"


class Metrics(RequestWatcher, SessionWatcher):
    """Counts requests and sessions; `calls` creates the observer that counts the calls of one role."""

    def __init__(self, *, replica: str = "") -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self._calls = Counter("coretools_calls", "Calls that ended.", ("tool", "role", "outcome"), registry=registry)
        self._call_seconds = Histogram(
            "coretools_call_seconds", "How long calls took.", ("tool",), registry=registry, buckets=SECONDS
        )
        self._in_flight = Gauge("coretools_calls_in_flight", "Calls under way.", ("role",), registry=registry)
        self._requests = Counter(
            "coretools_http_requests", "HTTP requests that ended.", ("method", "status", "era"), registry=registry
        )
        self._request_seconds = Histogram(
            "coretools_http_request_seconds",
            "How long HTTP requests took whose answer is no stream of events.",
            ("era",),
            registry=registry,
            buckets=SECONDS,
        )
        self._open_requests = Gauge("coretools_http_requests_in_flight", "HTTP requests under way.", registry=registry)
        self._streams = Gauge("coretools_http_streams_open", "Streams of events that are open.", registry=registry)
        self._received = Counter("coretools_http_received_bytes", "Bytes of bodies of requests.", registry=registry)
        self._sent = Counter("coretools_http_sent_bytes", "Bytes of bodies of answers.", registry=registry)
        self._refusals = Counter("coretools_refusals", "Requests that were refused.", ("reason",), registry=registry)
        self._opened = Counter("coretools_sessions_opened", "Sessions that were opened.", ("role",), registry=registry)
        self._ended = Counter("coretools_sessions_ended", "Sessions that ended.", ("role", "reason"), registry=registry)
        build = Gauge("coretools_build_info", "What runs here.", ("version", "python", "replica"), registry=registry)
        build.labels(VERSION, platform.python_version(), replica).set(1)
        self.services = ServiceMetrics(registry)
        self._reasons = _BoundedLabels()
        self._by_request: dict[tuple[str, int, str], Counter] = {}

    def calls(self, role: str, tools: Collection[str]) -> "CallMetrics":
        """Create the observer of a role's calls; other tools than these count as `unknown`."""
        return CallMetrics(
            frozenset(tools),
            in_flight=self._in_flight.labels(role),
            ended=lambda tool, outcome: self._calls.labels(tool, role, outcome),
            seconds=self._call_seconds.labels,
        )

    def collect_from(self, source: SnapshotSource) -> None:
        """Register the gauges that are read from snapshots at each scrape."""
        self.registry.register(_ScrapeCollector(source))

    def refused(self, reason: str) -> None:
        """Count a refusal below the application; other refusals are counted with their request."""
        self._refusals.labels(self._reasons.of(reason)).inc()

    def session_opened(self, role: str) -> None:
        """Count an opened session."""
        self._opened.labels(role).inc()

    def session_ended(self, role: str, reason: str) -> None:
        """Count an ended session; `reason` is a word from code, such as `deleted` or `idle`."""
        self._ended.labels(role, self._reasons.of(reason)).inc()

    def request_began(self, _: Exchange) -> None:
        """Count an active request."""
        self._open_requests.inc()

    def answer_began(self, exchange: Exchange) -> None:
        """Count an open stream."""
        if exchange.is_stream:
            self._streams.inc()

    def request_ended(self, exchange: Exchange) -> None:
        """Count the ended request."""
        self._open_requests.dec()
        key = (exchange.method, exchange.status, exchange.era)
        counter = self._by_request.get(key)
        if counter is None:
            # All three have few values: methods and eras are listed, statuses come from us or the SDK.
            status = str(exchange.status) if exchange.status else "none"
            counter = self._by_request[key] = self._requests.labels(exchange.method, status, exchange.era)
        counter.inc()
        self._received.inc(exchange.bytes_in)
        self._sent.inc(exchange.bytes_out)
        if exchange.is_stream:
            self._streams.dec()
        else:
            self._request_seconds.labels(exchange.era).observe(exchange.seconds)
        if exchange.refused:
            self.refused(exchange.refused)


class CallMetrics:
    """Counts the calls of one role, in about 10 microseconds a call."""

    def __init__(
        self,
        tools: frozenset[str],
        *,
        in_flight: Gauge,
        ended: Callable[[str, str], Counter],
        seconds: Callable[[str], Histogram],
    ) -> None:
        self._tools = tools
        self._in_flight = in_flight
        self._make_ended = ended
        self._make_seconds = seconds
        # Cached: `labels` is half of the cost.
        self._ended: dict[tuple[str, str], Counter] = {}
        self._seconds: dict[str, Histogram] = {}
        self._outcomes = _BoundedLabels()

    def began(self, _: ActiveCall) -> None:
        """Count an active call."""
        self._in_flight.inc()

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Count the ended call."""
        self._in_flight.dec()
        tool = call.command if call.command in self._tools else UNKNOWN
        key = (tool, self._outcomes.of(outcome_label(outcome)))
        counter = self._ended.get(key)
        if counter is None:
            counter = self._ended[key] = self._make_ended(*key)
        counter.inc()
        seconds = self._seconds.get(tool)
        if seconds is None:
            seconds = self._seconds[tool] = self._make_seconds(tool)
        seconds.observe(call.seconds)


class MetricsPage:
    """Serves Prometheus metrics: to everybody behind `AuthMiddleware`, otherwise to loopback clients."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        refresh: Callable[[], Awaitable[None]] | None = None,
        is_for_loopback: bool = True,
    ) -> None:
        """`refresh` is called before each scrape. With `is_for_loopback` other clients are refused."""
        self._refresh = refresh
        self._page: ASGIApp = make_asgi_app(metrics.registry)
        self._is_for_loopback = is_for_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] not in ("GET", "HEAD"):
            answer = error_response(405, "use GET or HEAD", kind="method", headers={"Allow": "GET, HEAD"})
            await answer(scope, receive, send)
        # Behind a proxy on this machine every client would seem local.
        elif self._is_for_loopback and (is_forwarded(scope) or not _is_local(scope)):
            await error_response(403, "metrics are for this machine only", kind="forbidden")(scope, receive, send)
        else:
            if self._refresh is not None:
                await self._refresh()
            await self._page(scope, receive, send)


class _ScrapeCollector(Collector):
    """Reads the state of the server at each scrape."""

    def __init__(self, source: SnapshotSource) -> None:
        self._source = source

    def describe(self) -> Iterable[Metric]:
        """Return nothing: when it is registered, the server may not run yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the current gauges."""
        sessions, tenants, server = self._source.sessions(), self._source.tenants(), self._source.server()
        roles = [tenant.role for tenant in tenants]
        session_roles = [session.role for session in sessions]
        yield _by_role(
            "coretools_sessions_open", "Sessions that are open.", [(role, session_roles.count(role)) for role in roles]
        )
        children = [(tenant.role, tenant.children) for tenant in tenants]
        yield _by_role("coretools_children_alive", "Children of the server that run.", children)
        runs = [(tenant.role, tenant.runs) for tenant in tenants]
        yield _by_role("coretools_runs_alive", "Runs of commands that have not ended.", runs)
        yield GaugeMetricFamily("coretools_draining", "1 once the server takes no new work.", int(server.is_draining))
        lost = CounterMetricFamily("coretools_log_records_lost", "Log records that were not written.")
        lost.add_metric((), LOST_RECORDS.count)
        yield lost
        yield from _of_queues(server.totals)
        if server.stores == "redis":
            yield GaugeMetricFamily(
                "coretools_redis_up", "1 while the lease in Redis is renewed.", int(server.has_lease)
            )
        if server.reload is not None:
            yield from _of_reload(server.reload)


class _BoundedLabels:
    """Bounds the values of a label: further ones become `other`."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, word: str) -> str:
        if word in self._known:
            return word
        if len(self._known) >= MOST_WORDS:
            return OTHER
        self._known.add(word)
        return word


def _by_role(name: str, documentation: str, figures: list[tuple[str, int]]) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=("role",))
    for role, figure in figures:
        family.add_metric((role,), figure)
    return family


def _of_queues(totals: QueueTotals | None) -> Iterator[Metric]:
    """Nothing of a single queue: their names are chosen by commands, and may contain the names of principals."""
    yield GaugeMetricFamily("coretools_services_up", "1 if the store of services answered.", int(totals is not None))
    if totals is not None:
        items = GaugeMetricFamily("coretools_services_items", "Items in all queues of services.", labels=("state",))
        for state, figure in asdict(totals).items():
            items.add_metric((state,), figure)
        yield items


def _of_reload(status: ReloadStatus) -> Iterator[Metric]:
    name = "coretools_last_reload"
    yield GaugeMetricFamily(f"{name}_successful", "1 if the last reload was applied.", int(status.has_succeeded))
    yield GaugeMetricFamily(f"{name}_timestamp_seconds", "When the last reload, or the start, was.", status.at)
    if status.certificate_ends is not None:
        name = "coretools_certificate_expiry_timestamp_seconds"
        yield GaugeMetricFamily(name, "When the certificate in use expires.", status.certificate_ends)


def _is_local(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and is_loopback(client[0])
