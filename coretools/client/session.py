"""A real server inside this process, and a real client of it: what the command line calls tools through."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp import Client

from coretools.serving.assembly import assembled
from coretools.serving.server import build_server
from coretools.settings import Settings


@asynccontextmanager
async def in_process(settings: Settings) -> AsyncIterator[Client]:
    """A client connected to a server with these settings. At the end every child of the server is gone.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    async with assembled(settings, dict(os.environ)) as assembly:
        server = build_server(assembly.graph, assembly.dispatcher, assembly.identity, assembly.resources)
        async with Client(server, cache=None) as client:
            yield client
