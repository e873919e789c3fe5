"""Public functions that serve any registry: over stdio, over any pair of streams, over HTTP.

`docs/specs/api.md` defines what is stable. The built-in servers use the same parts and add those of
`coretools.app.assembly`.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.context import ServerMiddleware
from mcp.server.extension import Extension
from mcp.server.lowlevel import Server

from coretools.config.logs import redact_logging
from coretools.config.settings import Asking
from coretools.distribution import VERSION
from coretools.errors import BadSetting
from coretools.operations.catalog import EVERYTHING, Selection, Surfaces
from coretools.operations.completion import require_sources
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry, merge_registries
from coretools.operations.services import Services
from coretools.protocol.open_requests import OpenRequests
from coretools.protocol.process_exit import ProcessExit
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.protocol.server import SERVER_NAME, ServerInfo, ServerOptions, build_server
from coretools.protocol.stdio.streams import Incoming, Outgoing, message_streams
from coretools.protocol.stdio.transport import claim_standard_streams, run_on_stdio
from coretools.standard_fds import ensure_standard_error, require_standard_streams

if TYPE_CHECKING:
    from starlette.types import ASGIApp


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How a registry is served."""

    name: str = SERVER_NAME
    version: str = VERSION
    instructions: str = ""
    """Instructions for the model, sent when a client connects."""
    selection: Selection = EVERYTHING
    """Which commands are served; by default all that are for agents."""
    surfaces: Surfaces = field(default_factory=Surfaces)
    services: Services | None = None
    """State shared by commands; None: in the server's memory."""
    asking: Asking = field(default_factory=Asking)
    """Whom a command may ask, and how long it waits for an answer."""
    extensions: tuple[Extension, ...] = ()
    """Protocol extensions (the SDK's class); `coretools.protocol.mcp_apps` has one for HTML views of results."""
    middleware: tuple[ServerMiddleware[Any], ...] = ()
    """Wraps the handling of each message (the SDK's type)."""
    threads: int = 32
    """Plain `def` commands that run at once."""
    line_bytes: int = 16 * 1024 * 1024
    """Longest message accepted from a client on stdio and on streams."""

    def __post_init__(self) -> None:
        for name in ("threads", "line_bytes"):
            if getattr(self, name) <= 0:
                raise BadSetting(f"{name}={getattr(self, name)}: must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """How a registry is served over HTTP. There is no authentication here: bind to a loopback address."""

    path: str = "/mcp"
    hosts: tuple[str, ...] = ("127.0.0.1:*", "localhost:*", "[::1]:*")
    """Accepted values of the Host header; `NAME:*` is any port. Others are refused (DNS rebinding)."""
    origins: tuple[str, ...] = ("http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*")
    """Accepted values of the Origin header; requests without the header are accepted."""
    sessions: int = 64
    """Sessions of the handshake era at once; about 40 KB each."""
    idle_seconds: float = 300.0
    """A session without requests is ended after this time."""
    body_bytes: int = 4 * 1024 * 1024


def build(registry: Registry, options: ServeOptions | None = None) -> Server[Any]:
    """Return the SDK's server of a registry, not started. It serves any number of connections on any transports.

    Connections share its commands and services and are otherwise isolated. They are notified of changes of the
    registry.

    Raises:
        BadSetting: the commands can't be served; the message names both sources of a collision.
    """
    options = options or ServeOptions()
    registry.validate()
    require_sources(registry)
    catalog = LiveCatalog(registry, options.selection, options.surfaces, is_same_for_all=True)
    dispatcher = Dispatcher(threads=options.threads, services=options.services)
    identity = ServerInfo(name=options.name, version=options.version, instructions=options.instructions)
    return build_server(
        catalog,
        dispatcher,
        identity,
        ServerOptions(
            extensions=options.extensions,
            questions=QuestionFactory(options.asking),
            middleware=options.middleware,
        ),
    )


async def serve_streams(
    served: Registry | Server[Any], read: Incoming, write: Outgoing, *, options: ServeOptions | None = None
) -> None:
    """Serve one client on a pair of streams until it closes its end; then close both.

    For several clients, `build` a server and pass it: they share its services. Of the options only `line_bytes`
    applies then.

    Raises:
        BadSetting: the commands can't be served.
    """
    options = options or ServeOptions()
    server = _server(served, options)
    async with message_streams(read, write, options.line_bytes) as streams:
        wrap = OpenRequests(server.server_info_stamp).wrap(*streams)
        await server.run(*wrap, server.create_initialization_options())


def serve_stdio(
    registry: Registry,
    *,
    options: ServeOptions | None = None,
    upstreams: AbstractAsyncContextManager[Sequence[Registry]] | None = None,
) -> int:
    """Serve on the standard streams until the client closes its end, or SIGTERM or SIGINT arrives. POSIX only.

    Meanwhile fd 1 is the log: what a command prints does not reach the client. Log records have no credentials: if the
    caller has not configured logging, they go to standard error as those of `coretools serve`; otherwise the handlers
    of the root logger redact them.
    `upstreams` gives further registries, whose commands are merged as long as it is open.

    Returns:
        The exit code for the process: 0, or 128 plus the signal's number.

    Raises:
        BadSetting: the commands can't be served, or a standard stream is closed.
    """
    ensure_standard_error()
    require_standard_streams()
    redact_logging(os.environ)
    process_exit = ProcessExit()
    try:
        anyio.run(_on_stdio, registry, options or ServeOptions(), process_exit, upstreams)
    finally:
        process_exit.cancel_deadline()
    return process_exit.exit_code


def http_app(
    served: Registry | Server[Any], *, options: ServeOptions | None = None, http: HttpOptions | None = None
) -> "ASGIApp":
    """Return an ASGI application that serves both protocol eras. Its lifespan must be run, once.

    A handshake-era client that reconnects gets the events it missed (Last-Event-ID). If `served` is a server, the
    options do not apply.

    Raises:
        BadSetting: the commands can't be served.
    """
    # Imported late: a server on stdio needs none of it.
    from coretools.hosting.unauthenticated_app import UnauthenticatedOptions, unauthenticated_app
    from coretools.web.common.config import LimitsSection

    http = http or HttpOptions()
    # Everybody is one principal. An author may want no sessions, which the configuration of a server does not allow.
    own = {
        "sessions": http.sessions,
        "sessions_per_principal": http.sessions,
        "session_idle_seconds": http.idle_seconds,
    }
    limits = LimitsSection(body_bytes=http.body_bytes).model_copy(update=own)
    shape = UnauthenticatedOptions(path=http.path, limits=limits, hosts=http.hosts, origins=http.origins)
    return unauthenticated_app(_server(served, options or ServeOptions()), shape)


async def _on_stdio(
    registry: Registry,
    options: ServeOptions,
    process_exit: ProcessExit,
    upstreams: AbstractAsyncContextManager[Sequence[Registry]] | None,
) -> None:
    with claim_standard_streams() as descriptors:
        async with upstreams or nullcontext(()) as further:
            merge_registries(registry, [one for one in further if one is not registry])
            server = build(registry, options)
            await run_on_stdio(server, descriptors, line_bytes=options.line_bytes, process_exit=process_exit)


def _server(served: Registry | Server[Any], options: ServeOptions) -> Server[Any]:
    return build(served, options) if isinstance(served, Registry) else served
