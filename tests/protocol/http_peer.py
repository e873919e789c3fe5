"""One of our apps on a loopback socket, in the test's own process."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an app until the end of the block; yields its URL."""
    # The parser that is always installed: an optional one accepts other methods.
    config = uvicorn.Config(app, http="h11", loop="asyncio", log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    # With the protocol number; otherwise asyncio does not set TCP_NODELAY and a response in two parts takes 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as accepting:
        accepting.bind(("127.0.0.1", 0))
        accepting.listen()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(server.serve, sockets=[accepting]))
            yield f"http://127.0.0.1:{accepting.getsockname()[1]}/mcp"
            server.should_exit = True
