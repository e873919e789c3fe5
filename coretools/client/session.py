"""A real server inside this process, and a real client of it: what `coretools tools` lists comes from it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

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
        # Who types a call at a shell may say yes in it.
        asking = replace(settings.asking, trusts_answers=True)
        server = build_server(assembly.graph, assembly.dispatcher, assembly.identity, assembly.resources, asking=asking)
        async with Client(server, cache=None) as client:
            yield client
