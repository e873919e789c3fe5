"""One Redis for all tests of a worker, and an authorization server for each module that needs one."""

from collections.abc import Iterator

import pytest

from tests.web.auth.authorization_server import AuthorizationServer
from tests.web.replicas.redis_server import RedisServer


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """For a test that damages it."""
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def authorization_server() -> Iterator[AuthorizationServer]:
    """Its keys may differ from those at the start: tests rotate them."""
    server = AuthorizationServer()
    yield server
    server.close()
