"""The engines that the tests of services run on. Another one is a class here, and a name in `ENGINES`."""

import hashlib
import time
from contextlib import AsyncExitStack
from typing import Protocol

import pytest
from redis import Redis

from coretools.services.interface import ServiceEngine
from coretools.services.limits import ServiceLimits
from coretools.services.memory import MemoryServices
from coretools.services.nats_services import NatsServices, open_nats_services
from coretools.services.redis_services import open_redis_services
from tests.services.nats_server import NatsServer
from tests.web.replicas.redis_server import RedisServer


class Place(Protocol):
    """Where one test has its services."""

    second: float
    """What tests take for a second."""
    is_shared: bool
    """Whether services that are opened twice have the same content."""
    notes_expiry: bool
    """Whether `counts` knows of a lease that has expired before the item is delivered again."""
    counts_subscribers: bool
    """Whether the limit of subscriptions is one for all processes, not one each."""
    dead_letters_take_room: bool
    """Whether dead letters and other items have one limit together, not one each."""

    async def open(self, limits: ServiceLimits | None = None) -> ServiceEngine:
        """Open services until the end of the test."""
        ...

    async def pass_time(self, seconds: float) -> None:
        """Let so many of these seconds pass, for leases and times to live."""
        ...


class MemoryPlace:
    second = 1.0
    is_shared = False
    notes_expiry = True
    counts_subscribers = True
    dead_letters_take_room = True

    def __init__(self, _request: pytest.FixtureRequest, _stack: AsyncExitStack) -> None:
        self._ahead = 0.0

    async def open(self, limits: ServiceLimits | None = None) -> ServiceEngine:
        return MemoryServices(limits, clock=lambda: time.monotonic() + self._ahead)

    async def pass_time(self, seconds: float) -> None:
        self._ahead += seconds


class RedisPlace:
    """A prefix of its own in the Redis of all tests; time passes by changing what is stored."""

    second = 1.0
    is_shared = True
    notes_expiry = True
    counts_subscribers = True
    dead_letters_take_room = True

    def __init__(self, request: pytest.FixtureRequest, stack: AsyncExitStack) -> None:
        server: RedisServer = request.getfixturevalue("shared_redis")
        self._url = server.url
        self._prefix = f"{request.node.nodeid}:"
        self._stack = stack

    async def open(self, limits: ServiceLimits | None = None) -> ServiceEngine:
        return await self._stack.enter_async_context(open_redis_services(self._url, limits, prefix=self._prefix))

    async def pass_time(self, seconds: float) -> None:
        with Redis.from_url(self._url) as redis:
            for key in redis.scan_iter():
                if key.startswith(self._prefix.encode()) and redis.type(key) == b"zset":
                    for member in redis.zrange(key, 0, -1):
                        redis.zincrby(key, -1e6 * seconds, member)


class NatsPlace:
    """Streams of its own in the NATS of all tests; time passes by what NATS does at the end of a lease."""

    second = 1.0
    is_shared = True
    notes_expiry = False
    counts_subscribers = False
    dead_letters_take_room = False

    def __init__(self, request: pytest.FixtureRequest, stack: AsyncExitStack) -> None:
        server: NatsServer = request.getfixturevalue("shared_nats")
        self._url = server.url
        self._prefix = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
        self._stack = stack
        self._opened: list[NatsServices] = []

    async def open(self, limits: ServiceLimits | None = None) -> ServiceEngine:
        services = await self._stack.enter_async_context(open_nats_services(self._url, limits, prefix=self._prefix))
        self._opened.append(services)
        return services

    async def pass_time(self, seconds: float) -> None:
        for services in self._opened:
            clock, queues = services.values.clock, services.queues
            now = await clock.now() + seconds
            clock._offset += seconds
            for item_id, end in queues._ends.items():
                if 0 < end <= now:
                    await queues._answer(item_id.split()[1], b"-NAK")


ENGINES = {"memory": MemoryPlace, "redis": RedisPlace, "nats": NatsPlace}
