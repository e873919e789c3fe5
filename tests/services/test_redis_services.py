"""Services in a Redis that is killed, slow, full or refuses (docs/specs/services.md)."""

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from redis import Redis

from coretools import App, Effect, Services
from coretools.errors import BadSetting, Busy, Unreachable
from coretools.services.connect import open_services
from coretools.services.interface import QueueCounts, ServiceEngine
from coretools.services.limits import ServiceLimits
from tests.checkout import TREE
from tests.web.replicas.redis_server import RedisServer

SECONDS = 20
SECRET = "s3cr-t"


@asynccontextmanager
async def opened(server: RedisServer, limits: ServiceLimits | None = None) -> AsyncIterator[ServiceEngine]:
    async with open_services(server.url, limits) as services:
        yield services


async def reached(services: ServiceEngine) -> None:
    """Wait until the store is used again."""
    with anyio.fail_after(SECONDS):
        while True:
            with suppress(Unreachable):
                await services.check()
                return


async def test_a_store_that_is_killed_loses_nothing_and_is_used_again(durable_redis: RedisServer) -> None:
    """services-6, services-7: values, items, leases and attempts are as before; meanwhile each call fails."""
    async with opened(durable_redis) as services:
        await services.values.set("key", b"value")
        for data in (b"leased", b"waiting"):
            await services.queues.put("q", data)
        item = await services.queues.get("q")
        durable_redis.kill()
        for asked in (services.values.get("key"), services.queues.put("q", b""), services.topics.publish("t", b"")):
            with pytest.raises(Unreachable, match="may have happened"):
                await asked
        durable_redis.start()
        await reached(services)
        assert await services.values.get("key") == b"value"
        assert await services.queues.counts("q") == QueueCounts(waiting=1, leased=1)
        assert await services.queues.acknowledge(item)
        assert (await services.queues.get("q")).data == b"waiting"


async def test_a_getter_that_waits_is_told_when_the_store_goes_away(durable_redis: RedisServer) -> None:
    """services-7: it does not wait for ever; the next one gets what comes later."""
    async with opened(durable_redis) as services:
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:

                async def waits() -> None:
                    with pytest.raises(Unreachable):
                        await services.queues.get("q")

                tasks.start_soon(waits)
                await anyio.wait_all_tasks_blocked()
                durable_redis.kill()
            durable_redis.start()
            await reached(services)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(services.queues.get, "q")
                await anyio.wait_all_tasks_blocked()
                await services.queues.put("q", b"x")


async def test_messages_that_a_lost_connection_costs_are_counted(durable_redis: RedisServer) -> None:
    """services-5: exactly, also of a store that has lost its data, but for one more."""
    published = 0

    async def heard() -> int:
        nonlocal published
        while True:
            published += 1
            await services.topics.publish("news", b"%d" % published)
            with anyio.move_on_after(0.02):
                return int(await anext(messages))

    with Redis.from_url(durable_redis.url) as redis, anyio.fail_after(SECONDS):
        async with opened(durable_redis) as services, services.topics.subscribe("news") as messages:
            assert await heard() == 1
            redis.client_kill_filter(_type="pubsub")
            last = await heard()
            assert messages.dropped == last - 2 > 0
        async with opened(durable_redis) as services, services.topics.subscribe("news") as messages:
            before = await heard()
            redis.client_kill_filter(_type="pubsub")
            redis.flushall()
            assert messages.dropped == 0
            assert await heard() - before == messages.dropped > 1


async def test_a_store_that_does_not_answer_at_the_start_is_used_when_it_does(
    durable_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """services-7: the start goes on with a warning that names the setting and not the URL."""
    durable_redis.kill()
    async with opened(durable_redis) as services:
        assert "services.url: no Redis answers there" in caplog.text
        assert durable_redis.url not in caplog.text
        with pytest.raises(Unreachable):
            await services.queues.put("q", b"x")
        durable_redis.start()
        await reached(services)
        await services.queues.put("q", b"x")
        assert (await services.queues.get("q")).data == b"x"


async def test_a_put_whose_answer_was_lost_may_have_happened(
    durable_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """services-6: it is an error, never a silent loss; the store may have it nevertheless."""
    monkeypatch.setattr("coretools.services.redis_services.TIMEOUT_SECONDS", 0.2)
    async with opened(durable_redis) as services:
        await services.queues.put("q", b"w")
        durable_redis.hold()
        with pytest.raises(Unreachable, match="may have happened"):
            await services.queues.put("q", b"x")
        durable_redis.resume()
        await reached(services)
        with anyio.fail_after(SECONDS):
            while (await services.totals()).waiting < 2:
                await reached(services)


async def test_a_full_store_refuses_and_goes_on(durable_redis: RedisServer) -> None:
    """services-4: `busy`; what is stored can be read and acknowledged, and then there is room."""
    async with opened(durable_redis, ServiceLimits(value_bytes=8_000_000)) as services:
        await services.queues.put("q", bytes(4_000_000))
        with Redis.from_url(durable_redis.url) as redis:
            redis.config_set("maxmemory", "3mb")
            for asked in (services.queues.put("q", bytes(4_000_000)), services.values.set("k", bytes(4_000_000))):
                with pytest.raises(Busy, match="maxmemory"):
                    await asked
            redis.config_set("maxmemory", "0")
        item = await services.queues.get("q")
        assert await services.queues.acknowledge(item)
        await services.values.set("k", bytes(4_000_000))


async def test_what_a_restart_would_lose_is_reported(own_redis: RedisServer, durable_redis: RedisServer) -> None:
    """services-8: also what Redis would evict."""
    async with opened(durable_redis) as services:
        assert re.fullmatch(r"redis \d+\.\d+\.\d+", await services.check())
    with Redis.from_url(own_redis.url) as redis:
        redis.config_set("maxmemory", "100mb")
        redis.config_set("maxmemory-policy", "allkeys-lru")
    async with opened(own_redis) as services:
        _, *losses = (await services.check()).split("; ")
        assert [loss.split(" is ")[0] for loss in losses] == ["appendonly", "maxmemory-policy"]


async def test_a_user_of_redis_with_the_rights_of_the_docs_is_enough(durable_redis: RedisServer) -> None:
    """services-9: those of docs/deploy/replicas.md; every key and channel has the prefix."""
    rights = re.search(r"`(\+@all [^`]+)`[^`]*`(~[^`]+)`", (TREE / "docs/deploy/replicas.md").read_text())
    assert rights is not None
    with Redis.from_url(durable_redis.url) as redis:
        redis.execute_command("ACL", "SETUSER", "app", "on", f">{SECRET}", *f"{rights[1]} {rights[2]}".split())
    async with (
        open_services(f"unix://app:{SECRET}@{durable_redis.socket}") as services,
        services.topics.subscribe("t") as messages,
    ):
        await services.values.set("k", b"v", ttl_seconds=60)
        assert await services.values.compare_and_set("k", b"v", b"w")
        await services.queues.put("q", b"x")
        assert await services.queues.reject(await services.queues.get("q"))
        assert (await services.totals()).dead == 1
        assert await services.topics.publish("t", b"m") == 1
        assert await anext(messages) == b"m"
        assert await services.check()


async def test_a_wrong_password_fails_each_call_and_is_not_disclosed(caplog: pytest.LogCaptureFixture) -> None:
    """services-7, services-9: it may be changed on the side of Redis, without a restart here."""
    caplog.set_level(logging.DEBUG)
    server = RedisServer("--requirepass", SECRET)
    try:
        async with open_services(f"{server.url}?password=wr0ng") as services:
            with pytest.raises(Unreachable):
                await services.queues.put("q", b"x")
        async with open_services(f"{server.url}?password={SECRET}") as services:
            await services.queues.put("q", b"x")
        assert not {SECRET, "wr0ng"} & set(re.findall(r"[\w-]+", caplog.text))
    finally:
        server.close()


async def test_cancelled_getters_lose_no_item(durable_redis: RedisServer) -> None:
    """services-3: at whatever moment they are cancelled, the item is theirs or still there."""
    async with opened(durable_redis, ServiceLimits(attempts=1_000)) as services:
        await services.queues.put("q", b"x")
        for step in range(40):
            item = None
            with anyio.move_on_after(step / 10_000):
                item = await services.queues.get("q")
            if item is not None:
                assert await services.queues.release(item)
            assert await services.queues.counts("q") == QueueCounts(waiting=1, leased=0)


async def test_an_application_opens_the_services_of_its_url_while_it_runs(own_redis: RedisServer) -> None:
    """services-1: they outlive it; its own URL counts, whatever its server has."""
    app = App("a", services=own_redis.url)

    @app.tool(Effect.CHANGE)
    async def count(services: Services) -> int:
        """Count."""
        before = int(await services.values.get("n") or b"0")
        await services.values.set("n", b"%d" % (before + 1))
        return before + 1

    for expected in ("1", "2"):
        async with app.test_client() as client:
            result = await client.call_tool("count", {})
            assert (result.is_error, result.content[0].text) == (False, expected)  # type: ignore[union-attr]
    with pytest.raises(BadSetting, match=r"services\.url"):
        async with App("a", services="http://127.0.0.1").test_client():
            pytest.fail("started")
