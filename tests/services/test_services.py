"""The services that commands share: the same rules for every engine (docs/specs/services.md)."""

from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from coretools.errors import Busy, TooLarge
from coretools.operations.call import SilentCall
from coretools.operations.declare import Effect
from coretools.operations.dispatch import Dispatcher
from coretools.operations.registry import Registry
from coretools.services.interface import QueueCounts, QueueTotals, Services, WorkItem, dead_letters
from coretools.services.limits import ServiceLimits
from coretools.services.memory import MemoryServices
from tests.services.engines import Place

SMALL = ServiceLimits(
    name_bytes=8,
    value_bytes=100,
    keys=3,
    kept_bytes=200,
    subscribers=2,
    buffered=3,
    buffered_bytes=50,
    work_items=3,
    attempts=2,
)


async def test_a_value_is_set_read_and_deleted(place: Place) -> None:
    """api-20: bytes by key; None if unset."""
    values = (await place.open()).values
    assert await values.get("a") is None
    await values.set("a", b"one")
    await values.set("a", b"two")
    assert await values.get("a") == b"two"
    assert await values.delete("a")
    assert not await values.delete("a")
    assert await values.get("a") is None


async def test_a_value_is_exchanged_only_for_the_expected_one(place: Place) -> None:
    """api-20: compare-and-set is one step, and None is nothing."""
    values = (await place.open()).values
    assert await values.compare_and_set("a", None, b"one")
    assert not await values.compare_and_set("a", None, b"other")
    assert not await values.compare_and_set("a", b"other", b"two")
    assert await values.compare_and_set("a", b"one", b"two")
    assert await values.get("a") == b"two"
    assert not await values.compare_and_set("a", b"one", None)
    assert await values.compare_and_set("a", b"two", None)
    assert await values.get("a") is None


async def test_a_hundred_increments_at_once_are_a_hundred(place: Place) -> None:
    """api-20: no update is lost."""
    values = (await place.open()).values

    async def increment() -> None:
        before = await values.get("n")
        await anyio.lowlevel.checkpoint()
        while not await values.compare_and_set("n", before, str(int(before or b"0") + 1).encode()):
            before = await values.get("n")

    async def increment_ten_times() -> None:
        for _ in range(10):
            await increment()

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(increment_ten_times)
    assert await values.get("n") == b"100"


async def test_a_value_with_a_time_to_live_expires(place: Place) -> None:
    """api-20: and its room is free; a compare-and-set does not see it any more."""
    values = (await place.open(SMALL)).values
    for key in "abc":
        await values.set(key, b"x", ttl_seconds=10 * place.second)
    await place.pass_time(8)
    assert await values.get("a") == b"x"
    with pytest.raises(Busy):
        await values.set("d", b"x")
    await place.pass_time(3)
    assert await values.get("a") is None
    await values.set("d", b"x")
    assert await values.compare_and_set("b", None, b"y")
    assert not await values.delete("c")


@pytest.mark.parametrize(("key", "value"), [("k" * 9, b""), ("é" * 5, b""), ("k", b"x" * 101)])
async def test_a_value_or_key_over_its_limit_is_refused(place: Place, key: str, value: bytes) -> None:
    """api-23: in bytes; no part of it is stored."""
    services = await place.open(SMALL)
    with pytest.raises(TooLarge):
        await services.values.set(key, value)
    with pytest.raises(TooLarge):
        await services.topics.publish(key, value)
    with pytest.raises(TooLarge):
        await services.queues.put(key, value)
    assert await services.values.get(key) is None


async def test_what_is_no_bytes_is_refused_in_words(place: Place) -> None:
    """api-23"""
    services = await place.open(SMALL)
    with pytest.raises(TypeError, match="a name is text and a value bytes, got str and str"):
        await services.queues.put("q", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got str and int"):
        await services.values.set("k", 3)  # type: ignore[arg-type]


async def test_values_are_bounded_by_count_and_by_bytes_and_none_is_evicted(place: Place) -> None:
    """api-23: a new one is refused, a replaced one counts once."""
    values = (await place.open(SMALL)).values
    for key in "abc":
        await values.set(key, b"x")
    with pytest.raises(Busy, match="3 keys and 200 bytes"):
        await values.set("d", b"x")
    for _ in range(5):
        await values.set("a", b"x" * 90)
    await values.set("b", b"x" * 90)
    with pytest.raises(Busy):
        await values.set("c", b"x" * 90)
    with pytest.raises(Busy):
        await values.compare_and_set("c", b"x", b"x" * 90)
    assert await values.get("c") == b"x"
    assert await values.get("a") == b"x" * 90
    await values.delete("a")
    await values.set("c", b"x" * 90)


async def test_a_message_reaches_every_subscriber_in_order(place: Place) -> None:
    """api-21: of that topic, from the subscription on."""
    topics = (await place.open()).topics
    assert not await topics.publish("news", b"early")
    async with topics.subscribe("news") as one, topics.subscribe("news") as two, topics.subscribe("other") as other:
        for number in range(3):
            assert await topics.publish("news", b"%d" % number) in (2, None)
        await topics.publish("other", b"else")
        with anyio.fail_after(60):
            assert [await anext(one) for _ in range(3)] == [b"0", b"1", b"2"]
            assert [await anext(two) for _ in range(3)] == [b"0", b"1", b"2"]
            assert await anext(other) == b"else"
    with anyio.fail_after(60):
        while await topics.publish("news", b"late"):  # a store learns of the end in its own time
            pass


async def test_a_subscriber_waits_for_the_next_message(place: Place) -> None:
    """api-21: an async iterator."""
    topics = (await place.open()).topics
    got: list[bytes] = []

    async def listen(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with topics.subscribe("news") as messages:
            task_status.started()
            async for message in messages:
                got.append(message)
                if message == b"end":
                    return

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            await tasks.start(listen)
            for message in (b"a", b"b", b"end"):
                await topics.publish("news", message)
    assert got == [b"a", b"b", b"end"]


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def test_a_slow_subscriber_loses_the_oldest_messages_and_their_number_is_counted(place: Place) -> None:
    """api-21, api-23: by count and by bytes; the publisher never waits, and the newest message always fits."""
    topics = (await place.open(SMALL)).topics
    async with topics.subscribe("news") as messages:
        for number in range(10):
            await topics.publish("news", b"%d" % number)
        await until(lambda: messages.dropped == 7)
        assert [await anext(messages) for _ in range(3)] == [b"7", b"8", b"9"]
        await topics.publish("news", b"x" * 30)
        await topics.publish("news", b"y" * 30)
        await until(lambda: messages.dropped == 8)
        assert await anext(messages) == b"y" * 30
        assert messages.dropped == 8
        await topics.publish("news", b"z" * 100)
        assert await anext(messages) == b"z" * 100


async def test_subscriptions_are_bounded(place: Place) -> None:
    """api-23: one that has ended frees its slot."""
    topics = (await place.open(SMALL)).topics
    async with topics.subscribe("a"):
        async with topics.subscribe("b"):
            with pytest.raises(Busy, match="at most 2"):
                async with topics.subscribe("c"):
                    pass
        async with topics.subscribe("c"):
            pass


async def test_jobs_are_taken_in_order_and_once(place: Place) -> None:
    """api-22: first in, first out; an acknowledged job is gone."""
    queues = (await place.open()).queues
    for number in range(3):
        await queues.put("q", b"%d" % number)
    items = [await queues.get("q") for _ in range(3)]
    assert [item.data for item in items] == [b"0", b"1", b"2"]
    assert {item.attempt for item in items} == {1}
    assert [await queues.acknowledge(item) for item in items] == [True, True, True]
    assert not await queues.acknowledge(items[0])
    with anyio.move_on_after(0) as scope:
        await queues.get("q")
    assert scope.cancelled_caught


async def test_an_unacknowledged_job_is_delivered_again(place: Place) -> None:
    """api-22: at least once; an expired lease cannot acknowledge for the current holder."""
    queues = (await place.open()).queues
    await queues.put("q", b"first")
    await queues.put("q", b"second")
    lost = await queues.get("q", lease_seconds=10 * place.second)
    await place.pass_time(11)
    again = await queues.get("q")
    assert (again.data, again.attempt) == (b"first", 2)
    assert (await queues.get("q")).data == b"second"
    assert not await queues.acknowledge(lost)
    assert not await queues.release(lost)
    assert await queues.acknowledge(again)


async def test_a_released_job_is_the_next(place: Place) -> None:
    """api-22: at the front, with its attempts counted."""
    queues = (await place.open()).queues
    await queues.put("q", b"first")
    await queues.put("q", b"second")
    assert await queues.release(await queues.get("q"))
    item = await queues.get("q")
    assert (item.data, item.attempt) == (b"first", 2)


async def test_a_waiting_consumer_gets_a_job_when_it_is_added(place: Place) -> None:
    """api-22: each job goes to one consumer, also if another waiting one was cancelled."""
    queues = (await place.open()).queues
    got: list[bytes] = []

    async def work() -> None:
        got.append((await queues.get("q")).data)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            with anyio.move_on_after(0):
                await queues.get("q")
            for _ in range(3):
                tasks.start_soon(work)
            await anyio.wait_all_tasks_blocked()
            for number in range(3):
                await queues.put("q", b"%d" % number)
    assert sorted(got) == [b"0", b"1", b"2"]


async def test_a_waiting_consumer_gets_a_job_whose_lease_expires(place: Place) -> None:
    """api-22: without any other event in the queue."""
    queues = (await place.open()).queues
    await queues.put("q", b"x")
    await queues.get("q", lease_seconds=0.01)
    with anyio.fail_after(60):
        assert (await queues.get("q")).attempt == 2


async def test_jobs_are_bounded_by_count_and_by_bytes(place: Place) -> None:
    """api-23: a leased one counts until it is acknowledged."""
    queues = (await place.open(SMALL)).queues
    for _ in range(3):
        await queues.put("q", b"x")
    with pytest.raises(Busy, match="3 work items"):
        await queues.put("p", b"x")
    item = await queues.get("q")
    with pytest.raises(Busy):
        await queues.put("p", b"x")
    await queues.acknowledge(item)
    await queues.put("p", b"x" * 90)
    await queues.acknowledge(await queues.get("q"))
    await queues.acknowledge(await queues.get("q"))
    await queues.put("p", b"x" * 90)
    with pytest.raises(Busy, match="200 bytes"):
        await queues.put("p", b"x" * 90)


async def test_a_job_that_fails_at_every_attempt_is_a_dead_letter(place: Place) -> None:
    """api-22: after its last lease expired or was released, or at once if it is rejected; it still takes room."""
    queues = (await place.open(SMALL)).queues
    for data in (b"expires", b"released", b"rejected"):
        await queues.put("q", data)
    for attempt in range(1, SMALL.attempts + 1):
        items = [await queues.get("q", lease_seconds=10 * place.second) for _ in range(2)]
        released = next(item for item in items if item.data == b"released")
        assert ({item.data for item in items}, released.attempt) == ({b"expires", b"released"}, attempt)
        assert await queues.release(released)
        await place.pass_time(11)
    assert await queues.counts("q") == QueueCounts(waiting=1, leased=0 if place.notes_expiry else 1)
    assert await queues.reject(await queues.get("q"))
    assert await queues.counts("q") == QueueCounts(waiting=0, leased=0)
    if place.dead_letters_take_room:
        with pytest.raises(Busy):
            await queues.put("q", b"another")
    dead = [await queues.get(dead_letters("q")) for _ in range(3)]
    assert [(item.data, item.attempt) for item in dead] == [(b"released", 1), (b"expires", 1), (b"rejected", 1)]
    assert await queues.reject(dead[0])
    again = await queues.get(dead_letters("q"))
    assert (again.data, again.queue) == (b"released", dead_letters("q"))


async def test_a_lease_is_extended(place: Place) -> None:
    """api-22, services-11: from the time of the extension, as long as it has not expired."""
    queues = (await place.open()).queues
    await queues.put("q", b"x")
    item = await queues.get("q", lease_seconds=10 * place.second)
    await place.pass_time(7)
    assert await queues.extend(item, lease_seconds=10 * place.second)
    await place.pass_time(7)
    assert await queues.counts("q") == QueueCounts(waiting=0, leased=1)
    await place.pass_time(4)
    assert not await queues.extend(item)
    expired = {"waiting": 1, "leased": 0} if place.notes_expiry else {"waiting": 0, "leased": 1}
    assert await queues.counts("q") == QueueCounts(**expired)


async def test_an_unknown_job_is_refused(place: Place) -> None:
    """api-22: like one whose lease has expired."""
    queues = (await place.open()).queues
    stranger = WorkItem(id="no", queue="nowhere", data=b"", attempt=1)
    assert not await queues.acknowledge(stranger)
    assert not await queues.release(stranger)
    assert not await queues.reject(stranger)
    assert not await queues.extend(stranger)


async def test_two_processes_share_what_is_in_a_store(place: Place) -> None:
    """services-2: values, topics, queues and limits; whoever waits is woken by the other."""
    if not place.is_shared:
        pytest.skip("in memory, nothing is shared")
    one, other = await place.open(SMALL), await place.open(SMALL)
    assert await one.values.compare_and_set("k", None, b"v")
    assert not await other.values.compare_and_set("k", None, b"w")
    got: list[WorkItem] = []

    async def work() -> None:
        got.append(await other.queues.get("q"))

    with anyio.fail_after(60):
        async with one.topics.subscribe("t") as messages:
            await other.topics.publish("t", b"m")
            assert await anext(messages) == b"m"
            async with other.topics.subscribe("t"):
                if place.counts_subscribers:
                    with pytest.raises(Busy):
                        async with one.topics.subscribe("t"):
                            pass
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await anyio.wait_all_tasks_blocked()
            await one.queues.put("q", b"x")
    (item,) = got
    assert await one.queues.acknowledge(item)
    assert not await other.queues.acknowledge(item)
    for services in (one, other, one):
        await services.queues.put("q", b"x")
    with pytest.raises(Busy):
        await other.queues.put("q", b"x")
    await one.queues.get("q")
    await other.queues.reject(await other.queues.get("q"))
    assert await one.totals() == QueueTotals(waiting=1, leased=1, dead=1)


async def test_many_workers_get_each_item_once(place: Place) -> None:
    """api-22, services-2: whoever asks at the same time; all room is free again at the end."""
    engines = [await place.open() for _ in range(2 if place.is_shared else 1)]
    got: list[bytes] = []

    async def work(services: Services) -> None:
        while len(got) < 60:
            item = await services.queues.get("q")
            got.append(item.data)
            assert await services.queues.acknowledge(item)
        tasks.cancel_scope.cancel()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(work, engines[number % len(engines)])
            for number in range(60):
                await engines[0].queues.put("q", b"%d" % number)
    assert sorted(map(int, got)) == list(range(60))
    assert await engines[0].totals() == QueueTotals(waiting=0, leased=0, dead=0)


async def test_a_command_gets_the_services_of_its_server() -> None:
    """api-19: by the type of a parameter, which is not an argument; a plain function uses them from its thread."""
    registry = Registry()
    services = MemoryServices()

    @registry.tool(Effect.ADD)
    async def remember(text: str, services: Services) -> str:
        """Keep a text."""
        await services.values.set("text", text.encode())
        return "kept"

    @registry.tool(Effect.READ)
    def recall(shared: Services) -> str:
        """Say it."""
        return (anyio.from_thread.run(shared.values.get, "text") or b"").decode()

    first, second = registry
    assert first.arguments.names == ("text",)
    assert second.arguments.schema().get("properties", {}) == {}
    dispatcher = Dispatcher(threads=1, services=services)
    assert (await dispatcher.dispatch(first, {"text": "here"}, SilentCall())).text == "kept"
    assert (await dispatcher.dispatch(second, {}, SilentCall())).text == "here"
    assert await services.values.get("text") == b"here"
    refused = await dispatcher.dispatch(first, {"text": "x", "services": 1}, SilentCall())
    assert refused.error is not None
    assert refused.error.kind == "invalid-arguments"


async def test_by_default_services_are_in_memory_and_of_one_server() -> None:
    """api-19: no configuration; another server has its own."""
    registry = Registry()

    @registry.tool(Effect.ADD)
    async def count(services: Services) -> str:
        """Count."""
        before = await services.values.get("n") or b"0"
        await services.values.set("n", str(int(before) + 1).encode())
        return str(int(before) + 1)

    (command,) = registry
    dispatcher = Dispatcher(threads=1)
    assert (await dispatcher.dispatch(command, {}, SilentCall())).text == "1"
    assert (await dispatcher.dispatch(command, {}, SilentCall())).text == "2"
    assert (await Dispatcher(threads=1).dispatch(command, {}, SilentCall())).text == "1"
