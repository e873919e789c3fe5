"""Public functions that serve any registry: over stdio, over any pair of streams, over HTTP.

`docs/specs/api.md` defines what is stable. The built-in servers use the same parts and add those of
`coretools.app.assembly`.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.context import ServerMiddleware
from mcp.server.extension import Extension
from mcp.server.lowlevel import Server

from coretools.config.limits import Limits
from coretools.config.logs import redact_logging
from coretools.config.settings import Asking
from coretools.errors import BadSetting
from coretools.operations.catalog import EVERYTHING, Selection, Surfaces
from coretools.operations.completion import require_sources
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry, merge_registries
from coretools.operations.server_info import ServerInfo
from coretools.protocol.open_requests import OpenRequests
from coretools.protocol.process_exit import ProcessExit
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.protocol.server import ServerOptions, build_server
from coretools.protocol.stdio.streams import Incoming, Outgoing, message_streams
from coretools.protocol.stdio.transport import claim_standard_streams, run_on_stdio
from coretools.services.interface import Services
from coretools.standard_fds import ensure_standard_error, require_standard_streams

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from coretools.protocol.tasks.store import TaskStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How a registry is served."""

    info: ServerInfo = field(default_factory=ServerInfo)
    """What the server reports about itself."""
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
    """How a registry is served over HTTP. Without `verify` anybody may call: bind to a loopback address."""

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
    verify: Callable[[str], Awaitable[str | None]] | None = None
    """Returns the name of the caller to whom a bearer token belongs, or None if it is not valid; then `Principal`."""
    sessions_per_caller: int = 64
    """With `verify`, as what follows: sessions of one caller at once."""
    requests_per_second: float = 50.0
    """Average requests of one caller; 0 is no limit."""
    burst: int = 100
    """Requests of one caller at once after an idle time."""
    concurrent_requests: int = 64
    """Requests of one caller in progress."""


def build(
    registry: Registry,
    options: ServeOptions | None = None,
    *,
    tasks: "TaskStore | None" = None,
    questions: QuestionFactory | None = None,
    has_one_client: bool = False,
) -> Server[Any]:
    """Return the SDK's server of a registry, not started. It serves any number of connections on any transports.

    Connections share its commands and services and are otherwise isolated. They are notified of changes of the
    registry. Long-running commands are tasks for clients with the extension; `tasks` holds them; a caller
    that passes it closes it.

    Raises:
        BadSetting: the commands can't be served; the message names both sources of a collision.
    """
    options = options or ServeOptions()
    registry.validate()
    require_sources(registry)
    catalog = LiveCatalog(registry, options.selection, options.surfaces, is_same_for_all=True)
    dispatcher = Dispatcher(threads=options.threads, services=options.services)
    # Of an application, which may have others within it.
    identity = replace(options.info, instructions=registry.instructions or options.info.instructions)
    questions = questions or QuestionFactory(options.asking)
    extensions = options.extensions
    tasks = tasks or _task_store(registry)
    if tasks is not None:
        from coretools.protocol.tasks.extension import TaskExtension  # imported late, as in `_task_store`

        extensions = (
            TaskExtension(catalog, dispatcher, tasks, limits=Limits(), questions=questions),
            *extensions,
        )
    return build_server(
        catalog,
        dispatcher,
        identity,
        ServerOptions(
            extensions=extensions,
            questions=questions,
            middleware=options.middleware,
            has_one_client=has_one_client,
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
    async with running_server(served, options) as server, message_streams(read, write, options.line_bytes) as streams:
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
) -> "Starlette":
    """Return an ASGI application that serves both protocol eras. Its lifespan must be run, once.

    A handshake-era client that reconnects gets the events it missed (Last-Event-ID). If `served` is a server, the
    options do not apply.

    Raises:
        BadSetting: the commands can't be served.
    """
    # Imported late: a server on stdio needs none of it.
    from coretools.hosting.asgi_app import AppOptions, asgi_app
    from coretools.web.common.config import LimitsSection
    from coretools.web.common.principals import Rates

    http = http or HttpOptions()
    # Without `verify` everybody is one principal. An author may want no sessions; a server's configuration can't.
    own = {
        "sessions": http.sessions,
        "sessions_per_principal": http.sessions if http.verify is None else http.sessions_per_caller,
        "session_idle_seconds": http.idle_seconds,
    }
    limits = LimitsSection(body_bytes=http.body_bytes).model_copy(update=own)
    shape = AppOptions(
        path=http.path,
        limits=limits,
        hosts=http.hosts,
        origins=http.origins,
        verify=http.verify,
        rates=Rates(
            requests_per_second=http.requests_per_second, burst=http.burst, concurrent=http.concurrent_requests
        ),
    )
    if not isinstance(served, Registry):
        return asgi_app(served, shape)
    tasks = _task_store(served)
    server = build(served, options, tasks=tasks)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with served.running(), tasks or nullcontext():
            server.instructions = served.instructions or server.instructions  # also of servers that are connected now
            yield

    return asgi_app(server, shape, running)


async def _on_stdio(
    registry: Registry,
    options: ServeOptions,
    process_exit: ProcessExit,
    upstreams: AbstractAsyncContextManager[Sequence[Registry]] | None,
) -> None:
    with claim_standard_streams() as descriptors:
        async with upstreams or nullcontext(()) as further:
            merge_registries(registry, [one for one in further if one is not registry])
            async with running_server(registry, options) as server:
                await run_on_stdio(server, descriptors, line_bytes=options.line_bytes, process_exit=process_exit)


@asynccontextmanager
async def running_server(
    served: Registry | Server[Any], options: ServeOptions, questions: QuestionFactory | None = None
) -> AsyncIterator[Server[Any]]:
    """Yield the server. If it is built here, its lifespans run and its tasks end with the block."""
    if not isinstance(served, Registry):
        yield served
        return
    served.validate()  # a lifespan should not start in vain
    async with served.running():
        tasks = _task_store(served)
        server = build(served, options, tasks=tasks, questions=questions, has_one_client=True)
        async with tasks or nullcontext():
            yield server


def _task_store(registry: Registry) -> "TaskStore | None":
    """Return a store for the tasks of long-running commands; None if there are no such commands."""
    may_come = any(one.adds_commands for one in registry.applications)
    if not may_come and not any(command.declaration.long_running for command in registry):
        return None
    from coretools.protocol.tasks.store import TaskStore  # imported late: 3 % of a start, and few programs need it

    return TaskStore()
