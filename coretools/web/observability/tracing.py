"""Traces by OpenTelemetry: one span for each HTTP request and for each call, the SDK's span for each message between.

Exported spans are scrubbed: the SDK's spans contain error messages, names as clients sent them and texts of exceptions.
Only the attributes listed here are exported; they have names and figures.
"""

import importlib.util
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mcp_types.methods import MONOLITH_NOTIFICATIONS, MONOLITH_REQUESTS
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from coretools.distribution import VERSION, needs_extra
from coretools.errors import BadSetting
from coretools.operations.dispatch import ActiveCall, Outcome
from coretools.web.common.error_response import SERVER_FAULT
from coretools.web.common.events import Exchange, outcome_label
from coretools.web.common.urls import ENDPOINT

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

SERVICE = "coretools-http"
"""`service.name`, unless OTEL_SERVICE_NAME is set."""

ATTRIBUTES = frozenset(
    {
        "error.type",
        "gen_ai.operation.name",
        "gen_ai.tool.call.id",
        "gen_ai.tool.name",
        "http.request.method",
        "http.response.status_code",
        "http.route",
        "mcp.method.name",
        "mcp.protocol.version",
        "rpc.response.status_code",
    }
)
"""Exported attributes. The semantic conventions for HTTP, MCP and generative AI have more, with data of clients."""

VALUES: Mapping[str, Collection[object]] = {
    "mcp.method.name": frozenset({*MONOLITH_REQUESTS, *MONOLITH_NOTIFICATIONS}),
    "mcp.protocol.version": frozenset({*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS}),
}
"""Allowed values of attributes that clients choose."""

LONGEST = 64
"""Largest attribute, in characters."""

LAST_SECONDS = 2.0
"""Timeout to send pending spans when the server ends."""

OTHER = "inner"
"""Name given to spans of other libraries, whose names may contain anything."""

NO_EXTRA = f"telemetry.traces: {needs_extra('otel')}"

COLLECTOR = "http://localhost:4318"
"""The exporter's default (OTLP exporter specification)."""

_HEADERS = ("traceparent", "tracestate")


class Tracing:
    """Creates spans. The SDK creates its own with the same provider."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, exchange: Exchange) -> Iterator[None]:
        """Open the span of an HTTP request, a child of the caller's span if the headers name one (Trace Context)."""
        attributes: dict[str, str] = {"http.request.method": exchange.method}
        name = exchange.method
        if exchange.path == ENDPOINT:  # clients choose any other
            attributes["http.route"] = exchange.path
            name = f"{exchange.method} {exchange.path}"
        with self._tracer.start_as_current_span(
            name,
            context=self._parent(exchange),
            kind=SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            finally:
                _set_response_attributes(span, exchange)

    def calls(self) -> "CallSpans":
        """Create the observer that opens a span for each call."""
        return CallSpans(self._tracer)

    def _parent(self, exchange: Exchange) -> Context:
        carrier: dict[str, str] = {}
        for name, value in exchange.scope["headers"]:
            text = name.decode("latin-1")
            if text in _HEADERS:
                carrier[text] = value.decode("latin-1")
        # From an empty context: the current span of the server's own task is not the parent of a request.
        return self._propagator.extract(carrier, Context())


class CallSpans:
    """Opens one span for each call; spans of the tool itself are its children."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: dict[str, tuple[Span, Token[Context]]] = {}

    def began(self, call: ActiveCall) -> None:
        """Open the span and make it current."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.command,
            # To find the call and its principal in the log.
            "gen_ai.tool.call.id": call.id,
        }
        span = self._tracer.start_span(f"execute_tool {call.command}", attributes=attributes)
        self._open[call.id] = span, attach(trace.set_span_in_context(span))

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Close the span; of an error it has only the kind."""
        span, token = self._open.pop(call.id)
        ending = outcome_label(outcome)
        if ending != "ok":
            span.set_attribute("error.type", ending)
            span.set_status(Status(StatusCode.ERROR))
        detach(token)
        span.end()


@contextmanager
def exporting_traces(replica: str, tools: Collection[str]) -> Iterator[Tracing]:
    """Export spans as OpenTelemetry's variables configure (OTLP over HTTP), until the end of the block.

    At the end pending spans are sent, for `LAST_SECONDS` at most. This works once in a process, which has one provider.
    `tools` are the names that spans may contain; more may be added later.

    Raises:
        BadSetting: the extra is not installed.
    """
    try:
        # Imported late: an extra, and 0.2 s of a start that a server without traces does not pay for.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise BadSetting(NO_EXTRA) from error
    provider = provider_of(replica)
    tracing = Tracing(provider.get_tracer(__name__, VERSION))
    provider.add_span_processor(BatchSpanProcessor(scrubbing(OTLPSpanExporter(), tools)))
    trace.set_tracer_provider(provider)
    try:
        yield tracing
    finally:
        # A collector that does not answer would delay the end of the server by the timeout of an export.
        last = threading.Thread(target=provider.shutdown, daemon=True)
        last.start()
        last.join(LAST_SECONDS)


def collector_of(environment: Mapping[str, str]) -> str:
    """Return where OpenTelemetry's variables send spans, without user and password.

    Raises:
        BadSetting: the extra is not installed.
    """
    if importlib.util.find_spec("opentelemetry.exporter") is None:
        raise BadSetting(NO_EXTRA)
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    scheme, _, rest = next((environment[name] for name in names if environment.get(name)), COLLECTOR).rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def provider_of(replica: str) -> "TracerProvider":
    """Create the tracer provider; OpenTelemetry's variables configure the sampler."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # imported late, as above
    from opentelemetry.sdk.trace import TracerProvider

    named = {"service.name": SERVICE, "service.version": VERSION}
    if replica:
        named["service.instance.id"] = replica
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    return TracerProvider(
        resource=Resource.create(named).merge(OTELResourceDetector().detect()), shutdown_on_exit=False
    )


def scrubbing(exporter: "SpanExporter", tools: Collection[object]) -> "SpanExporter":
    """Wrap an exporter so that it gets spans without texts of clients or exceptions."""
    from opentelemetry.sdk.trace.export import SpanExporter  # imported late, as above

    values = {**VALUES, "gen_ai.tool.name": tools}

    class Scrubbing(SpanExporter):
        def export(self, spans: "Sequence[ReadableSpan]") -> "SpanExportResult":
            return exporter.export([scrubbed(span, values) for span in spans])

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return exporter.force_flush(timeout_millis)

    return Scrubbing()


def scrubbed(span: "ReadableSpan", values: Mapping[str, Collection[object]]) -> "ReadableSpan":
    """Copy a span with its context, times and kind and the listed attributes; without events and descriptions."""
    from opentelemetry.sdk.trace import ReadableSpan  # imported late, as above

    attributes = _listed(span.attributes or {}, values)
    return ReadableSpan(
        name=_name(span, attributes),
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _listed(attributes: Mapping[str, object], values: Mapping[str, Collection[object]]) -> dict[str, str | int]:
    return {
        name: value if isinstance(value, int) else str(value)[:LONGEST]
        for name, value in attributes.items()
        if name in ATTRIBUTES and (name not in values or value in values[name])
    }


def _name(span: "ReadableSpan", attributes: Mapping[str, str | int]) -> str:
    """Return the name of a span: ours unchanged, the SDK's by its method from a fixed table and a known tool."""
    method = attributes.get("mcp.method.name")
    if method is None:
        return span.name if "http.request.method" in attributes or "gen_ai.tool.name" in attributes else OTHER
    tool = attributes.get("gen_ai.tool.name")
    return str(method) if tool is None else f"{method} {tool}"


def _set_response_attributes(span: Span, exchange: Exchange) -> None:
    if exchange.status:
        span.set_attribute("http.response.status_code", exchange.status)
    if exchange.status >= SERVER_FAULT or not exchange.status:
        span.set_attribute("error.type", str(exchange.status) if exchange.status else "disconnected")
        span.set_status(Status(StatusCode.ERROR))
