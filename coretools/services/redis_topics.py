"""Topics in Redis: its publish and subscribe, with a number before each message so that a gap is known.

Each subscription has a connection of its own: Redis then counts the subscribers of a topic, and of all topics, exactly
and over all replicas, and forgets those of a process that was killed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from coretools.services.limits import ServiceLimits
from coretools.services.memory import MemorySubscription
from coretools.services.redis_connection import RedisConnection, Script
from coretools.services.redis_listener import RedisListener, listening
from coretools.services.redis_values import CLOCK

NUMBER_SECONDS = 7 * 86_400
"""How long the number of a topic is kept after its last message."""

CLOSING_SECONDS = (0.01, 0.05, 0.2)
"""Pauses before a subscription is refused: Redis counts one that has just ended until it reads the end."""

_PUBLISH = Script(f"""{CLOCK}
redis.call('HSETNX', KEYS[1], 'epoch', string.format('%.0f', now))
local number = redis.call('HINCRBY', KEYS[1], 'number', 1)
redis.call('EXPIRE', KEYS[1], {NUMBER_SECONDS})
return redis.call('PUBLISH', KEYS[1], redis.call('HGET', KEYS[1], 'epoch') .. ':' .. number .. ' ' .. ARGV[1])
""")


class RedisTopics:
    """`coretools.services.interface.Topics` in Redis."""

    def __init__(self, connection: RedisConnection, limits: ServiceLimits) -> None:
        self._connection = connection
        self._limits = limits

    async def publish(self, topic: str, message: bytes) -> int:
        """Send a message to every subscriber. Returns their number."""
        self._limits.check(topic, message)
        keys = (self._connection.key("topic", topic),)
        subscribers: int = await self._connection.run(_PUBLISH, keys, message)
        return subscribers

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncIterator[MemorySubscription]:
        """Subscribe until the end of the block."""
        self._limits.check(topic, b"")
        every = self._connection.key("subscribers")
        numbered = _NumberedMessages(MemorySubscription(self._limits))
        listener = RedisListener(
            self._connection,
            (self._connection.key("topic", topic), every),
            numbered,
            what="messages of a topic",
        )
        async with listening(listener):
            await self._connection.within(listener.is_open.wait)
            await self._require_room(topic, every)
            numbers = await self._connection.ask("HMGET", self._connection.key("topic", topic), "epoch", "number")
            numbered.begin(*numbers)
            yield numbered.subscription

    async def _require_room(self, topic: str, every: str) -> None:
        for pause in (*CLOSING_SECONDS, None):
            _, subscribers = await self._connection.ask("PUBSUB", "NUMSUB", every)
            if subscribers <= self._limits.subscribers:
                return
            if pause is not None:
                await anyio.sleep(pause)
        raise self._limits.too_many_subscriptions(topic)


class _NumberedMessages:
    """Passes messages on and counts those that are missing between them."""

    def __init__(self, subscription: MemorySubscription) -> None:
        self.subscription = subscription
        self._epoch = b""
        """Since when the store numbers the messages of the topic; a store that has lost its data begins anew."""
        self._last = 0
        self._has_begun = False
        self._has_gap = False

    def begin(self, epoch: bytes | None, last: bytes | None) -> None:
        """Count the messages after this one."""
        self._has_begun = True
        if not self._epoch:  # no message was faster
            self._epoch, self._last = epoch or b"", int(last or 0)

    async def opened(self, has_gap: bool) -> None:
        self._has_gap = has_gap

    def lost(self) -> None:
        return

    async def received(self, payload: bytes) -> None:
        numbered, _, message = payload.partition(b" ")
        epoch, _, digits = numbered.partition(b":")
        number = int(digits)
        if self._has_begun and self._epoch in (epoch, b""):
            self.subscription.miss(max(0, number - 1 - self._last))
        elif self._has_gap:  # those of this epoch before it, and an unknown number of the last
            self.subscription.miss(number)
        self._epoch, self._last, self._has_gap = epoch, number, False
        self.subscription.give(message)
