"""A receiver of OTLP over HTTP: what an OpenTelemetry collector gets, decoded with the protocol's own messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Received:
    """All exports received."""

    bodies: list[bytes] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    resources: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def named(self, name: str, trace: str) -> list[Span]:
        return [span for span in self.spans if span.name == name and span.trace_id.hex() == trace]

    def take(self, body: bytes) -> None:
        """Decode one export."""
        self.bodies.append(body)
        for each in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes_of(each.resource.attributes))
            for scope in each.scope_spans:
                self.spans.extend(scope.spans)


def attributes_of(pairs: object) -> dict[str, str]:
    """Attributes as text."""

    def text(value: AnyValue) -> str:
        return str(getattr(value, value.WhichOneof("value") or "string_value"))

    found: dict[str, str] = {}
    for pair in pairs:  # type: ignore[attr-defined]
        assert isinstance(pair, KeyValue)
        found[pair.key] = text(pair.value)
    return found


@contextmanager
def receiving() -> Iterator[Received]:
    """Serve a receiver on a free port until the end of the block."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            received.headers.append(dict(self.headers))
            received.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_address[1]}"
    serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    try:
        yield received
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
