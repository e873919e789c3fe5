"""Fixtures of the tests of services."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from tests.services.engines import ENGINES, Place
from tests.services.nats_server import NatsServer
from tests.web.replicas.redis_server import RedisServer, own_redis, shared_redis

__all__ = ["own_redis", "shared_redis"]  # fixtures


@pytest.fixture
def durable_redis() -> Iterator[RedisServer]:
    """As docs/deploy/replicas.md configures it for services; for a test that damages it."""
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    yield server
    server.close()


@pytest.fixture(scope="session")
def shared_nats() -> Iterator[NatsServer]:
    server = NatsServer()
    yield server
    server.close()


@pytest.fixture
def own_nats() -> Iterator[NatsServer]:
    """For a test that damages it."""
    server = NatsServer()
    yield server
    server.close()


@pytest.fixture(params=list(ENGINES))
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """Where the services of one test are, for each engine."""
    async with AsyncExitStack() as stack:
        yield ENGINES[request.param](request, stack)
