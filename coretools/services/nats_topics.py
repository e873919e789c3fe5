"""Topics in NATS: its own publish and subscribe, which stores nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nats.aio.msg import Msg

from coretools.services.limits import ServiceLimits
from coretools.services.memory import MemorySubscription
from coretools.services.nats_connection import NatsConnection, token


class NatsTopics:
    """`coretools.services.interface.Topics` in NATS."""

    def __init__(self, connection: NatsConnection, limits: ServiceLimits, prefix: str) -> None:
        self._connection = connection
        self._limits = limits
        self._prefix = f"{prefix}.topics."
        self._subscribers = 0

    async def publish(self, topic: str, message: bytes) -> None:
        """Send a message to every subscriber; NATS tells nobody how many there are."""
        self._limits.check(topic, message)
        await self._connection.require_room(topic, message)
        await self._connection.request(lambda client: client.publish(self._prefix + token(topic), bytes(message)))

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncIterator[MemorySubscription]:
        """Subscribe until the end of the block."""
        self._limits.check(topic, b"")
        if self._subscribers >= self._limits.subscribers:
            raise self._limits.too_many_subscriptions(topic)
        subscription = MemorySubscription(self._limits)

        async def receive(message: Msg) -> None:
            subscription.give(message.data)

        def missed() -> None:
            # Core NATS numbers no messages: at least one may be lost with a connection.
            subscription.miss(1)

        self._subscribers += 1
        try:
            with self._connection.told_of_gaps(missed):
                async with self._connection.subscribed(self._prefix + token(topic), receive):
                    yield subscription
        finally:
            self._subscribers -= 1
