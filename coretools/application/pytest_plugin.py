"""A pytest plugin for tests of an application.

Name it in `conftest.py`: `pytest_plugins = ["coretools.application.pytest_plugin"]`. A test takes `mcp_client`,
the SDK's client, connected in memory to what the fixture `app` of the project returns. It answers the questions of
commands with what the fixture `mcp_answers` returns, which a module or `parametrize` replaces.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

import pytest

from coretools.application.app import App

if TYPE_CHECKING:
    from mcp import Client

    from coretools.hosting.prepared_answers import Answers


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
def mcp_answers() -> "Answers | None":
    """Return the answers to the questions of commands; None: nobody can be asked."""
    return None


@pytest.fixture
async def mcp_client(
    app: App, mcp_era: Literal["auto", "legacy"], mcp_answers: "Answers | None"
) -> "AsyncIterator[Client]":
    """Yield a client of the application, while its lifespan runs."""
    async with app.test_client(mcp_era, answers=mcp_answers) as client:
        yield client
