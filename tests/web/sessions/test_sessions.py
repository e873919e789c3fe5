"""Sessions of the handshake era: shares, ends, owners, and what is overridden of the SDK (docs/specs/http.md)."""

import inspect
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.errors import Unreachable
from coretools.hosting.serve import build, http_app
from coretools.operations.call import Call
from coretools.operations.declare import Effect, tool
from coretools.operations.registry import Registry
from coretools.protocol.draining import Draining
from coretools.web.common.config import LimitsSection
from coretools.web.common.principals import Principal, set_principal
from coretools.web.endpoint import Endpoint
from coretools.web.replicas.memory_stores import MemorySessions, MemoryStores
from coretools.web.sessions.session_limiter import SessionLimiter
from coretools.web.validation.request_body import BodyMiddleware
from tests.process.tree import until
from tests.protocol.http_peer import listening
from tests.web.http_mcp_client import HttpMcpClient, messages_in
from tests.web.plans import at_work, plan_of

SECONDS = 50.0


class SessionRecorder:
    """An observer that records the events of sessions."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def session_opened(self, role: str) -> None:
        self.events.append(f"{role} opened")

    def session_ended(self, role: str, reason: str) -> None:
        self.events.append(f"{role} {reason}")


class NamedApp:
    """An app that takes the principal from a header; authentication is tested elsewhere."""

    def __init__(self, endpoint: ASGIApp) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        set_principal(scope, Principal(name=headers.get(b"x-name", b"ann").decode()))
        await self._endpoint(scope, receive, send)


class ServedEndpoint:
    """An endpoint on a socket."""

    def __init__(self, endpoint: Endpoint, url: str, http: httpx2.AsyncClient) -> None:
        self.endpoint = endpoint
        self._url = url
        self._http = http

    def mcp_client(self, name: str = "ann") -> "NamedHand":
        return NamedHand(self._http, self._url, name)


class NamedHand(HttpMcpClient):
    """A client with a principal."""

    def __init__(self, http: httpx2.AsyncClient, url: str, name: str) -> None:
        super().__init__(http, url)
        self.name = name

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "X-Name": self.name}


cancelled: list[str] = []


@tool(Effect.READ)
async def wait(call: Call) -> str:
    """Wait for ever."""
    try:
        await call.progress(1)
        await anyio.sleep_forever()
    finally:
        cancelled.append("gone")
    return ""


@tool(Effect.READ)
def greet(name: str) -> str:
    """Greet."""
    return f"hello {name}"


@asynccontextmanager
async def place(
    limits: LimitsSection | None = None, stores: MemoryStores | None = None, watcher: SessionRecorder | None = None
) -> AsyncIterator[ServedEndpoint]:
    registry = Registry()
    registry.add(wait)
    registry.add(greet)
    endpoint = Endpoint(
        build(registry),
        role="dev",
        stores=stores or MemoryStores(),
        session_limiter=SessionLimiter(limits or LimitsSection(sessions=64), watcher),
        draining=Draining(),
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await NamedApp(BodyMiddleware(endpoint, LimitsSection()))(scope, receive, send)

    async with endpoint.running(), listening(app) as url, httpx2.AsyncClient(timeout=SECONDS) as http:
        yield ServedEndpoint(endpoint, url, http)


@asynccontextmanager
async def listening_in(mcp_client: HttpMcpClient) -> AsyncIterator[None]:
    """A session of a client whose stream is open, as usual."""
    assert (await mcp_client.initialize()).status_code == 200
    async with mcp_client.http.stream(
        "GET", mcp_client.url, headers={**mcp_client.headers(), "Accept": "text/event-stream"}
    ) as answer:
        assert answer.status_code == 200
        yield


async def test_each_principal_has_a_share_and_all_together_have_a_limit() -> None:
    """http-6: a principal at its share takes nothing from others, and a session that ends makes room."""
    async with place(LimitsSection(sessions=4, sessions_per_principal=2)) as here, AsyncExitStack() as streams:
        anns, bens = [here.mcp_client("ann") for _ in range(2)], [here.mcp_client("ben") for _ in range(2)]
        for one in (*anns, *bens):
            await streams.enter_async_context(listening_in(one))
        for name, status in (("ann", 503), ("cid", 503)):
            answer = await here.mcp_client(name).initialize()
            assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (status, True)
        gone = await anns[0].http.delete(anns[0].url, headers=anns[0].headers())
        assert gone.status_code == 200
        answer = await here.mcp_client("ben").initialize()
        assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (429, True)
        assert (await here.mcp_client("cid").initialize()).status_code == 200


async def test_abandoned_sessions_lock_nobody_out() -> None:
    """http-6: the least recently used session of the same principal without a stream is evicted."""
    watcher = SessionRecorder()
    async with place(LimitsSection(sessions=4, sessions_per_principal=3), watcher=watcher) as here:
        other, live = here.mcp_client("ben"), here.mcp_client()
        await other.initialize()
        async with listening_in(live):
            left = [here.mcp_client() for _ in range(20)]
            for one in left:
                assert (await one.initialize()).status_code == 200
                assert (await left[0].call("greet", name="x")).status_code == 200  # in use, but without a stream
            assert {one.principal for one in here.endpoint.manager.sessions.values()} == {"ann", "ben"}
            assert len(here.endpoint.manager.sessions) == 4
            assert [(await one.call("greet", name="x")).status_code for one in (left[18], left[19])] == [404, 200]
            for one in (live, other):
                assert (await one.call("greet", name="x")).status_code == 200
            answers: list[httpx2.Response] = []

            async def open_one() -> None:
                answers.append(await here.mcp_client().initialize())

            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(open_one)
            refused = [one for one in answers if one.status_code != 200]
            assert refused
            for one in refused:
                assert (one.status_code, one.headers.get("retry-after")) == (503, "5"), one.text
                assert one.json()["error"].get("data", {}).get("kind") == "too-many-sessions"
            assert len(here.endpoint.manager.sessions) <= 4
            for one in (live, other):
                assert (await one.call("greet", name="x")).status_code == 200
    assert watcher.events.count("dev evicted") >= 19


@pytest.mark.parametrize(("limits", "share"), [((1024, 0), 64), ((10, 0), 1), ((10, 3), 3)])
def test_the_share_is_a_sixteenth_and_at_least_one(limits: tuple[int, int], share: int) -> None:
    """http-6: unless the operator sets another number."""
    assert LimitsSection(sessions=limits[0], sessions_per_principal=limits[1]).session_share == share


async def test_a_request_that_opens_nothing_takes_no_slot() -> None:
    """http-6: only `initialize` opens a session, and no other response has a session id."""
    watcher = SessionRecorder()
    async with place(LimitsSection(sessions=1, sessions_per_principal=1), watcher=watcher) as here:
        only, stranger = here.mcp_client(), here.mcp_client()
        broken = await stranger.http.post(stranger.url, json=HANDSHAKE, headers={**stranger.headers(), "Accept": "x/y"})
        assert (broken.status_code, "mcp-session-id" in broken.headers) == (406, False)
        watcher.events.clear()
        await only.initialize()
        answers = [
            await stranger.ask("tools/list", {}),
            await stranger.ask("ping", {}),
            await stranger.post({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            await stranger.post({"jsonrpc": "2.0", "method": "initialize"}),
            await stranger.post({"jsonrpc": "2.0", "id": 1, "result": {}}),
            await stranger.post([]),
            await stranger.http.get(stranger.url, headers={**stranger.headers(), "Accept": "text/event-stream"}),
            await stranger.http.delete(stranger.url, headers=stranger.headers()),
        ]
        assert {(one.status_code, "mcp-session-id" in one.headers) for one in answers} == {(400, False)}
        assert (await only.call("greet", name="x")).status_code == 200
        assert watcher.events == ["dev opened"]


HANDSHAKE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}


async def test_another_principal_s_session_is_unknown() -> None:
    """http-5: for requests, streams and DELETE; trying changes nothing of it."""
    async with place() as here:
        ann, ben = here.mcp_client("ann"), here.mcp_client("ben")
        await ann.initialize()
        ben.session = ann.session
        answers = [
            await ben.call("greet", name="ben"),
            await ben.http.get(ben.url, headers={**ben.headers(), "Accept": "text/event-stream"}),
            await ben.http.delete(ben.url, headers=ben.headers()),
        ]
        unknown = here.mcp_client("ben")
        unknown.session = "0" * 32
        answers.append(await unknown.call("greet", name="ben"))
        assert [one.status_code for one in answers] == [404] * 4
        assert len({one.json()["error"]["message"] for one in answers}) == 1
        assert messages_in(await ann.call("greet", name="ann"))[0]["result"]["content"][0]["text"] == "hello ann"


async def test_an_idle_session_ends_and_releases_its_slot() -> None:
    """http-7: a client that comes back to it has to initialize again."""
    watcher = SessionRecorder()
    async with place(
        LimitsSection(sessions=1, sessions_per_principal=1, session_idle_seconds=0.2), watcher=watcher
    ) as here:
        mcp_client = here.mcp_client()
        await mcp_client.initialize()
        await until(lambda: not here.endpoint.manager.sessions)
        assert (await mcp_client.call("greet", name="x")).status_code == 404
        assert (await here.mcp_client().initialize()).status_code == 200
    assert watcher.events[:3] == ["dev opened", "dev idle", "dev opened"]


async def test_a_deleted_session_cancels_its_calls() -> None:
    """http-7: before the response to the request that follows DELETE."""
    cancelled.clear()
    watcher = SessionRecorder()
    async with place(watcher=watcher) as here:
        mcp_client = here.mcp_client()
        await mcp_client.initialize()
        body = {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "tools/call",
            "params": {"name": "wait", "arguments": {}, "_meta": {"progressToken": "t"}},
        }
        async with mcp_client.http.stream("POST", mcp_client.url, json=body, headers=mcp_client.headers()) as answer:
            with anyio.fail_after(SECONDS):
                async for line in answer.aiter_lines():
                    if "notifications/progress" in line:
                        break
                assert not cancelled
                await mcp_client.http.delete(mcp_client.url, headers=mcp_client.headers())
                await until(lambda: bool(cancelled))
        assert here.endpoint.manager.sessions == {}
    assert watcher.events == ["dev opened", "dev deleted"]


class UnreachableIndex(MemorySessions):
    """A session index that cannot be reached."""

    async def claim(self, session: str, *, principal: str, role: str) -> None:
        raise Unreachable("the store can't be reached")


async def test_a_session_that_cannot_be_registered_is_not_opened() -> None:
    """http-10: no client learns its id, its slot is free again, and the client may retry."""
    stores = MemoryStores()
    stores.sessions = UnreachableIndex("")
    async with place(LimitsSection(sessions=1, sessions_per_principal=1), stores) as here:
        for _ in range(3):
            answer = await here.mcp_client().initialize()
            assert (answer.status_code, "mcp-session-id" in answer.headers) == (503, False)
        assert here.endpoint.manager.sessions == {}


async def test_streams_without_an_end_end_with_the_server() -> None:
    """http-18: a GET stream that is open when the drain begins, and one that is opened later."""
    draining = Draining()
    registry = Registry()
    registry.add(greet)
    endpoint = Endpoint(
        build(registry),
        role="dev",
        stores=MemoryStores(),
        session_limiter=SessionLimiter(LimitsSection(sessions=64)),
        draining=draining,
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await NamedApp(BodyMiddleware(endpoint, LimitsSection()))(scope, receive, send)

    async with endpoint.running(), listening(app) as url, httpx2.AsyncClient(timeout=SECONDS) as http:
        mcp_client = HttpMcpClient(http, url)
        await mcp_client.initialize()
        headers = {**mcp_client.headers(), "Accept": "text/event-stream"}
        with anyio.fail_after(SECONDS):
            async with http.stream("GET", url, headers=headers) as answer:
                assert answer.status_code == 200
                draining.begin()
                assert [line async for line in answer.aiter_lines() if line.startswith("data: {")] == []
        assert (
            messages_in(await mcp_client.call("greet", name="still"))[0]["result"]["content"][0]["text"]
            == "hello still"
        )


def test_the_overridden_parts_of_the_sdk_exist() -> None:
    """http-6: and are called as expected (ADR 0019); otherwise sessions would be opened uncounted."""
    manager: Any = StreamableHTTPSessionManager
    assert list(inspect.signature(manager._admit_session).parameters) == ["self", "requestor"]
    assert list(inspect.signature(manager._discard_session).parameters) == ["self", "session_id", "transport"]
    source = inspect.getsource(manager)
    assert source.count("self._admit_session(requestor)") == 1
    assert source.count("await self._discard_session(") == 3
    assert "event_store=self.event_store" in inspect.getsource(manager._admit_session)


@tool(Effect.READ)
async def flood(count: int, call: Call) -> str:
    """Tell of progress and messages faster than anybody reads."""
    for number in range(count):
        await call.progress(number, count, "x" * 1_000)
        await call.log("info", "y" * 1_000)
    return f"reported {count} times"


async def test_a_client_that_reads_nothing_blocks_nobody_else() -> None:
    """http-9: its tool ends, other sessions are answered, and its response is kept until it resumes."""
    registry = Registry()
    registry.add(flood)
    registry.add(greet)
    async with listening(http_app(registry)) as url, httpx2.AsyncClient(timeout=SECONDS) as http:
        slow, other = HttpMcpClient(http, url), HttpMcpClient(http, url)
        await slow.initialize()
        await other.initialize()
        params = {"name": "flood", "arguments": {"count": 20_000}, "_meta": {"progressToken": "t"}}
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
        with anyio.fail_after(SECONDS):
            async with http.stream("POST", url, json=body, headers=slow.headers()) as answer:
                for number in range(20):
                    (message,) = messages_in(await other.call("greet", name=str(number)))
                    assert message["result"]["content"][0]["text"] == f"hello {number}"
                received = [line async for line in answer.aiter_lines() if line.startswith("data: {")]
        assert "reported 20000 times" in received[-1]
        assert len(received) < 2_000


@pytest.mark.parametrize(("roles", "scope"), [(("default",), "public"), (("default", "builders"), "private")])
async def test_lists_are_publicly_cacheable_only_if_everybody_sees_the_same(
    tmp_path: Path, roles: tuple[str, ...], scope: str
) -> None:
    """http-13: one role and no tokens; a proxy must not serve the list of one role to another."""
    config = tmp_path / "http.toml"
    root = tmp_path / "root"
    root.mkdir()
    config.write_text("auth.anonymous = 'user'\n" + "".join(f"[roles.{name}]\nroots = ['{root}']\n" for name in roles))
    async with at_work(plan_of("--config", str(config))) as url, httpx2.AsyncClient(timeout=SECONDS) as http:
        answer = (await HttpMcpClient(http, url).stateless("tools/list")).json()
        assert answer["result"]["cacheScope"] == scope
