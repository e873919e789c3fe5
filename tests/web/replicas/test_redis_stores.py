"""Several replicas on one Redis, and what becomes of them when it is gone (docs/specs/replicas.md)."""

import asyncio
import logging
import re
import shutil
import socket
import subprocess
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from redis import Redis

from coretools.errors import BadSetting, Conflict, Unreachable
from coretools.protocol.round_trip_questions import STATE_TTL_SECONDS
from coretools.web.common.config import Config, LimitsSection, RedisSection
from coretools.web.replicas.redis_lease import BEATS, RETRY_SECONDS, pause_seconds
from coretools.web.replicas.redis_stores import RedisStores
from coretools.web.sessions.event_store import SessionEventStore
from tests.checkout import TREE
from tests.web.replicas.redis_server import RedisServer
from tests.web.replicas.test_stores import SECONDS, data, message

EVERY_LIST = {ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()}


class Clock:
    """The clock of one replica."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class SharedRedis:
    """The Redis database that the replicas of one test share."""

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self.server = server
        self.prefix = prefix

    def section(self, replica: str = "", **changed: Any) -> RedisSection:
        kept: dict[str, Any] = {"url": self.server.url, "prefix": self.prefix, "timeout_seconds": SECONDS}
        return RedisSection.model_validate({**kept, "replica": replica, **changed})

    @asynccontextmanager
    async def replica(self, name: str, *, clock: Clock | None = None, **changed: Any) -> AsyncIterator[RedisStores]:
        stores = RedisStores(self.section(name, **changed), LimitsSection(), clock=clock or Clock())
        async with stores.running():
            yield stores

    @property
    def redis(self) -> "Redis":
        return Redis.from_url(self.server.url)


@pytest.fixture
def place(shared_redis: RedisServer, request: pytest.FixtureRequest) -> SharedRedis:
    return SharedRedis(shared_redis, f"{request.node.nodeid}:")


@pytest.fixture
def own_place(own_redis: RedisServer) -> SharedRedis:
    return SharedRedis(own_redis, "coretools:")


@pytest.fixture
async def pair(place: SharedRedis) -> AsyncIterator[tuple[RedisStores, RedisStores]]:
    async with place.replica("a") as one, place.replica("b") as other:
        yield one, other


Pair = tuple[RedisStores, RedisStores]


async def test_a_session_belongs_to_the_replica_that_claimed_it_first(pair: Pair) -> None:
    """replicas-4: also if two claim it at the same time; and to the principal it was claimed for."""
    outcomes: list[str] = []

    async def claim(stores: RedisStores) -> None:
        try:
            await stores.sessions.claim("one", principal="ann", role="reader")
            outcomes.append(stores.replica)
        except Conflict:
            outcomes.append("refused")

    async with anyio.create_task_group() as tasks:
        for stores in pair * 5:
            tasks.start_soon(claim, stores)
    (winner,) = {*outcomes} - {"refused"}
    assert outcomes.count("refused") == 5
    assert [stores.sessions.holds("one") for stores in pair] == [stores.replica == winner for stores in pair]
    for stores in pair:
        owner = await stores.sessions.owner("one")
        assert owner is not None
        assert (owner.principal, owner.replica, owner.is_alive) == ("ann", winner, True)
        with pytest.raises(Conflict):
            await stores.sessions.claim("one", principal="ben", role="reader")


async def test_another_replica_neither_writes_to_a_session_nor_ends_it(pair: Pair) -> None:
    """replicas-4: it can only read."""
    one, other = pair
    await one.sessions.claim("one", principal="ann", role="reader")
    first = await one.events("one").add("1", message("a"))
    with pytest.raises(Unreachable):
        await other.events("one").add("1", message("forged"))
    await other.sessions.release("one")
    assert await other.sessions.owner("one") is not None
    assert await data(other.events("one"), first) == []


async def test_what_a_session_missed_is_read_elsewhere_when_its_replica_has_ended(place: SharedRedis) -> None:
    """replicas-6: the record says that the replica is gone; ids of other sessions name no event there either."""
    async with place.replica("b") as other:
        async with place.replica("a") as one:
            for session in ("ann", "ben"):
                await one.sessions.claim(session, principal=session, role="reader")
            first = await one.events("ann").add("1", None)
            await one.events("ann").add("1", message("missed"))
            of_ben = await one.events("ben").add("1", message("secret"))
        owner = await other.sessions.owner("ann")
        assert owner is not None
        assert (owner.principal, owner.is_alive) == ("ann", False)
        assert await data(other.events("ann"), first) == ["missed"]
        assert await other.events("ann").after(of_ben) is None


async def test_a_killed_replica_is_gone_when_its_lease_expires(own_place: SharedRedis) -> None:
    """replicas-5: without any message."""
    async with own_place.replica("b") as other, own_place.replica("a", lease_seconds=3600) as one:
        await one.sessions.claim("one", principal="ann", role="reader")
        owner = await other.sessions.owner("one")
        assert owner is not None
        assert owner.is_alive
        assert own_place.redis.pttl("coretools:replica:a") > 0
        own_place.redis.delete("coretools:replica:a")  # what Redis does by itself when the lease expires
        owner = await other.sessions.owner("one")
        assert owner is not None
        assert not owner.is_alive


async def test_a_lease_not_renewed_in_time_ends_every_session_of_its_replica(place: SharedRedis) -> None:
    """replicas-5: by the replica's own clock, without Redis, and for good; new sessions are its own again."""
    clock = Clock()
    async with place.replica("a", clock=clock) as one, place.replica("b") as other:
        await one.sessions.claim("one", principal="ann", role="reader")
        first = await one.events("one").add("1", None)
        assert one.sessions.holds("one")
        clock.ahead += 3600
        assert not one.sessions.holds("one")
        with pytest.raises(Unreachable):
            await one.check()
        with pytest.raises(Unreachable):
            await one.sessions.claim("new", principal="ann", role="reader")
        await one.beat()
        await one.check()
        assert not one.sessions.holds("one")
        owner = await other.sessions.owner("one")
        assert owner is not None
        assert (owner.replica, owner.is_alive) == ("a", False)
        with pytest.raises(Unreachable):
            await one.events("one").add("1", message("from the time before"))
        assert await data(other.events("one"), first) == []
        await one.sessions.claim("new", principal="ann", role="reader")
        assert one.sessions.holds("new")


async def test_a_lease_that_redis_lost_ends_every_session_too(own_place: SharedRedis) -> None:
    """replicas-5: other replicas may have seen this one as gone."""
    async with own_place.replica("a") as one:
        await one.sessions.claim("one", principal="ann", role="reader")
        own_place.redis.delete("coretools:replica:a")
        await one.beat()
        assert not one.sessions.holds("one")
        await one.check()


async def test_a_session_record_that_redis_lost_ends_the_session(own_place: SharedRedis) -> None:
    """replicas-5: the other replicas do not know that session any more; the rest are kept."""
    clock = Clock()
    async with own_place.replica("a", clock=clock, lease_seconds=7200) as one:
        for session in ("one", "two"):
            await one.sessions.claim(session, principal="ann", role="reader")
        (record, *_) = own_place.redis.keys("coretools:session:*")
        own_place.redis.delete(record)
        own_place.redis.pexpire(own_place.redis.keys("coretools:session:*")[0], 100_000)
        clock.ahead += 3600
        await one.beat()
        assert sorted(one.sessions.holds(session) for session in ("one", "two")) == [False, True]
        (kept,) = own_place.redis.keys("coretools:session:*")
        assert own_place.redis.pttl(kept) > 100_000


async def test_of_two_replicas_of_one_name_the_later_owns_it(
    place: SharedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """replicas-13: a killed one can restart at once; a misnamed one is not ready, and logs why."""
    async with place.replica("a") as one:
        await one.sessions.claim("one", principal="ann", role="reader")
        async with place.replica("a") as later:
            owner = await later.sessions.owner("one")
            assert owner is not None
            assert not owner.is_alive
            await one.beat()
            with pytest.raises(Unreachable, match="has this one's name"):
                await one.check()
            assert not one.sessions.holds("one")
            assert "give each its own" in caplog.text
            await later.check()
            assert later.peers == {"a"}
        await one.beat()
        await one.check()
        assert not one.sessions.holds("one")


async def test_a_suspended_replica_does_not_take_its_name_back(place: SharedRedis) -> None:
    """replicas-13: one that was stopped for a while and replaced finds itself replaced."""
    clock = Clock()
    async with place.replica("a", clock=clock) as one:
        clock.ahead += 3600
        async with place.replica("a") as later:
            await later.sessions.claim("one", principal="ann", role="reader")
            await one.beat()
            with pytest.raises(Unreachable, match="has this one's name"):
                await one.check()
            await later.beat()
            await later.check()
            assert later.sessions.holds("one")


async def test_replicas_know_which_others_are_alive(place: SharedRedis) -> None:
    """replicas-14: a name that is not configured is random."""
    async with place.replica("a") as one:
        async with place.replica("") as other:
            await one.beat()
            assert one.peers == other.peers == {"a", other.replica}
        await one.beat()
        assert one.peers == {"a"}


async def test_a_rate_is_of_all_replicas_together(pair: Pair) -> None:
    """replicas-7: a principal gets no more by spreading requests over the replicas."""
    waits = [await pair[number % 2].rates.take("ann", per_second=0.01, burst=4) for number in range(8)]
    assert [wait == 0 for wait in waits] == [True] * 4 + [False] * 4


async def test_a_state_is_used_once_on_all_replicas(pair: Pair) -> None:
    """replicas-8: a confirmation does not count again on another replica."""
    minted = time.time()
    assert [await stores.used_states.take("nonce", minted) for stores in pair] == [True, False]


async def test_a_state_that_is_too_old_counts_as_used(pair: Pair) -> None:
    """replicas-8: used states are forgotten after a while, so older ones are refused; so are those from the future."""
    for minted in (time.time() - 2 * STATE_TTL_SECONDS, time.time() + STATE_TTL_SECONDS, float("nan"), float("inf")):
        assert not await pair[0].used_states.take(f"at {minted}", minted)


async def test_a_state_from_before_redis_was_restarted_counts_as_used(own_place: SharedRedis) -> None:
    """replicas-8: it may have been used, and Redis have lost that."""
    async with own_place.replica("a") as one:
        before = time.time()
        assert await one.used_states.take("nonce", before)
        await own_place.server.restart()
        assert not await one.used_states.take("nonce", before)
        assert not await one.used_states.take("never used", before)
        assert await one.used_states.take("minted since", time.time())


async def test_every_replica_seals_with_the_same_key(pair: Pair) -> None:
    """replicas-9: created by whichever came first."""
    assert pair[0].sealing_keys == pair[1].sealing_keys
    assert len(pair[0].sealing_keys) == 1


async def test_keys_are_changed_by_adding_one(place: SharedRedis) -> None:
    """replicas-9: as the operator does it: the new one opens everywhere before it seals anywhere."""
    name = f"{place.prefix}sealing-keys"
    async with place.replica("a") as one:
        old = one.sealing_keys[0]
        place.redis.rpush(name, "ab" * 32)
        async with place.replica("b") as other:
            assert other.sealing_keys == (old, b"\xab" * 32)
        place.redis.lmove(name, name, "RIGHT", "LEFT")
        async with place.replica("b") as other:
            assert other.sealing_keys == (b"\xab" * 32, old)


@pytest.mark.parametrize("stored", ["ab" * 31, "zz" * 32, "passw0rd", ""], ids=["short", "no hex", "a word", "empty"])
async def test_an_invalid_key_ends_the_start(place: SharedRedis, stored: str) -> None:
    """replicas-9: the value is not in the message, because it may be part of a real key."""
    place.redis.rpush(f"{place.prefix}sealing-keys", "ab" * 32, stored)
    with pytest.raises(BadSetting, match="sealing-keys") as caught:
        async with place.replica("a"):
            pytest.fail("started")
    assert not stored or stored not in "".join(traceback.format_exception(caught.value))


async def test_keys_outlive_the_redis_that_had_them(own_place: SharedRedis) -> None:
    """replicas-9: replicas that start later get the keys that are in use."""
    async with own_place.replica("a") as one:
        await own_place.server.restart()
        await one.beat()
        async with own_place.replica("b") as other:
            assert other.sealing_keys == one.sealing_keys


class ReceivedEvents:
    """The events that one listener received."""

    def __init__(self, stores: RedisStores, role: str = "reader") -> None:
        self.events: list[ServerEvent] = []
        self._news = asyncio.Event()
        stores.bus(role).subscribe(self._note)

    def _note(self, event: ServerEvent) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, *wanted: ServerEvent) -> None:
        with anyio.fail_after(SECONDS):
            while not {*wanted} <= {*self.events}:
                self._news.clear()
                await self._news.wait()


LAST = ResourceUpdated(uri="last:")
"""Published last: everything published before has arrived."""


@pytest.fixture
async def opened(pair: Pair) -> Pair:
    for stores in pair:
        await listens(stores)
    return pair


async def listens(stores: RedisStores) -> None:
    with anyio.fail_after(SECONDS):
        await stores._channel.listener.is_open.wait()


async def test_a_change_is_published_to_every_replica_exactly_once(opened: Pair) -> None:
    """replicas-10: also to the one where it happened; listeners of another role get nothing."""
    one, other = opened
    heard = [ReceivedEvents(one), ReceivedEvents(one), ReceivedEvents(other), ReceivedEvents(other)]
    elsewhere = ReceivedEvents(other, "writer")
    events = [ToolsListChanged(), ResourceUpdated(uri="file:///ü%20\n"), PromptsListChanged(), ResourcesListChanged()]
    for event in (*events, LAST):
        await one.bus("reader").publish(event)
    for listener in heard:
        await listener.until(LAST)
        assert listener.events == [*events, LAST]
    assert elsewhere.events == []


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"from":"x","role":"reader"}', "\udc80", "x" * 100_000])
async def test_malformed_messages_are_ignored(place: SharedRedis, opened: Pair, text: str) -> None:
    """replicas-10: the valid message behind them arrives."""
    heard = ReceivedEvents(opened[1])
    place.redis.publish(f"{place.prefix}changes", text.encode("utf-8", "surrogatepass"))
    await opened[0].bus("reader").publish(LAST)
    await heard.until(LAST)
    assert heard.events == [LAST]


async def test_after_a_gap_every_list_may_have_changed(own_place: SharedRedis) -> None:
    """replicas-10: the changes meanwhile are unknown; local changes still arrive meanwhile."""
    async with own_place.replica("a") as one, own_place.replica("b") as other:
        await listens(one)
        await listens(other)
        heard = [ReceivedEvents(one), ReceivedEvents(other)]
        own_place.server.kill()
        await one.bus("reader").publish(LAST)
        assert (heard[0].events, heard[1].events) == ([LAST], [])
        own_place.server.start()
        for listener in heard:
            await listener.until(*EVERY_LIST)
        await one.bus("reader").publish(LAST)
        await heard[1].until(LAST)


async def test_a_publisher_repeats_what_it_could_not_publish(own_place: SharedRedis) -> None:
    """replicas-10: also if the listeners never lost Redis and so know of no gap."""
    async with own_place.replica("a") as one, own_place.replica("b") as other:
        await listens(other)
        heard = ReceivedEvents(other)
        own_place.server.hold()
        one._engine.timeout_seconds = 0.05
        await one.bus("reader").publish(ToolsListChanged())
        own_place.server.resume()
        one._engine.timeout_seconds = SECONDS
        with anyio.fail_after(SECONDS):
            while not {*heard.events} >= EVERY_LIST:
                with suppress(Unreachable):
                    await one.beat()


async def asked(stores: RedisStores) -> list[str]:
    """Everything that asks Redis, with its outcome."""
    sessions, log = stores.sessions, stores.events("one")
    operations = {
        "claim": lambda: sessions.claim("other", principal="ann", role="reader"),
        "owner": lambda: sessions.owner("one"),
        "release": lambda: sessions.release("none"),
        "add": lambda: log.add("1", None),
        "after": lambda: log.after("0123456789abcdef-0"),
        "clear": stores.events("two").clear,
        "take": lambda: stores.rates.take("ann", per_second=1000, burst=1000),
        "use": lambda: stores.used_states.take(str(time.time()), time.time()),
        "check": stores.check,
        "beat": stores.beat,
    }
    unreachable = []
    for name, operation in operations.items():
        try:
            await operation()
        except Unreachable:
            unreachable.append(name)
    return unreachable


EVERYTHING = ["claim", "owner", "release", "add", "after", "clear", "take", "use", "check", "beat"]


async def test_without_redis_every_store_fails_and_with_it_every_store_recovers(own_place: SharedRedis) -> None:
    """replicas-11: killed in the middle of use, and back without data; no replica is restarted."""
    async with own_place.replica("a") as one:
        await one.sessions.claim("one", principal="ann", role="reader")
        first = await one.events("one").add("1", None)
        assert await asked(one) == []
        own_place.server.kill()
        with anyio.fail_after(SECONDS):
            assert await asked(one) == EVERYTHING
        own_place.server.start()
        await one.beat()
        assert await asked(one) == []
        assert not one.sessions.holds("one")
        assert await one.sessions.owner("one") is None
        assert await one.events("one").after(first) is None


async def test_a_redis_that_does_not_answer_delays_nobody(own_place: SharedRedis) -> None:
    """replicas-11: suspended, not gone: each call fails in time, and later each gets its own answer."""
    async with own_place.replica("a") as one:
        own_place.server.hold()
        one._engine.timeout_seconds = 0.05
        with anyio.fail_after(SECONDS):
            assert await asked(one) == EVERYTHING
        own_place.server.resume()
        one._engine.timeout_seconds = SECONDS
        with anyio.fail_after(SECONDS):
            while True:
                with suppress(Unreachable):
                    await one.beat()
                    break
        for session in ("x", "y", "z"):
            await one.sessions.claim(session, principal=f"of {session}", role="reader")
            owner = await one.sessions.owner(session)
            assert owner is not None
            assert owner.principal == f"of {session}"


async def test_cancelled_calls_lose_no_connection(place: SharedRedis) -> None:
    """replicas-11: clients disconnect at any moment; redis-py alone loses a connection of its pool each time."""
    async with place.replica("a") as one:
        for _ in range(100):
            with anyio.move_on_after(0.0005):
                async with anyio.create_task_group() as tasks:
                    for _ in range(5):
                        tasks.start_soon(one.sessions.owner, "one")
        pool = one._engine._pool
        assert len(pool._in_use_connections) <= 1, "that of the channel"
        assert await asked(one) == []


async def test_many_callers_share_the_connections(place: SharedRedis) -> None:
    """replicas-11: none is refused because others ask as well."""
    async with place.replica("a") as one:
        answers: list[float] = []

        async def take(number: int) -> None:
            answers.append(await one.rates.take(str(number), per_second=1, burst=1))

        async with anyio.create_task_group() as tasks:
            for number in range(500):
                tasks.start_soon(take, number)
        assert answers == [0.0] * 500
        assert len(place.redis.client_list()) < 100


async def test_every_key_has_the_prefix_and_expires(own_place: SharedRedis) -> None:
    """replicas-2: a server that is gone leaves nothing for long, and one Redis serves several."""
    async with own_place.replica("a", prefix="mine:") as one:
        await one.sessions.claim("one", principal="ann", role="reader")
        assert await asked(one) == []
        await one.events("one").add("1", message("a"))
        # Another principal: the rate above is remembered for a millisecond, within which this one would be refused.
        assert await one.rates.take("ben", per_second=0.01, burst=1) == 0.0
        keys = own_place.redis.keys("*")
        kinds = {key.split(b":")[1] for key in keys}
        assert kinds == {
            *(b"replica", b"replicas", b"session", b"events", b"log", b"rate", b"used", b"states", b"sealing-keys")
        }
        assert all(key.startswith(b"mine:") and own_place.redis.pttl(key) > 0 for key in keys)
        await one.sessions.release("one")
        assert not own_place.redis.keys("*:events:*") + own_place.redis.keys("*:log:*")


async def test_the_events_of_a_session_are_bounded_in_redis(own_place: SharedRedis) -> None:
    """replicas-3: whatever ids a client gives its requests, and however much is sent."""
    limits = LimitsSection(events=100, event_bytes=50_000)
    stores = RedisStores(own_place.section("a"), limits)
    async with stores.running():
        log = stores.events("one")
        for number in range(300):
            await log.add(f"{number}" * 200, message("x" * (number * 37 % 2_000)))
        (events,) = own_place.redis.keys("coretools:events:*")
        (state,) = own_place.redis.keys("coretools:log:*")
        used = own_place.redis.memory_usage(events, samples=0) + own_place.redis.memory_usage(state, samples=0)
        assert 25_000 < used < 100_000
        for _ in range(10):
            await log.add("1", message("x" * 200_000))
        assert own_place.redis.llen(events) == 0


SECRET = "s3cr-t"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}/rest@127.0.0.1:1/0",
        f"redis://:{SECRET}@127.0.0.1:{SECRET}/0",
        f"redis://:{SECRET}@127.0.0.1:1/0?socket_timeout={SECRET}",
        f"redis://:{SECRET}@[::1/0",
        f"redis://:{SECRET}@127.0.0.1:1/0",
        f"rediss://:{SECRET}@127.0.0.1:1/0",
        f"unix://:{SECRET}@/no/such/socket",
        f"http://:{SECRET}@127.0.0.1:1",
        f":{SECRET}@127.0.0.1",
    ],
)
async def test_a_password_in_a_url_is_not_disclosed(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """replicas-12: neither in the start error and its causes, nor in the log, nor in the configuration's repr."""
    caplog.set_level(logging.DEBUG)
    section = RedisSection(url=url, timeout_seconds=2)
    with pytest.raises(BadSetting, match=r"redis\.url") as caught:
        async with RedisStores(section, LimitsSection()).running():
            pytest.fail("started")
    output = (
        "".join(traceback.format_exception(caught.value)) + caplog.text + repr(section) + str(Config(redis=section))
    )
    assert SECRET not in output


async def test_a_wrong_password_ends_the_start_and_the_right_one_is_used(caplog: pytest.LogCaptureFixture) -> None:
    """replicas-12: neither is in the message."""
    caplog.set_level(logging.DEBUG)
    server = RedisServer("--requirepass", SECRET)
    try:
        for words in ("", "?password=wr0ng"):
            section = RedisSection(url=f"{server.url}{words}", timeout_seconds=SECONDS)
            with pytest.raises(BadSetting, match="refuses us") as caught:
                async with RedisStores(section, LimitsSection()).running():
                    pytest.fail("started")
            assert "wr0ng" not in "".join(traceback.format_exception(caught.value)) + caplog.text
        section = RedisSection(url=f"{server.url}?password={SECRET}", timeout_seconds=SECONDS)
        async with RedisStores(section, LimitsSection()).running() as _:
            pass
        assert SECRET not in caplog.text
    finally:
        server.close()


async def test_a_user_of_redis_with_the_rights_of_the_docs_is_enough(own_place: SharedRedis) -> None:
    """replicas-12: those of docs/deploy/replicas.md: its prefix, its channels, and one command for operators."""
    rights = re.search(r"`(\+@all [^`]+)`[^`]*`(~[^`]+)`", (TREE / "docs/deploy/replicas.md").read_text())
    assert rights is not None
    own_place.redis.execute_command("ACL", "SETUSER", "mcp", "on", f">{SECRET}", *f"{rights[1]} {rights[2]}".split())
    url = f"unix://mcp:{SECRET}@{own_place.server.socket}"
    async with own_place.replica("a", url=url) as one, own_place.replica("b", url=url) as other:
        await listens(other)
        heard = ReceivedEvents(other)
        await one.sessions.claim("one", principal="ann", role="reader")
        assert await asked(one) == []
        await one.bus("reader").publish(LAST)
        await heard.until(LAST)
    with pytest.raises(BadSetting):
        async with own_place.replica("a", url=url, prefix="others:"):
            pytest.fail("started")


async def test_what_is_not_redis_ends_the_start() -> None:
    """replicas-11: an HTTP server by mistake, or one that never answers."""

    async def answer(stream: Any) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()
                await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        with pytest.raises(BadSetting, match="no Redis answers there"):
            async with RedisStores(RedisSection(url=f"redis://127.0.0.1:{port}"), LimitsSection()).running():
                pytest.fail("started")
        tasks.cancel_scope.cancel()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BadSetting, match="no Redis answers there"):
            async with RedisStores(RedisSection(url=url, timeout_seconds=0.1), LimitsSection()).running():
                pytest.fail("started")


@pytest.mark.parametrize("name", ["A", "a b", "a:b", "-a", "a-", "a" * 33, "ü", "a\n", "../a", "a/b"])
def test_an_invalid_replica_name_ends_the_start(name: str) -> None:
    """replicas-13: it is a part of the ids of runs."""
    with pytest.raises(BadSetting, match=r"redis\.replica"):
        RedisStores(RedisSection(url="redis://127.0.0.1", replica=name), LimitsSection())


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate of 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=redis -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "certificate.pem")]
    subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True)
    return tmp_path / "certificate.pem"


async def test_with_tls_the_server_needs_a_trusted_certificate(certificate: Path) -> None:
    """replicas-12: an untrusted one ends the start."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    key = str(certificate.with_name("key.pem"))
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", key, "--tls-ca-cert-file", str(certificate))
    server = RedisServer("--tls-port", str(port), "--tls-auth-clients", "no", *files)
    try:
        url = f"rediss://127.0.0.1:{port}"
        section = RedisSection(url=f"{url}?ssl_ca_certs={certificate}", timeout_seconds=SECONDS)
        stores = RedisStores(section, LimitsSection())
        async with stores.running():
            await stores.check()
        with pytest.raises(BadSetting):
            async with RedisStores(RedisSection(url=url, timeout_seconds=SECONDS), LimitsSection()).running():
                pytest.fail("started")
    finally:
        server.close()


async def test_an_event_that_cannot_be_stored_is_sent_and_leaves_no_gap(own_place: SharedRedis) -> None:
    """replicas-11: the session goes on without its history; the SDK would never answer in it again."""
    async with own_place.replica("a") as one:
        await one.sessions.claim("one", principal="ann", role="reader")
        events = SessionEventStore(one)
        events.open("one")
        first = await events.store_event("1", None)
        own_place.server.hold()
        one._engine.timeout_seconds = 0.05
        lost = await events.store_event("1", message("not kept"))
        assert await events.store_event("1", message("not kept either")) != lost
        own_place.server.resume()
        one._engine.timeout_seconds = SECONDS
        kept = await events.store_event("1", message("kept"))
        await events.store_event("1", message("kept too"))
        assert [await data(events.log, one) for one in (first, lost, kept)] == [None, None, ["kept too"]]


async def test_a_session_of_the_previous_lease_is_not_deleted_by_its_replica(place: SharedRedis) -> None:
    """replicas-6: its client may be reading on another replica what it missed."""
    clock = Clock()
    async with place.replica("a", clock=clock) as one, place.replica("b") as other:
        await one.sessions.claim("one", principal="ann", role="reader")
        first = await one.events("one").add("1", None)
        await one.events("one").add("1", message("missed"))
        clock.ahead += 3600
        await one.beat()
        with pytest.raises(Unreachable):
            await one.events("one").clear()
        with pytest.raises(Unreachable):
            await one.events("one").add("1", message("late"))
        assert await data(other.events("one"), first) == ["missed"]


def test_no_session_ends_while_redis_is_silent_for_four_fifths_of_a_lease() -> None:
    """replicas-5: whenever it falls silent after a renewal, one that Redis answers ends before the lease does."""
    lease, timeout = 15.0, 2.0
    silence = lease - lease / BEATS - RETRY_SECONDS
    assert silence > 11
    for step in range(100):
        begin = lease / BEATS * step / 100
        now = pause_seconds(lease, took=0.0, has_failed=False)
        while now + timeout < begin + silence:
            now += timeout + pause_seconds(lease, took=timeout, has_failed=True)
        assert max(now, begin + silence) <= lease, begin
