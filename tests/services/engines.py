"""The engines that the tests of services run on. Another one is a class here, and a name in `ENGINES`."""

import time
from contextlib import AsyncExitStack
from typing import Protocol

import pytest
from redis import Redis

from coretools.services.interface import ServiceEngine
from coretools.services.limits import ServiceLimits
from coretools.services.memory import MemoryServices
from coretools.services.redis_services import open_redis_services
from tests.web.replicas.redis_server import RedisServer


class Place(Protocol):
    """Where one test has its services."""

    second: float
    """What tests take for a second."""
    is_shared: bool
    """Whether services that are opened twice have the same content."""

    async def open(self, limits: ServiceLimits | None = None) -> ServiceEngine:
        """Open services until the end of the test."""
        ...

    async def pass_time(self, seconds: float) -> None:
        """Let so many of these seconds pass, for leases and times to live."""
        ...


class MemoryPlace:
    second = 1.0
    is_shared = False

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


ENGINES = {"memory": MemoryPlace, "redis": RedisPlace}
