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


async def test_what_came_after_an_event_comes_back_in_its_order_and_of_its_stream_only(stores: Stores) -> None:
    """replicas-3: with ids to go on from; the beginning of a stream is no message."""
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
async def test_an_answer_is_the_end_of_its_stream(stores: Stores, answer: JSONRPCResponse | JSONRPCError) -> None:
    """replicas-3: also when it was the last that the client had."""
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
    """replicas-3: whatever it is, another one's events are not shown."""
    log = stores.events("session")
    first = await log.add(stream, None)
    await log.add(stream + "1", message("other"))
    await log.add(stream[:-1] if stream else "0", message("other"))
    await log.add(stream, message("own"))
    missed = await log.after(first)
    assert missed is not None
    assert (missed.stream, await data(log, first)) == (stream, ["own"])


async def test_the_oldest_events_go_when_there_are_too_many(section: RedisSection) -> None:
    """replicas-3: nothing is replayed from an event that is gone, rather than with a hole."""
    stores = create_stores(section, LimitsSection(events=3))
    async with stores.running():
        log = stores.events("session")
        ids = [await log.add("1", message(str(number))) for number in range(5)]
        assert [await data(log, one) for one in ids] == [None, None, ["3", "4"], ["4"], []]


async def test_the_oldest_events_go_when_they_are_too_large(section: RedisSection) -> None:
    """replicas-3: bounded in bytes, whatever is sent; what is larger by itself is not kept at all."""
    stores = create_stores(section, LimitsSection(event_bytes=10_000))
    async with stores.running():
        log = stores.events("session")
        ids = [await log.add("1", message("x" * 4_000)) for _ in range(4)]
        assert [await data(log, one) is None for one in ids] == [True, True, False, False]
        assert await data(log, await log.add("1", message("x" * 20_000))) is None
        assert await data(log, ids[-1]) is None
        assert await data(log, await log.add("1", message("after"))) == []


async def test_a_long_name_of_a_stream_counts(section: RedisSection) -> None:
    """replicas-3: a client names them, by the ids of its requests."""
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
async def test_an_id_that_was_not_given_out_is_of_no_event(stores: Stores, mangle: Any) -> None:
    """replicas-3: whatever a client sends."""
    log = stores.events("session")
    assert await log.after(mangle(await log.add("1", message("a")))) is None


async def test_an_id_of_another_session_is_of_no_event(stores: Stores) -> None:
    """replicas-3: though both count alike."""
    ann, ben = stores.events("ann"), stores.events("ben")
    of_ann, of_ben = await ann.add("1", message("a")), await ben.add("1", message("b"))
    assert (await ann.after(of_ben), await ben.after(of_ann)) == (None, None)
    assert await data(ann, of_ann) == []


async def test_the_events_of_a_session_that_is_ended_are_gone(stores: Stores) -> None:
    """replicas-3: and what comes under the same name has other ids."""
    log = stores.events("session")
    before = [await log.add("1", message(str(number))) for number in range(2)]
    await log.clear()
    after = [await log.add("1", message(str(number))) for number in range(2)]
    assert [await data(log, one) for one in before] == [None, None]
    assert not {*before} & {*after}
    assert await data(log, after[0]) == ["1"]


async def test_whoever_waits_for_an_event_hears_of_it(stores: Stores) -> None:
    """replicas-3: of the end of the session as well."""
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


async def test_whoever_comes_too_often_waits(stores: Stores) -> None:
    """replicas-7: at once as often as the burst allows; the wait is no longer than until the next one is due."""
    waits = [await stores.rates.take("ann", per_second=0.01, burst=5) for _ in range(8)]
    assert waits[:5] == [0.0] * 5
    assert all(0 < wait <= 100 for wait in waits[5:])


async def test_who_was_refused_is_not_made_to_wait_longer(stores: Stores) -> None:
    """replicas-7: a refusal costs nothing, so a program that keeps trying is served at its rate."""
    for _ in range(50):
        await stores.rates.take("ann", per_second=100, burst=1)
    assert 0 <= await stores.rates.take("ann", per_second=100, burst=1) <= 0.01


async def test_after_the_wait_one_more_is_within_the_limit(stores: Stores) -> None:
    """replicas-7: the time that was told is enough."""
    await stores.rates.take("ann", per_second=20, burst=1)
    with anyio.fail_after(SECONDS):
        while wait := await stores.rates.take("ann", per_second=20, burst=1):
            assert wait <= 0.05


async def test_nobody_pays_for_another(stores: Stores) -> None:
    """replicas-7: each has a rate of his own, and without a limit nobody waits."""
    assert await stores.rates.take("ann", per_second=0.01, burst=1) == 0
    assert await stores.rates.take("ann", per_second=0.01, burst=1) > 0
    assert await stores.rates.take("ben", per_second=0.01, burst=1) == 0
    assert [await stores.rates.take("ann", per_second=0, burst=1) for _ in range(9)] == [0.0] * 9


async def test_a_state_is_used_once(stores: Stores) -> None:
    """replicas-8: however many try at once."""
    minted = time.time()
    taken: list[bool] = []

    async def take() -> None:
        taken.append(await stores.used_states.take("nonce", minted))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(take)
    assert sorted(taken) == [False] * 19 + [True]
    assert await stores.used_states.take("other", minted)


async def test_states_are_sealed_with_keys_that_nobody_guesses(stores: Stores) -> None:
    """replicas-9: 32 bytes."""
    assert [len(key) for key in stores.sealing_keys] == [32]
    assert len({*stores.sealing_keys[0]}) > 8


async def test_a_listener_is_told_once_until_it_goes(stores: Stores) -> None:
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


async def test_they_can_be_used(stores: Stores) -> None:
    """replicas-11: what /readyz asks."""
    await stores.check()


def test_a_server_that_stands_alone_loads_no_redis() -> None:
    """replicas-1: and needs none installed."""
    program = (
        "import sys; from coretools.web.common.config import LimitsSection, RedisSection;"
        "from coretools.web.service import create_stores;"
        "create_stores(RedisSection(), LimitsSection()); sys.exit('redis' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
