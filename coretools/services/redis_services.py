"""Services in a Redis that several processes share (docs/adr/0074)."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from coretools.errors import Unreachable
from coretools.services.interface import UNREACHABLE, QueueTotals
from coretools.services.limits import ServiceLimits
from coretools.services.redis_connection import RedisAddress, RedisConnection
from coretools.services.redis_queues import RedisQueues
from coretools.services.redis_topics import RedisTopics
from coretools.services.redis_values import RedisValues

PREFIX = "coretools:services:"

TIMEOUT_SECONDS = 5.0
"""For one answer of Redis, which may have to write to its disk first."""


logger = logging.getLogger(__name__)


class RedisServices:
    """`coretools.services.interface.ServiceEngine` in Redis."""

    def __init__(self, connection: RedisConnection, limits: ServiceLimits, tasks: AsyncExitStack) -> None:
        """`tasks` closes what runs in the background."""
        self._connection = connection
        self.values = RedisValues(connection, limits)
        self.topics = RedisTopics(connection, limits)
        self.queues = RedisQueues(connection, limits, tasks)

    async def check(self) -> str:
        """Check that Redis answers, and say its version and what a restart of it would lose."""
        return _description(await self._connection.information())

    async def totals(self) -> QueueTotals:
        """The numbers of items in all queues."""
        return await self.queues.totals()


@asynccontextmanager
async def open_redis_services(
    url: str, limits: ServiceLimits | None = None, *, prefix: str = PREFIX
) -> AsyncIterator[RedisServices]:
    """Open the services in a Redis. One that does not answer now is used as soon as it does.

    Raises:
        BadSetting: the URL is malformed, or leads to a cluster.
    """
    address = RedisAddress(
        url=url, setting="services.url", prefix=prefix, timeout_seconds=TIMEOUT_SECONDS, unreachable=UNREACHABLE
    )
    connection = RedisConnection(address)
    async with AsyncExitStack() as tasks:
        tasks.push_async_callback(connection.close)
        services = RedisServices(connection, limits or ServiceLimits(), tasks)
        try:
            description = await services.check()
        except Unreachable as error:
            logger.warning("%s; calls that need services fail until it does", connection.refused(error))
        else:
            logger.info("services: %s", description)
        yield services


def _description(told: dict[str, Any]) -> str:
    """What operators should know of a Redis: nothing may be lost at a restart, nor evicted."""
    losses = []
    if not told.get("aof_enabled"):
        losses.append("appendonly is off, so a restart loses what is stored")
    if told.get("maxmemory") and told.get("maxmemory_policy") != "noeviction":
        losses.append("maxmemory-policy is not noeviction, so it may drop what is stored")
    return "; ".join((f"redis {told['redis_version']}", *losses))
