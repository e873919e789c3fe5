"""One Redis for all tests of a worker, and an authorization server for each module that needs one."""

from collections.abc import Iterator

import pytest

from tests.web.auth.authorization_server import AuthorizationServer
from tests.web.replicas.redis_server import own_redis, shared_redis

__all__ = ["own_redis", "shared_redis"]  # fixtures


@pytest.fixture(scope="module")
def authorization_server() -> Iterator[AuthorizationServer]:
    """Its keys may differ from those at the start: tests rotate them."""
    server = AuthorizationServer()
    yield server
    server.close()
