"""The metrics, as Prometheus' own parser reads them (docs/specs/observability.md)."""

import re
import timeit
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.operations.dispatch import ActiveCall, Outcome
from coretools.services.memory import MemoryServices
from coretools.web.auth.hashed_tokens import create_token, revoke_tokens
from coretools.web.auth.middleware import AuthMiddleware
from coretools.web.auth.verifiers import FailureLimiter, TokenFileVerifier
from coretools.web.observability.metrics import MOST_WORDS, Metrics, MetricsPage
from coretools.web.observability.middleware import ObservabilityMiddleware
from tests.checkout import TREE
from tests.protocol.http_peer import listening
from tests.web.observability.operated import MARKUP, ObservedServer, router

SPEC = TREE / "docs" / "specs" / "observability.md"
SECONDS = 50


@pytest.fixture
def inside() -> ObservedServer:
    return ObservedServer()


class WaitingApp:
    """An ASGI app that waits."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def spoil(path: str) -> None:
    Path(path).write_text("no tokens")


def figure(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@asynccontextmanager
async def served(
    inside: ObservedServer, page: ASGIApp | None = None, *routes: Route
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an app whose requests are counted, with its metrics at `/metrics`."""
    way = Route("/metrics", endpoint=page or MetricsPage(inside.metrics))
    app = ObservabilityMiddleware(router(way, *routes), [inside.metrics])
    async with listening(app) as url, httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as client:
        yield client


async def test_calls_are_counted_by_tool_role_and_outcome(inside: ObservedServer) -> None:
    """observability-1: success, error and internal error; and the duration."""
    for text in ("a", "b"):
        await inside.call("echo", "alice", text=text)
    await inside.call("lose", "bob", path="x")
    await inside.call("crash")
    for tool, outcome, count in (("echo", "ok", 2), ("lose", "not-found", 1), ("crash", "internal", 1)):
        assert figure(inside.metrics, "coretools_calls_total", tool=tool, role="default", outcome=outcome) == count
    assert figure(inside.metrics, "coretools_call_seconds_count", tool="echo") == 2


async def test_calls_under_way_and_cancelled_ones_are_counted(inside: ObservedServer) -> None:
    """observability-1: from their beginning to their end, however they end."""
    async with anyio.create_task_group() as calls:
        calls.start_soon(inside.call, "echo")  # an argument is missing: an error, and an end
        calls.start_soon(lambda: inside.call("wait", name="x"))
        with anyio.fail_after(SECONDS):
            while figure(inside.metrics, "coretools_calls_in_flight", role="default") != 1:
                await anyio.lowlevel.checkpoint()
        calls.cancel_scope.cancel()
    assert figure(inside.metrics, "coretools_calls_in_flight", role="default") == 0
    assert figure(inside.metrics, "coretools_calls_total", tool="wait", role="default", outcome="cancelled") == 1


def test_labels_have_few_values_whatever_is_sent(inside: ObservedServer) -> None:
    """observability-2: neither unknown names nor new kinds of errors make series; no principal is a label."""
    watcher = inside.metrics.calls("default", ["echo"])
    for number in range(MOST_WORDS + 50):
        kind = type("E", (Exception,), {"kind": f"kind-{number}"})()
        call = ActiveCall(command=f"{MARKUP}{number}", principal=f"principal-{number}")
        watcher.began(call)
        watcher.ended(call, Outcome(text="", error=kind))  # type: ignore[arg-type]
    text = "".join(family.samples.__repr__() for family in inside.metrics.registry.collect())
    assert "principal-" not in text
    assert MARKUP not in text
    assert text.count("'tool': 'unknown', 'role': 'default'") == 2 * (MOST_WORDS + 1)
    assert figure(inside.metrics, "coretools_calls_total", tool="unknown", role="default", outcome="other") == 50


def test_counting_a_call_costs_little(inside: ObservedServer) -> None:
    """observability-3: no call waits for it; the bound is a hundred times the cost, and catches mistakes only."""
    watcher = inside.metrics.calls("default", ["echo"])
    call, outcome = ActiveCall(command="echo", principal="alice"), Outcome(text="")

    def counted() -> None:
        watcher.began(call)
        watcher.ended(call, outcome)

    assert min(timeit.repeat(counted, number=1_000, repeat=3)) < 1.0


async def test_requests_are_counted_with_their_bytes(inside: ObservedServer) -> None:
    """observability-1: by method, status and era; an unknown method is `other`."""
    async with served(inside) as client:
        modern = {"MCP-Protocol-Version": "2026-07-28"}
        await client.post("/mcp", content=b"x" * 1000)
        await client.post("/mcp", content=b"x" * 500, headers=modern)
        await client.request("BREW", "/nowhere")
        await client.get("/broken")
    counted = [
        ("POST", "200", "handshake"),
        ("POST", "200", "stateless"),
        ("other", "404", "none"),
        ("GET", "500", "none"),
    ]
    for method, status, era in counted:
        labels = {"method": method, "status": status, "era": era}
        assert figure(inside.metrics, "coretools_http_requests_total", **labels) == 1
    assert figure(inside.metrics, "coretools_http_received_bytes_total") == 1500
    assert (figure(inside.metrics, "coretools_http_sent_bytes_total") or 0) > 2 * len('{"fine":true}')
    assert figure(inside.metrics, "coretools_http_request_seconds_count", era="stateless") == 1
    assert figure(inside.metrics, "coretools_http_requests_in_flight") == 0


async def test_streams_are_counted_while_they_are_open(inside: ObservedServer) -> None:
    """observability-1: and not as slow requests; one whose client disconnected has ended."""

    async def stream(request: Request) -> Response:
        async def events() -> AsyncIterator[bytes]:
            yield b"data: x\n\n"
            await anyio.sleep_forever()

        return StreamingResponse(events(), media_type="text/event-stream")

    async with served(inside, None, Route("/stream", stream)) as client:
        with anyio.fail_after(SECONDS):
            async with client.stream("GET", "/stream") as answer:
                assert answer.status_code == 200
                assert figure(inside.metrics, "coretools_http_streams_open") == 1
            while figure(inside.metrics, "coretools_http_streams_open") != 0:
                await anyio.lowlevel.checkpoint()
    assert figure(inside.metrics, "coretools_http_request_seconds_count", era="none") is None


async def test_a_disconnect_is_counted_without_a_status(inside: ObservedServer) -> None:
    """observability-1: nothing was answered, and no request stays open."""
    waiting, over = anyio.Event(), anyio.Event()

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        waiting.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        over.set()

    async with (
        served(inside, None, Route("/wait", endpoint=WaitingApp(wait))) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(client.get, "/wait")
        with anyio.fail_after(SECONDS):
            await waiting.wait()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await over.wait()
    labels = {"method": "GET", "status": "none", "era": "none"}
    assert figure(inside.metrics, "coretools_http_requests_total", **labels) == 1
    assert figure(inside.metrics, "coretools_http_requests_in_flight") == 0


async def test_refusals_are_counted_by_reason(inside: ObservedServer) -> None:
    """observability-1: of requests, and of connections before any request."""
    async with served(inside) as client:
        await client.get("/refused")
    inside.metrics.refused("header-too-long")
    assert figure(inside.metrics, "coretools_refusals_total", reason="host") == 1
    assert figure(inside.metrics, "coretools_refusals_total", reason="header-too-long") == 1


async def test_the_state_of_the_server_is_collected(inside: ObservedServer) -> None:
    """observability-1: sessions, children and runs by role, draining, and versions."""
    assert figure(inside.metrics, "coretools_sessions_open", role="default") == 2
    assert figure(inside.metrics, "coretools_children_alive", role="default") == 3
    assert figure(inside.metrics, "coretools_runs_alive", role="default") == 1
    assert figure(inside.metrics, "coretools_draining") == 0
    inside.draining.begin()
    assert figure(inside.metrics, "coretools_draining") == 1
    inside.metrics.session_opened("default")
    inside.metrics.session_ended("default", "idle")
    assert figure(inside.metrics, "coretools_sessions_opened_total", role="default") == 1
    assert figure(inside.metrics, "coretools_sessions_ended_total", role="default", reason="idle") == 1
    assert (figure(inside.metrics, "process_open_fds") or 0) > 0


async def test_the_page_is_read_by_prometheus(inside: ObservedServer) -> None:
    """observability-4: in its own text format and in OpenMetrics, as requested; the specification lists the names."""
    await inside.call("echo", text="x")
    inside.metrics.session_opened("default")
    inside.metrics.session_ended("default", "idle")
    await inside.metrics.services.observed(MemoryServices()).queues.put("q", b"x")
    async with served(inside) as client:
        await client.get("/refused")
        plain = await client.get("/metrics")
        asked = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        head = await client.head("/metrics")
        wrong = await client.post("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert asked.headers["content-type"].startswith("application/openmetrics-text")
    assert {one.name for one in open_metrics(asked.text)} >= {"coretools_calls", "process_open_fds"}
    assert (head.status_code, wrong.status_code) == (200, 405)
    names = {sample.name for one in plain_text(plain.text) for sample in one.samples}
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name in names if name.startswith("coretools_")}
    ours = {name for name in ours if not name.endswith("_created")}
    listed = set(re.findall(r"^\| `(coretools_\w+)", SPEC.read_text("utf-8"), re.MULTILINE))
    assert ours == listed


async def test_the_metrics_are_for_token_holders(inside: ObservedServer, tmp_path: Path) -> None:
    """observability-5: the tokens of the metrics file, until they are revoked; others give no access."""
    path = str(tmp_path / "tokens.json")
    _, token = create_token(path, name="prometheus", role="default")
    page = MetricsPage(inside.metrics, is_for_loopback=False)
    async with served(inside, AuthMiddleware(page, TokenFileVerifier(path), failures=FailureLimiter(9))) as client:

        async def asked(value: str | None) -> int:
            headers = {} if value is None else {"Authorization": value}
            answer = await client.get("/metrics", headers=headers)
            if answer.status_code == 401:
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert "coretools_calls" not in answer.text
            return answer.status_code

        assert await asked(f"Bearer {token}") == 200
        assert await asked(f"bearer {token}") == 200
        for wrong in (None, "Bearer", f"Basic {token}", f"Bearer {token}x", f"Bearer {token[:-1]}"):
            assert await asked(wrong) == 401
        revoke_tokens(path, "prometheus")
        assert await asked(f"Bearer {token}") == 401
        spoil(path)
        assert await asked(f"Bearer {token}") == 503


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
async def test_without_tokens_the_metrics_are_for_loopback_clients(inside: ObservedServer, header: str) -> None:
    """observability-5: and not for clients behind a proxy on this machine."""
    async with served(inside) as client:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/metrics", headers={header: "203.0.113.7"})).status_code == 403


async def test_without_tokens_other_machines_are_refused(inside: ObservedServer) -> None:
    """observability-5: decided by the address; a connection without one is refused."""
    answered: list[int] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request"}

    async def send(message: dict[str, object]) -> None:
        if "status" in message:
            answered.append(int(str(message["status"])))

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/metrics",
        "query_string": b"",
        "headers": [],
        "http_version": "1.1",
    }
    for client in (("203.0.113.7", 1), ("::1", 1), None):
        await MetricsPage(inside.metrics)({**scope, "client": client}, receive, send)  # type: ignore[arg-type]
    assert answered == [403, 200, 403]
