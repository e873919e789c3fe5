"""An app of ours on a loopback socket, in the test's own process."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncIterator[str]:
    """The URL of the app, which is served until the end of the block."""
    # The parser that there is everywhere: another one, where it is installed, knows other methods.
    config = uvicorn.Config(app, http="h11", loop="asyncio", log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    # With its protocol, or asyncio leaves TCP_NODELAY away and an answer in two parts takes 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as accepting:
        accepting.bind(("127.0.0.1", 0))
        accepting.listen()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(server.serve, sockets=[accepting]))
            yield f"http://127.0.0.1:{accepting.getsockname()[1]}/mcp"
            server.should_exit = True
