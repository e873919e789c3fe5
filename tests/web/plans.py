"""The whole HTTP server in the test's own process: on a loopback socket, with roles, tokens and limits of the test."""

import argparse
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import uvicorn

from coretools.config.options import add_options
from coretools.operations.registry import Registry
from coretools.protocol.draining import Draining
from coretools.web.common.config import read_config
from coretools.web.reload import ConfigSource
from coretools.web.roles import build_roles
from coretools.web.service import ServedApp, ServerConfig, running_app


def options_of(*words: str) -> argparse.Namespace:
    """The flags of every entry point, and those of this one that a configuration needs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", action="append")
    parser.add_argument("--config")
    add_options(parser, profile="dev", log_level="info")
    return parser.parse_args(words)


def plan_of(
    *words: str,
    others: Sequence[Registry] = (),
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> ServerConfig:
    """A server configuration: `words` are flags, `flags` keys of the configuration with dots."""
    options = options_of(*words)
    environment = environment or {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    source = ConfigSource(
        config=lambda: read_config(options.config, environment, flags or {}),
        roles=lambda config: build_roles(config, options, environment, str(Path.cwd())),
    )
    config = source.config()
    return ServerConfig(
        config=config, roles=source.roles(config), others=tuple(others), environment=environment, source=source
    )


@asynccontextmanager
async def at_work(plan: ServerConfig, draining: Draining | None = None) -> AsyncIterator[str]:
    """Serve until the end of the block; yields the URL of the endpoint."""
    async with site_at_work(plan, draining) as (url, _):
        yield url


@asynccontextmanager
async def site_at_work(plan: ServerConfig, draining: Draining | None = None) -> AsyncIterator[tuple[str, ServedApp]]:
    """As `at_work`, with the app that reloads it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as accepting:
        accepting.bind(("127.0.0.1", 0))
        accepting.listen()
        port = accepting.getsockname()[1]
        async with running_app(plan, port, draining or Draining()) as site:
            config = uvicorn.Config(
                site.app, http="h11", lifespan="off", log_level="warning", timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(config)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(server.serve, sockets=[accepting]))
                yield f"http://127.0.0.1:{port}/mcp", site
                server.should_exit = True
