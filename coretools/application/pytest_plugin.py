"""A pytest plugin for tests of an application.

Name it in `conftest.py`: `pytest_plugins = ["coretools.application.pytest_plugin"]`. A test takes `mcp_client`,
the SDK's client, connected in memory to what the fixture `app` of the project returns.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

import pytest

from coretools.application.app import App

if TYPE_CHECKING:
    from mcp import Client


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Return the event loop of async tests: a lifespan may need asyncio."""
    return "asyncio"


@pytest.fixture(params=["auto", "legacy"])
def mcp_era(request: pytest.FixtureRequest) -> Literal["auto", "legacy"]:
    """Return the protocol era; each test of a client runs in both."""
    era: Literal["auto", "legacy"] = request.param
    return era


@pytest.fixture
async def mcp_client(app: App, mcp_era: Literal["auto", "legacy"]) -> "AsyncIterator[Client]":
    """Yield a client of the application, while its lifespan runs."""
    async with app.test_client(mcp_era) as client:
        yield client
