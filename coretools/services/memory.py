"""The default services, in the memory of one process: bounded, lost when it ends, used on its event loop.

Nothing is dropped silently to make room: values that do not fit are refused, and messages that a slow subscriber loses
are counted.
"""

import math
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Self

import anyio

from coretools.services.interface import DEAD_SUFFIX, QueueCounts, QueueTotals, WorkItem, dead_letters
from coretools.services.limits import ServiceLimits

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    until: float
    size: int


class MemoryValues:
    """`coretools.services.interface.Values` in a dictionary."""

    def __init__(self, limits: ServiceLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._bytes = 0

    async def get(self, key: str) -> bytes | None:
        """The value of the key, or None."""
        return self._value(key)

    async def set(self, key: str, value: bytes, *, ttl_seconds: float | None = None) -> None:
        """Set the value of the key."""
        self._put(key, value, ttl_seconds)

    async def delete(self, key: str) -> bool:
        """Delete the key. Returns whether it existed."""
        was_there = self._value(key) is not None
        self._drop(key)
        return was_there

    async def compare_and_set(
        self, key: str, expected: bytes | None, value: bytes | None, *, ttl_seconds: float | None = None
    ) -> bool:
        """Set the value if the current one is as expected."""
        if self._value(key) != expected:
            return False
        if value is None:
            self._drop(key)
        else:
            self._put(key, value, ttl_seconds)
        return True

    def _value(self, key: str) -> bytes | None:
        entry = self._entries.get(key)
        if entry is None or entry.until > self._clock():
            return None if entry is None else entry.value
        # There is no timer: an expired entry goes when it is read, or when its room is needed.
        self._drop(key)
        return None

    def _put(self, key: str, value: bytes, ttl_seconds: float | None) -> None:
        size = self._limits.check(key, value)
        if not self._fits(key, size):
            self._drop_expired()
        if not self._fits(key, size):
            # Never evicted: a value that silently disappears would be a bug in the command that stored it (api-23).
            raise self._limits.no_room_for_value(key)
        self._drop(key)
        until = math.inf if ttl_seconds is None else self._clock() + ttl_seconds
        self._entries[key] = _Entry(bytes(value), until, size)
        self._bytes += size

    def _fits(self, key: str, size: int) -> bool:
        existing = self._entries.get(key)
        count = len(self._entries) + (existing is None)
        size_after = self._bytes - (existing.size if existing else 0) + size
        return count <= self._limits.keys and size_after <= self._limits.kept_bytes

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        self._bytes -= entry.size if entry else 0

    def _drop_expired(self) -> None:
        now = self._clock()
        for key in [key for key, entry in self._entries.items() if entry.until <= now]:
            self._drop(key)


class MemorySubscription:
    """`coretools.services.interface.Subscription` in memory: drops the oldest messages if its reader is too slow."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._arrived = anyio.Event()
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Number of dropped messages."""
        return self._dropped

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            await self._arrived.wait()
        return self._take()

    def give(self, message: bytes) -> None:
        """Add a message to the buffer."""
        self._waiting.append(message)
        self._bytes += len(message)
        while len(self._waiting) > 1 and (
            len(self._waiting) > self._limits.buffered or self._bytes > self._limits.buffered_bytes
        ):
            self._take()
            self._dropped += 1
        self._arrived.set()
        # Events of anyio can't be cleared: who waits now has the old one, who comes later gets the next.
        self._arrived = anyio.Event()

    def miss(self, count: int) -> None:
        """Count messages that were lost before they got here."""
        self._dropped += count

    def _take(self) -> bytes:
        message = self._waiting.popleft()
        self._bytes -= len(message)
        return message


class MemoryTopics:
    """`coretools.services.interface.Topics` within the process."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._subscribers: dict[str, list[MemorySubscription]] = {}

    async def publish(self, topic: str, message: bytes) -> int:
        """Send a message to every subscriber. Returns their number."""
        self._limits.check(topic, message)
        subscribers = tuple(self._subscribers.get(topic, ()))
        for subscriber in subscribers:
            subscriber.give(bytes(message))
        return len(subscribers)

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncIterator[MemorySubscription]:
        """Subscribe until the end of the block."""
        self._limits.check(topic, b"")
        if sum(map(len, self._subscribers.values())) >= self._limits.subscribers:
            raise self._limits.too_many_subscriptions(topic)
        subscription = MemorySubscription(self._limits)
        self._subscribers.setdefault(topic, []).append(subscription)
        try:
            yield subscription
        finally:
            self._subscribers[topic].remove(subscription)
            if not self._subscribers[topic]:
                del self._subscribers[topic]


@dataclass(slots=True)
class _Queue:
    waiting: deque[WorkItem] = field(default_factory=deque)
    leased: dict[str, tuple[WorkItem, float]] = field(default_factory=dict)
    """Items by id, with the end of their lease."""
    first_end: float = math.inf
    """No lease ends before."""
    getters: int = 0
    changed: anyio.Event = field(default_factory=anyio.Event)

    def notify(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.leased or self.getters)


class MemoryQueues:
    """`coretools.services.interface.Queues` in memory: items that wait when the process ends are lost."""

    def __init__(self, limits: ServiceLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._count = 0
        self._bytes = 0

    async def put(self, queue: str, data: bytes) -> None:
        """Add an item at the end of the queue."""
        self._limits.check(queue, data)
        if self._count >= self._limits.work_items or self._bytes + len(data) > self._limits.kept_bytes:
            raise self._limits.no_room_for_item(queue)
        state = self._queues.setdefault(queue, _Queue())
        state.waiting.append(WorkItem(id="", queue=queue, data=bytes(data), attempt=0))
        self._count += 1
        self._bytes += len(data)
        state.notify()

    async def get(self, queue: str, *, lease_seconds: float = 60.0) -> WorkItem:
        """Lease the first item, waiting for one if the queue is empty."""
        self._limits.check(queue.removesuffix(DEAD_SUFFIX), b"")
        state = self._queues.setdefault(queue, _Queue())
        state.getters += 1
        try:
            self._return_expired(state)
            while not state.waiting:
                # The end of a lease is announced by nothing, so every getter wakes at the first one.
                with anyio.move_on_after(state.first_end - self._clock()):
                    await state.changed.wait()
                self._return_expired(state)
            waiting = state.waiting.popleft()
            item = replace(waiting, id=uuid.uuid4().hex, attempt=waiting.attempt + 1)
            self._lease(state, item, lease_seconds)
            return item
        finally:
            state.getters -= 1
            self._drop_if_idle(queue)

    async def acknowledge(self, item: WorkItem) -> bool:
        """Mark an item as done."""
        if not self._end_lease(item):
            return False
        self._count -= 1
        self._bytes -= len(item.data)
        self._drop_if_idle(item.queue)
        return True

    async def release(self, item: WorkItem) -> bool:
        """Return an item to the front of the queue."""
        if not self._end_lease(item):
            return False
        self._return([item])
        self._drop_if_idle(item.queue)
        return True

    async def extend(self, item: WorkItem, *, lease_seconds: float = 60.0) -> bool:
        """Let the lease end so many seconds from now."""
        if not self._end_lease(item):
            return False
        self._lease(self._queues[item.queue], item, lease_seconds)
        return True

    async def reject(self, item: WorkItem) -> bool:
        """Move an item to the dead letters."""
        if not self._end_lease(item):
            return False
        self._bury(item)
        self._drop_if_idle(item.queue)
        return True

    async def counts(self, queue: str) -> QueueCounts:
        """The numbers of items in the queue."""
        state = self._queues.get(queue)
        if state is None:
            return QueueCounts(waiting=0, leased=0)
        self._return_expired(state)
        self._drop_if_idle(queue)
        return QueueCounts(waiting=len(state.waiting), leased=len(state.leased))

    def totals(self) -> QueueTotals:
        """The numbers of items in all queues."""
        alive = [state for name, state in self._queues.items() if not name.endswith(DEAD_SUFFIX)]
        waiting, leased = sum(len(state.waiting) for state in alive), sum(len(state.leased) for state in alive)
        return QueueTotals(waiting=waiting, leased=leased, dead=self._count - waiting - leased)

    def _end_lease(self, item: WorkItem) -> bool:
        state = self._queues.get(item.queue)
        if state is None:
            return False
        self._return_expired(state)
        if state.leased.pop(item.id, None) is not None:
            return True
        self._drop_if_idle(item.queue)
        return False

    def _return_expired(self, state: _Queue) -> None:
        """Return items with an expired lease to the front of the queue, in their order."""
        now = self._clock()
        if now < state.first_end:
            return
        expired = [item for item, until in state.leased.values() if until <= now]
        for item in expired:
            del state.leased[item.id]
        state.first_end = min((until for _, until in state.leased.values()), default=math.inf)
        self._return(expired)

    def _return(self, items: list[WorkItem]) -> None:
        """Return items to the front of their queue, in their order; after their last attempt to the dead letters."""
        for item in items:
            if self._is_last_attempt(item):
                self._bury(item)
        for item in reversed(items):
            if not self._is_last_attempt(item):
                self._queues[item.queue].waiting.appendleft(item)
        if items:
            self._queues[items[0].queue].notify()

    def _is_last_attempt(self, item: WorkItem) -> bool:
        return item.attempt >= self._limits.attempts and not item.queue.endswith(DEAD_SUFFIX)

    def _bury(self, item: WorkItem) -> None:
        """Add an item to the dead letters. It counts as before, so there is room for it."""
        queue = dead_letters(item.queue)
        state = self._queues.setdefault(queue, _Queue())
        state.waiting.append(WorkItem(id="", queue=queue, data=item.data, attempt=0))
        state.notify()

    def _lease(self, state: _Queue, item: WorkItem, seconds: float) -> None:
        until = self._clock() + seconds
        state.leased[item.id] = (item, until)
        state.first_end = min(state.first_end, until)

    def _drop_if_idle(self, queue: str) -> None:
        if self._queues[queue].is_idle:
            del self._queues[queue]


class MemoryServices:
    """`coretools.services.interface.Services` in memory; the default."""

    def __init__(self, limits: ServiceLimits | None = None, *, clock: Clock = time.monotonic) -> None:
        """`clock` returns the current time in seconds, for expiry."""
        limits = limits or ServiceLimits()
        self.values = MemoryValues(limits, clock)
        self.topics = MemoryTopics(limits)
        self.queues = MemoryQueues(limits, clock)

    async def check(self) -> str:
        """Say what it is; memory is always available."""
        return "memory"

    async def totals(self) -> QueueTotals:
        """The numbers of items in all queues."""
        return self.queues.totals()
