"""What every test stands on: one event loop kind, because the server's own transport is written for it."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
