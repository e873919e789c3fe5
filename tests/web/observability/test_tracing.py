"""Traces: parents, spans, attributes, and what they never contain (docs/specs/observability.md)."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.server import ServerInfo, ServerOptions, build_server
from coretools.web.observability.middleware import ObservabilityMiddleware
from coretools.web.observability.tracing import Tracing, provider_of, scrubbing
from tests.checkout import TREE
from tests.protocol.http_peer import listening
from tests.web.http_server_peer import ANONYMOUS, http_server
from tests.web.observability.operated import ObservedServer, router
from tests.web.observability.trace_receiver import Received, attributes_of, receiving

CANARY = "canary-4711"
CALLER = "00f067aa0ba902b7"
STATELESS, HANDSHAKE, BY_META = "a" * 32, "b" * 32, "c" * 32
SPAN_OF_META = "1234567890abcdef"


def parent(trace: str, span: str = CALLER, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{span}-{flags}", "tracestate": "vendor=1"}


class MemorySpanExporter:
    """Spans of this process, as an exporter gets them."""

    def __init__(self) -> None:
        self.provider = provider_of("replica-1")
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(scrubbing(self._exporter, {"echo", "lose"})))
        self.tracing = Tracing(self.provider.get_tracer("test"))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


async def asked(kept: MemorySpanExporter, path: str, headers: dict[str, str]) -> ReadableSpan:
    app = ObservabilityMiddleware(router(), [], tracing=kept.tracing)
    async with listening(app) as url, httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as client:
        await client.get(path, headers=headers)
    [span] = kept.spans
    return span


async def test_a_request_is_a_part_of_its_caller_s_trace() -> None:
    """observability-11: `traceparent` and `tracestate`; the span has method, route and status."""
    span = await asked(MemorySpanExporter(), "/mcp", parent(STATELESS))
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == STATELESS
    assert f"{span.parent.span_id:016x}" == CALLER
    assert span.context is not None
    assert span.context.trace_state.get("vendor") == "1"
    assert (span.name, dict(span.attributes or {})) == (
        "GET /mcp",
        {"http.request.method": "GET", "http.route": "/mcp", "http.response.status_code": 200},
    )


@pytest.mark.parametrize("value", ["", "garbage", f"00-{'0' * 32}-{CALLER}-01", f"ff-{STATELESS}-{CALLER}-01"])
async def test_an_invalid_traceparent_begins_a_trace(value: str) -> None:
    """observability-11: W3C Trace Context, 3.2.2."""
    span = await asked(MemorySpanExporter(), "/mcp", {"traceparent": value})
    assert span.parent is None


async def test_a_caller_that_does_not_sample_is_not_sampled() -> None:
    """observability-11: OpenTelemetry's default sampler; OTEL_TRACES_SAMPLER changes it."""
    kept = MemorySpanExporter()
    app = ObservabilityMiddleware(router(), [], tracing=kept.tracing)
    async with listening(app) as url, httpx2.AsyncClient() as client:
        await client.get(url, headers=parent(STATELESS, flags="00"))
    assert kept.spans == []


async def test_unknown_paths_and_queries_are_not_recorded() -> None:
    """observability-12: a client may request any path; a failure is known by its status."""
    span = await asked(MemorySpanExporter(), f"/nowhere/{CANARY}?token={CANARY}", {})
    assert span.name == "GET"
    assert CANARY not in span.to_json()
    broken = await asked(MemorySpanExporter(), "/broken", {})
    assert broken.status.status_code is StatusCode.ERROR
    assert (broken.attributes or {})["error.type"] == "500"
    assert broken.events == ()


async def test_a_call_has_a_span_that_names_its_tool_and_its_end() -> None:
    """observability-11: `execute_tool NAME`, with the id in the log; an error by its kind."""
    kept, inside = MemorySpanExporter(), ObservedServer()
    inside.dispatcher = Dispatcher(threads=2, observer=kept.tracing.calls())
    await inside.call("echo", "alice", text=CANARY)
    await inside.call("lose", "alice", path=CANARY)
    await inside.call("crash")
    fine, lost, other = kept.spans
    assert fine.name == "execute_tool echo"
    assert {name: value for name, value in (fine.attributes or {}).items() if name != "gen_ai.tool.call.id"} == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
    }
    assert fine.status.status_code is StatusCode.UNSET
    assert (lost.attributes or {})["error.type"] == "not-found"
    assert lost.status.status_code is StatusCode.ERROR
    assert lost.status.description is None
    assert other.name == "inner"  # not one of the names that may be recorded
    for span in kept.spans:
        assert CANARY not in span.to_json()
        assert "alice" not in span.to_json()


async def test_spans_of_a_tool_are_children_of_its_call() -> None:
    """observability-11: and are exported without names or attributes, which are not ours."""
    kept, inside = MemorySpanExporter(), ObservedServer()

    @inside.registry.tool(Effect.READ)
    async def traced() -> str:
        """Trace something."""
        with kept.provider.get_tracer("theirs").start_as_current_span(CANARY, attributes={"q": CANARY}) as span:
            span.add_event(CANARY)
        return "done"

    inside.dispatcher = Dispatcher(threads=2, observer=kept.tracing.calls())
    await inside.call("traced")
    theirs, call = kept.spans
    assert theirs.parent is not None
    assert call.context is not None
    assert theirs.parent.span_id == call.context.span_id
    assert (theirs.name, dict(theirs.attributes or {}), theirs.events) == ("inner", {}, ())


def modern(name: str, arguments: dict[str, Any], **meta: str) -> dict[str, Any]:
    own = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": CANARY, "version": "1"},
    }
    params = {"name": name, "arguments": arguments, "_meta": {**own, **meta}}
    return {"jsonrpc": "2.0", "id": CANARY, "method": "tools/call", "params": params}


def posted(url: str, body: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
    common = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {CANARY}"}
    return httpx2.post(url, json=body, headers={**common, "baggage": f"user={CANARY}", **headers}, timeout=30)


def call_stateless(url: str, trace: str, name: str, arguments: dict[str, Any], **meta: str) -> httpx2.Response:
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name, **parent(trace)}
    return posted(url, modern(name, arguments, **meta), headers)


def call_in_session(url: str) -> None:
    """Open a session in one trace, and call on it in another."""
    information = {"name": CANARY, "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": information}
    opened = posted(url, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, {})
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    posted(url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    params = {"name": "read_file", "arguments": {"path": f"{CANARY}.txt"}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    assert posted(url, call, {**session, **parent(HANDSHAKE)}).status_code == 200
    params = {"uri": f"file:///{CANARY}"}
    posted(url, {"jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": params}, session)
    posted(url, {"jsonrpc": "2.0", "id": 4, "method": f"made/{CANARY}", "params": {}}, session)


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Received]:
    """What a collector received of a whole server, from its start to its end."""
    folder = tmp_path_factory.mktemp("traced")
    (folder / "root").mkdir()
    (folder / "root" / f"{CANARY}.txt").write_text(CANARY)
    with receiving() as found:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": found.url,
            "OTEL_SERVICE_NAME": "tools-of-the-team",
            "CORETOOLS_HTTP_TELEMETRY__TRACES": "true",
            **ANONYMOUS,
        }
        with http_server(folder, "--root", folder / "root", environment=environment) as server:
            read = {"path": f"{CANARY}.txt"}
            assert CANARY in call_stateless(server.url, STATELESS, "read_file", read).text
            call_stateless(server.url, BY_META, "read_file", read, traceparent=f"00-{BY_META}-{SPAN_OF_META}-01")
            call_stateless(server.url, "d" * 32, CANARY, {})
            call_stateless(server.url, "e" * 32, "read_file", {"path": f"/{CANARY}", CANARY: CANARY})
            call_in_session(server.url)
            httpx2.get(server.url.replace("/mcp", f"/{CANARY}"), headers=parent("f" * 32))
            for page in ("healthz", "readyz", "metrics"):
                assert httpx2.get(server.url.replace("mcp", page), headers=parent("9" * 32)).status_code == 200
            server.end()
            assert f'"trace":"{STATELESS}"' in server.log.read_text()
        yield found


@pytest.mark.parametrize("trace", [STATELESS, HANDSHAKE], ids=["stateless", "handshake"])
def test_request_message_and_call_are_nested(received: Received, trace: str) -> None:
    """observability-11: in both eras, below the caller's span; a session has no trace, each call has its own."""
    [request] = received.named("POST /mcp", trace)
    [message] = received.named("tools/call read_file", trace)
    [call] = received.named("execute_tool read_file", trace)
    assert request.parent_span_id.hex() == CALLER
    assert message.parent_span_id == request.span_id
    assert call.parent_span_id == message.span_id
    attributes = attributes_of(message.attributes)
    assert attributes["mcp.method.name"] == "tools/call"
    assert attributes["gen_ai.tool.name"] == "read_file"


def test_probes_and_scrapes_have_no_span(received: Received) -> None:
    """observability-30: they come every few seconds."""
    assert len(received.named("GET", "f" * 32)) == 1
    assert received.named("GET", "9" * 32) == []


def test_a_message_may_name_its_own_parent(received: Received) -> None:
    """observability-11: `_meta.traceparent`, as the SDK reads it; the request keeps its own parent."""
    [message] = received.named("tools/call read_file", BY_META)
    [call] = received.named("execute_tool read_file", BY_META)
    assert message.parent_span_id.hex() == SPAN_OF_META
    assert call.parent_span_id == message.span_id


def test_the_service_name_is_exported(received: Received) -> None:
    """observability-11: from OpenTelemetry's own variables, and the replica."""
    for resource in received.resources:
        assert resource["service.name"] == "tools-of-the-team"
        assert resource["service.version"]
        assert resource["service.instance.id"]


def test_the_service_name_defaults_to_the_entry_point() -> None:
    """observability-11: that of the entry point."""
    assert provider_of("replica-1").resource.attributes["service.name"] == "coretools-http"


def test_nothing_that_was_sent_leaves_the_server(received: Received) -> None:
    """observability-12: no argument, content, unknown name, URI, id, token or baggage is in any byte of any export."""
    names = {span.name for span in received.spans}
    assert {"GET", "POST /mcp", "tools/call", "tools/call read_file", "resources/read", "inner"} >= names - {
        "execute_tool read_file",
        "initialize",
        "notifications/initialized",
    }
    for body in received.bodies:
        assert CANARY.encode() not in body
    for span in received.spans:
        assert list(span.events) == []
        assert span.status.message == ""


def test_a_collector_that_hangs_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    """observability-11: it would for an hour, by the operator's own variable; the server ends before that."""
    (tmp_path / "root").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as collector:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.getsockname()[1]}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3600",
            "OTEL_BSP_EXPORT_TIMEOUT": "3600000",
            "CORETOOLS_HTTP_TELEMETRY__TRACES": "true",
            **ANONYMOUS,
        }
        with http_server(tmp_path, "--root", tmp_path / "root", environment=environment) as server:
            httpx2.get(server.url.replace("/mcp", "/healthz"))
            assert server.end() == 128 + signal.SIGTERM


def test_without_the_extra_the_start_error_names_it(tmp_path: Path) -> None:
    """observability-13: the key and the package; nothing listens."""
    (tmp_path / "opentelemetry_gone.py").write_text(
        "import sys\n"
        "class Gone:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter')):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Gone())\n"
        "from coretools.servers.http_server import main\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "opentelemetry_gone.py"), "--port", "0", "--root", f"{tmp_path}:ro"],
        env={**os.environ, **ANONYMOUS, "CORETOOLS_HTTP_TELEMETRY__TRACES": "true", "PYTHONPATH": str(TREE)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 78, json.dumps(ended.stderr)
    assert "telemetry.traces: needs the extra 'otel'" in ended.stderr


@pytest.mark.parametrize("is_traced", [True, False])
def test_spans_that_nobody_exports_are_not_created(is_traced: bool) -> None:
    """observability-21: the SDK creates one for each message, which costs a twentieth of a call."""
    server = build_server(
        LiveCatalog(Registry(), Selection()),
        Dispatcher(threads=1),
        ServerInfo(),
        ServerOptions(is_traced=is_traced),
    )
    names = [type(middleware).__name__ for middleware in server.middleware]
    assert ("OpenTelemetryMiddleware" in names) == is_traced


def test_a_server_creates_spans_if_its_process_has_a_provider() -> None:
    """observability-21: on stdio and in a library too."""
    program = """if True:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from coretools.operations.registry import Registry
        from coretools.hosting.serve import build
        for provider in (None, TracerProvider()):
            if provider:
                trace.set_tracer_provider(provider)
            print([type(one).__name__ for one in build(Registry()).middleware])
        """
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(TREE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ["OpenTelemetryMiddleware" in line for line in done.stdout.splitlines()] == [False, True]
