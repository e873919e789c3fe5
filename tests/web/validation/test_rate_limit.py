"""How many requests one principal may send (docs/specs/validation.md), over real sockets and with the real limiter."""

import json
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.errors import Unreachable
from coretools.web.common.config import LimitsSection
from coretools.web.common.principals import Principal, Rates, set_principal
from coretools.web.replicas.memory_stores import MemoryRateLimiter
from coretools.web.sessions.batches import BatchMiddleware
from coretools.web.validation.rate_limit import ConcurrencyMiddleware, RateLimitMiddleware, RequestCharge
from coretools.web.validation.request_body import BodyMiddleware
from tests.web.raw_peer import Answer, RawConnection, Recorder, connected, respond, served, until

CALL = b'{"jsonrpc":"2.0","id":1,"method":"x"}'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'

RATES = {
    "default": Rates(requests_per_second=0.001, burst=3, concurrent=2),
    "free": Rates(requests_per_second=0, burst=1, concurrent=2),
}


class LimitedApp:
    """The limiter of the server around an app. `X-Name` names the principal, `X-Role` its role."""

    def __init__(self, app: ASGIApp, limiter: Any = None) -> None:
        self.slots = ConcurrencyMiddleware(app, rates_of=RATES.__getitem__)
        limiter = limiter or MemoryRateLimiter()
        charge = RequestCharge(RATES.__getitem__, limiter)
        bodies = BodyMiddleware(
            BatchMiddleware(self.slots, revision_of=lambda _: "2025-03-26", charge=charge), LimitsSection()
        )
        self.throttle = RateLimitMiddleware(bodies, rates_of=RATES.__getitem__, limiter=limiter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        name, role = headers.get(b"x-name", b"ann").decode(), headers.get(b"x-role", b"free").decode()
        set_principal(scope, Principal(name=name, role=role))
        await self.throttle(scope, receive, send)


def request(
    body: bytes = CALL, *, method: str = "POST", name: str = "ann", role: str = "free", last: str = ""
) -> bytes:
    if last:
        role = f"{role}\r\nLast-Event-ID: {last}"
    length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
    head = f"{method} /mcp HTTP/1.1\r\nHost: a\r\nX-Name: {name}\r\nX-Role: {role}\r\n{length}\r\n"
    return head.encode() + (body if method == "POST" else b"")


async def asked(raw: RawConnection, data: bytes) -> Answer:
    await raw.send(data)
    return await raw.answer()


async def test_too_many_requests_get_retry_after_and_others_are_served() -> None:
    """validation-28: 429 with Retry-After and a JSON-RPC error; the same connection can be used later."""
    app = Recorder()
    async with served(LimitedApp(app)) as running, connected(running.port) as raw:
        statuses = [(await asked(raw, request(role="default"))).status for _ in range(3)]
        refused = await asked(raw, request(role="default"))
        other = await asked(raw, request(role="default", name="ben"))
    assert statuses == [200] * 3
    assert refused.status == 429
    assert 900 <= int(refused.headers["retry-after"]) <= 1000
    assert f"wait for {refused.headers['retry-after']} s" in json.loads(refused.body)["error"]["message"]
    assert json.loads(refused.body)["error"]["data"] == {"kind": "too-many-requests"}
    assert other.status == 200
    assert len(app.seen) == 4


async def test_each_message_of_a_batch_is_counted() -> None:
    """http-26: as if it had come alone; a batch above the limit is refused as a whole."""
    app = Recorder()
    session = "default\r\nMcp-Session-Id: s"
    async with served(LimitedApp(app)) as running, connected(running.port) as raw:
        many = await asked(raw, request(b"[" + b",".join([NOTE] * 4) + b"]", role=session))
        assert (many.status, len(app.seen)) == (429, 0)
        three = request(b"[" + b",".join([NOTE] * 3) + b"]", name="ben", role=session)
        statuses = [(await asked(raw, three)).status for _ in range(2)]
    assert (statuses, len(app.seen)) == ([202, 429], 3)


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_every_method_is_counted(method: str) -> None:
    """validation-28: streams and the end of sessions too."""
    async with served(LimitedApp(Recorder())) as running, connected(running.port) as raw:
        statuses = [(await asked(raw, request(method=method, role="default"))).status for _ in range(5)]
    assert statuses == [200] * 3 + [429] * 2


async def test_a_refused_body_is_not_read() -> None:
    """validation-28: a refused request costs nothing more."""
    app = LimitedApp(Recorder())
    async with served(app) as running, connected(running.port) as raw:
        for _ in range(3):
            await asked(raw, request(role="default"))
        await raw.send(request(role="default")[: -len(CALL)].replace(b": 37", b": 400000"))
        assert (await raw.answer()).status == 429


async def test_without_the_engine_requests_are_refused() -> None:
    """validation-28: what cannot be counted is refused, and may be retried."""

    class Gone:
        async def take(self, key: str, *, per_second: float, burst: int) -> float:
            raise Unreachable("secret address of the engine")

    app = Recorder()
    async with served(LimitedApp(app, Gone())) as running, connected(running.port) as raw:
        answer = await asked(raw, request())
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert b"secret" not in answer.body
    assert not app.seen


class GatedApp:
    """An app that answers when the test lets it."""

    def __init__(self) -> None:
        self.go_on = anyio.Event()
        self.began = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.began += 1
        body = (await receive())["body"] if scope["method"] == "POST" else b""
        if scope["method"] == "GET" or b'"x"' in body:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_gone, receive, tasks.cancel_scope)
                await self.go_on.wait()
                tasks.cancel_scope.cancel()
        await respond(send)

    async def _until_gone(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()


async def test_concurrent_requests_are_bounded_and_what_frees_slots_is_let_through() -> None:
    """validation-30: requests take slots; session streams, notifications, responses and DELETE do not."""
    app = GatedApp()
    limited = LimitedApp(app)
    async with (
        served(limited) as running,
        connected(running.port) as first,
        connected(running.port) as second,
        connected(running.port) as raw,
        connected(running.port) as stream,
    ):
        await stream.send(request(method="GET"))
        await first.send(request())
        await second.send(request())
        await until(lambda: app.began == 3)
        refused = await asked(raw, request())
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert json.loads(refused.body)["error"]["data"] == {"kind": "too-many-at-once"}
        for data in (request(NOTE), request(RESULT), request(method="DELETE")):
            assert (await asked(raw, data)).status == 200
        await raw.send(request(name="ben"))
        await until(lambda: limited.slots.taken == {"ann": 2, "ben": 1})
        app.go_on.set()
        for one in (first, second, raw):
            assert (await one.answer()).status == 200
        assert limited.slots.taken == {}
        assert (await asked(raw, request())).status == 200


async def test_open_streams_are_bounded_and_leave_slots_for_calls() -> None:
    """validation-30: otherwise a client with one event id could take every connection of the server."""
    app = GatedApp()
    limited = LimitedApp(app)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(served(limited))
        raws = [await stack.enter_async_context(connected(running.port)) for _ in range(6)]
        for raw in raws[:2]:
            await raw.send(request(method="GET", last="a-1"))
        await until(lambda: app.began == 2)
        assert (await asked(raws[2], request(method="GET", last="a-1"))).status == 429
        await raws[2].send(request(method="GET"))
        await raws[3].send(request(method="GET", last="a-1", name="ben"))
        for raw in raws[4:]:
            await raw.send(request())
        await until(lambda: app.began == 6)
        app.go_on.set()
        for raw in raws:
            assert (await raw.answer()).status == 200
        assert (await asked(raws[2], request(method="GET", last="a-1"))).status == 200


async def test_a_slot_is_released_however_a_request_ends() -> None:
    """validation-31: by its response, a disconnect, a bug, a cancelled server, a response that is cut off."""

    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("a bug")

    async def half(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise RuntimeError("a bug, later")

    for app in (Recorder(), fails, half):
        limited = LimitedApp(app)
        async with served(limited) as running:
            for _ in range(5):
                async with connected(running.port) as raw:
                    await raw.send(request())
                    assert await raw.some()
            await until(lambda limited=limited: limited.slots.taken == {})
    gated = GatedApp()
    limited = LimitedApp(gated)
    async with served(limited) as running:
        for _ in range(5):
            async with connected(running.port) as raw:
                await raw.send(request())
                await until(lambda: limited.slots.taken == {"ann": 1})
            await until(lambda: limited.slots.taken == {})
    async with served(limited) as running, connected(running.port) as raw:
        await raw.send(request())
        await until(lambda: limited.slots.taken == {"ann": 1})
        for task in running.state.tasks:
            task.cancel()
        await until(lambda: limited.slots.taken == {})
    assert gated.began == 6


async def test_the_state_kept_of_principals_is_bounded() -> None:
    """validation-31: thousands of names leave no slots behind."""
    limited = LimitedApp(Recorder())
    async with served(limited) as running, connected(running.port) as raw:
        for number in range(300):
            assert (await asked(raw, request(name=f"n{number}"))).status == 200
    assert limited.slots.taken == {}
