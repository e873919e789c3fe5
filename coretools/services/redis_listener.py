"""A subscription to channels of Redis that is opened again whenever its connection is lost."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from coretools.errors import Unreachable
from coretools.services.redis_connection import RedisConnection

QUIET_SECONDS = 5.0
"""Ping Redis after this time without a message."""

AGAIN_SECONDS = 0.5
"""Pause between attempts to subscribe."""

END_SECONDS = 1.0
"""Wait for the end of a listener that was cancelled."""

logger = logging.getLogger(__name__)


class Receiver(Protocol):
    """What a listener notifies."""

    async def opened(self, has_gap: bool) -> None:
        """The subscription works, for the first time, or again: then messages may have been missed."""
        ...

    async def received(self, data: bytes) -> None:
        """A message."""
        ...

    def lost(self) -> None:
        """The connection was lost, or could not be made."""
        ...


class RedisListener:
    """Receives the messages of some channels, until it is over."""

    def __init__(
        self,
        connection: RedisConnection,
        channels: tuple[str, ...],
        receiver: Receiver,
        *,
        what: str,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        """`what` is received, for the log."""
        self._connection = connection
        self._channels = channels
        self._what = what
        self._receiver = receiver
        self._quiet_seconds = quiet_seconds
        self.is_open = asyncio.Event()
        """Set while the subscription works."""
        self.is_over = False
        """Set before `run` is cancelled: redis-py swallows a cancellation while it connects."""

    async def run(self) -> None:
        """Receive until cancelled."""
        has_gap = False
        while not self.is_over:
            pubsub = self._connection.pubsub()
            try:
                await pubsub.subscribe(*self._channels)
                await self._receive(pubsub, has_gap=has_gap)
            except (RedisError, OSError, TimeoutError, Unreachable) as error:
                # Once for each loss: it is tried again twice a second.
                level = logging.DEBUG if has_gap and not self.is_open.is_set() else logging.WARNING
                logger.log(level, "%s are not received now: %s", self._what, type(error).__name__)
            finally:
                self.is_open.clear()
                self._receiver.lost()
                await _closed(pubsub)
            has_gap = True
            if not self.is_over:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _receive(self, pubsub: PubSub, *, has_gap: bool) -> None:
        was_pinged = False
        while not self.is_over:
            message: dict[str, Any] | None = await pubsub.get_message(timeout=self._quiet_seconds)
            if message is None:
                if was_pinged:
                    raise Unreachable("no word from Redis")
                # A silent connection may be dead.
                await pubsub.ping()
                was_pinged = True
                continue
            was_pinged = False
            if message["type"] == "subscribe":
                # One answer for each channel; its data is their number so far.
                if message["data"] == len(self._channels):
                    await self._receiver.opened(has_gap)
                    self.is_open.set()
            elif message["type"] == "message":
                await self._receiver.received(message["data"])


@asynccontextmanager
async def listening(listener: RedisListener) -> AsyncIterator[None]:
    """Run a listener until the end of the block."""
    task = asyncio.create_task(listener.run())
    try:
        yield
    finally:
        listener.is_over = True
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task], timeout=END_SECONDS)


async def _closed(pubsub: Any) -> None:
    try:
        await pubsub.aclose()
    except (RedisError, OSError, TimeoutError) as error:
        logger.debug("redis: %s", type(error).__name__)
