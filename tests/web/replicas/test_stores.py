"""What replicas share, in memory and in Redis: one interface, the same tests (docs/specs/replicas.md)."""

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from mcp.server.subscriptions import ResourceUpdated, ServerEvent, ToolsListChanged
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse

from coretools.web.common.config import LimitsSection, RedisSection
from coretools.web.replicas.stores import EventLog, Stores
from coretools.web.service import create_stores
from tests.web.replicas.redis_server import RedisServer

SECONDS = 20


@pytest.fixture(params=["memory", "redis"])
def section(request: pytest.FixtureRequest) -> RedisSection:
    if request.param == "memory":
        return RedisSection()
    server: RedisServer = request.getfixturevalue("shared_redis")
    return RedisSection(url=server.url, prefix=f"{request.node.nodeid}:", timeout_seconds=SECONDS)


@pytest.fixture
async def stores(section: RedisSection) -> AsyncIterator[Stores]:
    opened = create_stores(section, LimitsSection())
    async with opened.running():
        yield opened


def message(text: str) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": text})


async def data(log: EventLog, event_id: str) -> list[str] | None:
    missed = await log.after(event_id)
    if missed is None:
        return None
    kept = [event.message for event in missed.events]
    return [one.params["data"] for one in kept if isinstance(one, JSONRPCNotification) and one.params]


async def test_events_after_an_id_come_back_in_order_and_of_its_stream_only(stores: Stores) -> None:
    """replicas-3: with ids to resume from; the priming event is no message."""
    log = stores.events("session")
    first = await log.add("1", None)
    await log.add("2", message("other"))
    await log.add("1", message("a"))
    await log.add("1", None)
    await log.add("1", message("b"))
    missed = await log.after(first)
    assert missed is not None
    assert (missed.stream, missed.is_all, await data(log, first)) == ("1", False, ["a", "b"])
    assert [await data(log, event.event_id or "") for event in missed.events] == [["b"], []]


@pytest.mark.parametrize(
    "answer",
    [
        JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": "ü\n\x00"}),
        JSONRPCError.model_validate({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}}),
    ],
    ids=["result", "error"],
)
async def test_a_response_is_the_end_of_its_stream(stores: Stores, answer: JSONRPCResponse | JSONRPCError) -> None:
    """replicas-3: also if it was the last event that the client had."""
    log = stores.events("session")
    first = await log.add("1", None)
    last = await log.add("1", answer)
    missed = await log.after(first)
    assert missed is not None
    assert ([event.message for event in missed.events], missed.is_all) == ([answer], True)
    missed = await log.after(last)
    assert missed is not None
    assert (list(missed.events), missed.is_all) == ([], True)


@pytest.mark.parametrize("stream", ["", "\n", "a\nb", '"', "ü" * 100, "%s", "\x00", "1\n{}"])
async def test_a_stream_has_the_name_that_a_client_gave_its_request(stores: Stores, stream: str) -> None:
    """replicas-3: whatever the name is, events of other streams are not returned."""
    log = stores.events("session")
    first = await log.add(stream, None)
    await log.add(stream + "1", message("other"))
    await log.add(stream[:-1] if stream else "0", message("other"))
    await log.add(stream, message("own"))
    missed = await log.after(first)
    assert missed is not None
    assert (missed.stream, await data(log, first)) == (stream, ["own"])


async def test_the_oldest_events_go_when_there_are_too_many(section: RedisSection) -> None:
    """replicas-3: nothing is replayed from an event that was dropped, rather than with a gap."""
    stores = create_stores(section, LimitsSection(events=3))
    async with stores.running():
        log = stores.events("session")
        ids = [await log.add("1", message(str(number))) for number in range(5)]
        assert [await data(log, one) for one in ids] == [None, None, ["3", "4"], ["4"], []]


async def test_the_oldest_events_go_when_they_are_too_large(section: RedisSection) -> None:
    """replicas-3: bounded in bytes; an event larger than the bound is not stored."""
    stores = create_stores(section, LimitsSection(event_bytes=10_000))
    async with stores.running():
        log = stores.events("session")
        ids = [await log.add("1", message("x" * 4_000)) for _ in range(4)]
        assert [await data(log, one) is None for one in ids] == [True, True, False, False]
        assert await data(log, await log.add("1", message("x" * 20_000))) is None
        assert await data(log, ids[-1]) is None
        assert await data(log, await log.add("1", message("after"))) == []


async def test_a_long_name_of_a_stream_counts(section: RedisSection) -> None:
    """replicas-3: clients choose the names with the ids of their requests."""
    stores = create_stores(section, LimitsSection(event_bytes=10_000))
    async with stores.running():
        log = stores.events("session")
        ids = [await log.add("x" * 4_000, None) for _ in range(4)]
        assert [await data(log, one) is None for one in ids] == [True, True, False, False]


@pytest.mark.parametrize(
    "mangle",
    [
        lambda _: "",
        lambda _: "-",
        lambda _: "0",
        lambda own: f"{own}9" * 9,
        lambda own: f"{own}1",
        lambda own: f"{own[:-2]}--1",
        lambda own: f" {own}",
        lambda own: f"{own}\n",
        lambda own: own.replace("-0", "-\u0660"),
        lambda own: own.replace("-0", "-0x0"),
        lambda own: own.replace("-0", "-0.0"),
        lambda own: f"{'0' * 16}-0",
        lambda _: "x" * 100_000,
    ],
)
async def test_an_unknown_id_names_no_event(stores: Stores, mangle: Any) -> None:
    """replicas-3: whatever a client sends."""
    log = stores.events("session")
    assert await log.after(mangle(await log.add("1", message("a")))) is None


async def test_an_id_of_another_session_names_no_event(stores: Stores) -> None:
    """replicas-3: although both sessions count alike."""
    ann, ben = stores.events("ann"), stores.events("ben")
    of_ann, of_ben = await ann.add("1", message("a")), await ben.add("1", message("b"))
    assert (await ann.after(of_ben), await ben.after(of_ann)) == (None, None)
    assert await data(ann, of_ann) == []


async def test_the_events_of_an_ended_session_are_gone(stores: Stores) -> None:
    """replicas-3: events under the same name later have other ids."""
    log = stores.events("session")
    before = [await log.add("1", message(str(number))) for number in range(2)]
    await log.clear()
    after = [await log.add("1", message(str(number))) for number in range(2)]
    assert [await data(log, one) for one in before] == [None, None]
    assert not {*before} & {*after}
    assert await data(log, after[0]) == ["1"]


async def test_a_waiting_reader_is_woken_by_an_event(stores: Stores) -> None:
    """replicas-3: and by the end of the session."""
    log = stores.events("session")
    for happen in (lambda: log.add("1", None), lambda: log.add("2", message("a")), log.clear):
        news = log.news
        assert not news.is_set()
        await happen()
        assert news.is_set()


async def test_a_session_is_known_until_it_is_released(stores: Stores) -> None:
    """replicas-4: with its principal, role and replica."""
    sessions = stores.sessions
    assert (await sessions.owner("one"), sessions.holds("one")) == (None, False)
    await sessions.claim("one", principal="ann", role="reader")
    await sessions.claim("one", principal="ann", role="reader")
    owner = await sessions.owner("one")
    assert owner is not None
    assert (owner.principal, owner.role, owner.replica, owner.is_alive) == ("ann", "reader", stores.replica, True)
    assert sessions.holds("one")
    await sessions.release("one")
    await sessions.release("one")
    assert (await sessions.owner("one"), sessions.holds("one")) == (None, False)


@pytest.mark.parametrize("name", ["", "*", "a:b", "x" * 10_000, "\x00\n", "ü", "\udc80"])
async def test_a_session_that_nobody_opened_is_unknown(stores: Stores, name: str) -> None:
    """replicas-4: whatever a client sends as its id."""
    await stores.sessions.claim("one", principal="ann", role="reader")
    assert await stores.sessions.owner(name) is None


async def test_too_many_requests_have_to_wait(stores: Stores) -> None:
    """replicas-7: the burst is allowed at once; the wait is no longer than until the next request is allowed."""
    waits = [await stores.rates.take("ann", per_second=0.01, burst=5) for _ in range(8)]
    assert waits[:5] == [0.0] * 5
    assert all(0 < wait <= 100 for wait in waits[5:])


async def test_a_refusal_does_not_extend_the_wait(stores: Stores) -> None:
    """replicas-7: a refusal costs nothing, so a program that keeps trying is served at its rate."""
    for _ in range(50):
        await stores.rates.take("ann", per_second=100, burst=1)
    assert 0 <= await stores.rates.take("ann", per_second=100, burst=1) <= 0.01


async def test_after_the_wait_one_more_request_is_allowed(stores: Stores) -> None:
    """replicas-7: the reported wait is enough."""
    await stores.rates.take("ann", per_second=20, burst=1)
    with anyio.fail_after(SECONDS):
        while wait := await stores.rates.take("ann", per_second=20, burst=1):
            assert wait <= 0.05


async def test_principals_have_separate_rates(stores: Stores) -> None:
    """replicas-7: without a limit nobody waits."""
    assert await stores.rates.take("ann", per_second=0.01, burst=1) == 0
    assert await stores.rates.take("ann", per_second=0.01, burst=1) > 0
    assert await stores.rates.take("ben", per_second=0.01, burst=1) == 0
    assert [await stores.rates.take("ann", per_second=0, burst=1) for _ in range(9)] == [0.0] * 9


async def test_a_state_is_used_once(stores: Stores) -> None:
    """replicas-8: among any number of concurrent attempts."""
    minted = time.time()
    taken: list[bool] = []

    async def take() -> None:
        taken.append(await stores.used_states.take("nonce", minted))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(take)
    assert sorted(taken) == [False] * 19 + [True]
    assert await stores.used_states.take("other", minted)


async def test_states_are_sealed_with_random_keys(stores: Stores) -> None:
    """replicas-9: 32 bytes."""
    assert [len(key) for key in stores.sealing_keys] == [32]
    assert len({*stores.sealing_keys[0]}) > 8


async def test_a_listener_is_notified_once_until_it_unsubscribes(stores: Stores) -> None:
    """replicas-10: of its own role only."""
    heard: list[ServerEvent] = []
    others: list[ServerEvent] = []
    stop = stores.bus("reader").subscribe(heard.append)
    stores.bus("writer").subscribe(others.append)
    await stores.bus("reader").publish(ToolsListChanged())
    await stores.bus("reader").publish(ResourceUpdated(uri="file:///a"))
    assert heard == [ToolsListChanged(), ResourceUpdated(uri="file:///a")]
    stop()
    stop()
    await stores.bus("reader").publish(ToolsListChanged())
    assert (len(heard), others) == (2, [])


async def test_the_stores_are_ready(stores: Stores) -> None:
    """replicas-11: what /readyz checks."""
    await stores.check()


def test_without_redis_settings_the_redis_client_is_not_imported() -> None:
    """replicas-1: nor needed at all."""
    program = (
        "import sys; from coretools.web.common.config import LimitsSection, RedisSection;"
        "from coretools.web.service import create_stores;"
        "create_stores(RedisSection(), LimitsSection()); sys.exit('redis' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
