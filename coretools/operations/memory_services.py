"""The services of one process, in its memory: bounded, gone with it, used on its event loop.

Nothing is thrown away in silence to make room: what does not fit is refused, and what a slow subscriber loses is
counted.
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

from coretools.errors import Busy, TooLarge
from coretools.operations.services import Job

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """What the services of one process may hold. Sizes in bytes."""

    name_bytes: int = 1024
    """Longest key, topic or name of a queue."""
    value_bytes: int = 1024 * 1024
    """Largest value, message or piece of work."""
    keys: int = 10_000
    kept_bytes: int = 64 * 1024 * 1024
    """Of all keys and values; and again of all work that waits or is leased."""
    subscribers: int = 1024
    buffered: int = 1024
    """Messages that wait for one subscriber."""
    buffered_bytes: int = 1024 * 1024
    """Of the messages that wait for one subscriber; the newest one always fits."""
    jobs: int = 10_000
    """Pieces of work that wait or are leased, in all queues."""

    def check(self, name: str, value: bytes) -> int:
        """The bytes of both.

        Raises:
            TooLarge: one of them.
        """
        named = len(name.encode("utf-8", "surrogatepass"))
        if named > self.name_bytes:
            raise TooLarge(f"a name of {named} bytes: {self.name_bytes} at most")
        if len(value) > self.value_bytes:
            raise TooLarge(f"{name}: {len(value)} bytes: {self.value_bytes} at most")
        return named + len(value)


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    until: float
    size: int


class MemoryValues:
    """`coretools.operations.services.Values` in a dictionary."""

    def __init__(self, limits: ServiceLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._bytes = 0

    async def get(self, key: str) -> bytes | None:
        """What stands at the key."""
        return self._value(key)

    async def set(self, key: str, value: bytes, *, ttl_seconds: float | None = None) -> None:
        """Put a value there."""
        self._put(key, value, ttl_seconds)

    async def delete(self, key: str) -> bool:
        """Take away what stands at the key."""
        was_there = self._value(key) is not None
        self._drop(key)
        return was_there

    async def compare_and_set(
        self, key: str, expected: bytes | None, value: bytes | None, *, ttl_seconds: float | None = None
    ) -> bool:
        """Put a value there if the expected one stands there."""
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
        self._drop(key)
        return None

    def _put(self, key: str, value: bytes, ttl_seconds: float | None) -> None:
        size = self._limits.check(key, value)
        if not self._fits(key, size):
            self._drop_expired()
        if not self._fits(key, size):
            most = f"{self._limits.keys} keys and {self._limits.kept_bytes} bytes"
            raise Busy(f"{key}: no room for another value: {most} at most; delete some, or give them a time")
        self._drop(key)
        until = math.inf if ttl_seconds is None else self._clock() + ttl_seconds
        self._entries[key] = _Entry(bytes(value), until, size)
        self._bytes += size

    def _fits(self, key: str, size: int) -> bool:
        there = self._entries.get(key)
        count = len(self._entries) + (there is None)
        held = self._bytes - (there.size if there else 0) + size
        return count <= self._limits.keys and held <= self._limits.kept_bytes

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        self._bytes -= entry.size if entry else 0

    def _drop_expired(self) -> None:
        now = self._clock()
        for key in [key for key, entry in self._entries.items() if entry.until <= now]:
            self._drop(key)


class MemorySubscription:
    """`coretools.operations.services.Subscription`: drops the oldest when its reader is too slow."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._came = anyio.Event()
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many were dropped."""
        return self._dropped

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            await self._came.wait()
        return self._taken()

    def give(self, message: bytes) -> None:
        """Add a message."""
        self._waiting.append(message)
        self._bytes += len(message)
        while len(self._waiting) > 1 and (
            len(self._waiting) > self._limits.buffered or self._bytes > self._limits.buffered_bytes
        ):
            self._taken()
            self._dropped += 1
        self._came.set()
        self._came = anyio.Event()

    def _taken(self) -> bytes:
        message = self._waiting.popleft()
        self._bytes -= len(message)
        return message


class MemoryTopics:
    """`coretools.operations.services.Topics` within the process."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._subscribers: dict[str, list[MemorySubscription]] = {}

    async def publish(self, topic: str, message: bytes) -> int:
        """Give a message to every subscriber."""
        self._limits.check(topic, message)
        there = tuple(self._subscribers.get(topic, ()))
        for subscriber in there:
            subscriber.give(bytes(message))
        return len(there)

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncIterator[MemorySubscription]:
        """Listen until the end of the block."""
        self._limits.check(topic, b"")
        if sum(map(len, self._subscribers.values())) >= self._limits.subscribers:
            raise Busy(f"{topic}: {self._limits.subscribers} subscriptions at most")
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
    waiting: deque[Job] = field(default_factory=deque)
    leased: dict[str, tuple[Job, float]] = field(default_factory=dict)
    """By id, with the end of the lease."""
    getters: int = 0
    changed: anyio.Event = field(default_factory=anyio.Event)

    def tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.leased or self.getters)


class MemoryQueues:
    """`coretools.operations.services.Queues` within the process: what waits when it ends is gone."""

    def __init__(self, limits: ServiceLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._count = 0
        self._bytes = 0

    async def put(self, queue: str, data: bytes) -> None:
        """Add work at the end."""
        self._limits.check(queue, data)
        if self._count >= self._limits.jobs or self._bytes + len(data) > self._limits.kept_bytes:
            most = f"{self._limits.jobs} pieces and {self._limits.kept_bytes} bytes"
            raise Busy(f"{queue}: no room for more work: {most} at most")
        found = self._queues.setdefault(queue, _Queue())
        found.waiting.append(Job(id="", queue=queue, data=bytes(data), attempt=0))
        self._count += 1
        self._bytes += len(data)
        found.tell()

    async def get(self, queue: str, *, lease_seconds: float = 60.0) -> Job:
        """The first that waits; waits for one."""
        self._limits.check(queue, b"")
        found = self._queues.setdefault(queue, _Queue())
        found.getters += 1
        try:
            while not found.waiting:
                self._take_back(found)
                if not found.waiting:
                    with anyio.move_on_after(self._until_next(found)):
                        await found.changed.wait()
            waiting = found.waiting.popleft()
            job = replace(waiting, id=uuid.uuid4().hex, attempt=waiting.attempt + 1)
            found.leased[job.id] = (job, self._clock() + lease_seconds)
            return job
        finally:
            found.getters -= 1
            self._forget(queue)

    async def acknowledge(self, job: Job) -> bool:
        """Say that it is done."""
        if not self._end_lease(job):
            return False
        self._count -= 1
        self._bytes -= len(job.data)
        self._forget(job.queue)
        return True

    async def release(self, job: Job) -> bool:
        """Give it back, to the front."""
        if not self._end_lease(job):
            return False
        found = self._queues[job.queue]
        found.waiting.appendleft(job)
        found.tell()
        return True

    def _end_lease(self, job: Job) -> bool:
        found = self._queues.get(job.queue)
        if found is None:
            return False
        self._take_back(found)
        return found.leased.pop(job.id, None) is not None

    def _take_back(self, found: _Queue) -> None:
        """What was leased for too long waits again, before all else and in its order."""
        now = self._clock()
        over = [job for job, until in found.leased.values() if until <= now]
        for job in reversed(over):
            del found.leased[job.id]
            found.waiting.appendleft(job)
        if over:
            found.tell()

    def _until_next(self, found: _Queue) -> float | None:
        ends = [until for _, until in found.leased.values()]
        return max(0.0, min(ends) - self._clock()) if ends else None

    def _forget(self, queue: str) -> None:
        if self._queues[queue].is_idle:
            del self._queues[queue]


class MemoryServices:
    """`coretools.operations.services.Services` in memory; the embedded default."""

    def __init__(self, limits: ServiceLimits | None = None, *, clock: Clock = time.monotonic) -> None:
        """`clock` is how time passes for what is kept for a time."""
        limits = limits or ServiceLimits()
        self.values = MemoryValues(limits, clock)
        self.topics = MemoryTopics(limits)
        self.queues = MemoryQueues(limits, clock)
