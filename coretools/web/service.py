"""The lifecycle of the HTTP server: open stores and tenants, listen, drain, close everything."""

import logging
import math
import signal
import socket
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass

import anyio
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp

from coretools.app.upstreams import loop_guard, with_upstreams
from coretools.distribution import needs_extra
from coretools.errors import BadSetting
from coretools.operations.registry import Registry
from coretools.protocol.draining import Draining
from coretools.protocol.process_exit import ProcessExit
from coretools.services.connect import open_services
from coretools.web.app import AppComponents, ReplaceableApp, configured_app
from coretools.web.auth.exposure_checks import require_safe
from coretools.web.auth.jwt_tokens import AcceptedClaims
from coretools.web.auth.local_caller import anonymous_callers
from coretools.web.auth.verifiers import ReplaceableVerifier, create_verifier
from coretools.web.common.config import Config, LimitsSection, RedisSection
from coretools.web.common.principals import DEFAULT_ROLE, Role
from coretools.web.common.urls import ENDPOINT
from coretools.web.connection.deadlines import RefusalListener, TimedProtocol, protocol_of
from coretools.web.connection.descriptors import accept_backlog, usable_slots
from coretools.web.connection.drain import DrainMiddleware
from coretools.web.connection.tls import tls_context, warn_of_key, warn_of_time
from coretools.web.observability.tracing import Tracing, exporting_traces
from coretools.web.observability_wiring import ObservabilityWiring, ServerState
from coretools.web.reload import ConfigSource, Reloader, RunningServer
from coretools.web.replicas.memory_stores import MemoryStores
from coretools.web.replicas.stores import Stores
from coretools.web.sessions.session_limiter import SessionLimiter
from coretools.web.tenants import ServerContext, Tenant, Tenants, open_tenants

NO_PACKAGE = f"redis.url: {needs_extra('redis')}"


async def require_redis(section: RedisSection) -> str:
    """Connect to the Redis of the replicas and return its version. Writes nothing.

    Raises:
        BadSetting: Redis does not answer, or can't be used.
    """
    try:
        # Imported late, as below.
        from coretools.web.replicas.redis_stores import connect_to
    except ModuleNotFoundError as error:
        raise BadSetting(NO_PACKAGE) from error
    engine = connect_to(section)
    try:
        return str((await engine.require_usable())["redis_version"])
    finally:
        await engine.close()


def create_stores(section: RedisSection, limits: LimitsSection) -> Stores:
    """Create the configured stores: in memory, or in a Redis that the replicas share. They are not open yet.

    Raises:
        BadSetting: the configured stores can't be used.
    """
    if not section.url:
        return MemoryStores(most_events=limits.events, most_bytes=limits.event_bytes)
    try:
        # Imported late: a server without replicas needs no Redis client.
        from coretools.web.replicas.redis_stores import RedisStores
    except ModuleNotFoundError as error:
        raise BadSetting(NO_PACKAGE) from error
    return RedisStores(section, limits)


BACKLOG = 2_048

END_SECONDS = 5.0
"""Given to cancelled requests after the drain, to end."""

GRACE_SECONDS = 2
"""Between the end of the drain, when active requests get a final answer, and the end of every connection."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Everything that the operator decided about this server."""

    config: Config
    roles: Mapping[str, Role]
    others: Sequence[Registry] = ()
    environment: Mapping[str, str]
    source: ConfigSource | None = None
    """Reads configuration and roles again for a reload; None: there is no reload."""


def require_shared_services(server_config: ServerConfig) -> None:
    """Refuse commands whose services would differ between replicas.

    Raises:
        BadSetting: names them.
    """
    if not server_config.config.redis.url or server_config.config.services.url:
        return
    names = sorted({one.name for registry in server_config.others for one in registry if one.uses_services})
    if names:
        raise BadSetting(
            f"--with: {', '.join(names)}: commands that take Services keep values, topics and queues in the memory of "
            "one replica; with redis.url they would differ between replicas. Set services.url to a store that all share"
        )


async def serve(server_config: ServerConfig) -> int:
    """Serve until SIGTERM or SIGINT, then until every active request is answered or the drain time is over.

    Returns:
        The exit code of the process: 128 plus the number of the signal.

    Raises:
        BadSetting: a setting can't be used, or would let strangers in; raised before anything listens.
        Unconfined: commands can't be confined as the operator requires.
    """
    config = server_config.config
    ending = ProcessExit(config.server.lame_duck_seconds + config.server.drain_seconds + END_SECONDS)
    draining = Draining()
    with ExitStack() as sockets:
        listening = bind_sockets(config, sockets)
        async with running_app(server_config, listening[0].getsockname()[1], draining) as site:
            protocol = _protocol(config, site)
            site.reloader.connections = protocol.use
            server = _Server(_uvicorn(config, site, protocol))
            async with anyio.create_task_group() as watching:
                shutdown = _Shutdown(server, ending, draining, site.drain, config.server.lame_duck_seconds)
                await watching.start(_shut_down_on_signal, shutdown)
                await watching.start(_reload_on_signal, site.reloader)
                if not config.auth.has_tokens:
                    _warn_of_anonymous(server_config)
                warn_of_time(config.server)
                warn_of_key(config.server)
                _log_addresses(config, listening)
                await server.serve(sockets=listening)
                watching.cancel_scope.cancel()
    ending.cancel_deadline()
    return ending.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedApp:
    """The running application and its handles for connections, reload and shutdown."""

    app: ASGIApp
    refused: RefusalListener
    reloader: Reloader
    drain: DrainMiddleware
    """Knows which requests are under way."""
    tenants: Mapping[str, Tenant]
    """By role."""


@asynccontextmanager
async def running_app(server_config: ServerConfig, port: int, draining: Draining) -> AsyncIterator[ServedApp]:
    """Open stores, tenants and the application; close them at the end of the block.

    Raises:
        BadSetting: a setting can't be used, or would let strangers in.
        Unconfined: commands can't be confined as the operator requires.
    """
    config = server_config.config
    accepted = AcceptedClaims()
    configured = create_verifier(config, accepted)
    verifier = None if configured is None else ReplaceableVerifier(configured)
    require_safe(config, has_auth=verifier is not None)
    require_shared_services(server_config)
    stores = create_stores(config.redis, config.limits)
    shared = next(iter(server_config.roles.values())).settings
    roles = [role.settings for role in server_config.roles.values()]
    upstreams = with_upstreams(shared, server_config.environment, server_config.others, roles=roles)
    services = open_services(config.services.url, config.services.limits)
    async with stores.running(), services as shared_services, upstreams as others, AsyncExitStack() as lifespans:
        for registry in others:  # before the tenants, which share what is started here, also after a reload
            await lifespans.enter_async_context(registry.running(is_alone=False))
        kind = "redis" if config.redis.url else "memory"
        state = ServerState(stores=stores, kind=kind, services=shared_services, draining=draining)
        tools: set[str] = set()
        with _tracing(config, stores.replica, tools) as tracing:
            observability = ObservabilityWiring(config, state, server_config.environment, tracing, tools)
            context = ServerContext(
                environment=server_config.environment,
                others=others,
                services=observability.metrics.services.observed(shared_services),
                middleware=loop_guard(shared),
                stores=stores,
                session_limiter=SessionLimiter(config.limits, observability.metrics),
                make_watcher=observability.watcher,
                draining=draining,
                is_same_for_all=len(server_config.roles) == 1 and verifier is None,
            )
            async with open_tenants(server_config.roles, context) as opened:
                state.opened = opened.opened
                if verifier is not None:
                    opened.watch(verifier)
                components = AppComponents(
                    config=config,
                    port=port,
                    verifier=verifier,
                    accepted=accepted,
                    stores=stores,
                    tenants=opened.opened,
                    pages=observability.routes(),
                    draining=draining,
                )
                yield _served_app(server_config, components, context, opened, observability)


def _served_app(
    server_config: ServerConfig,
    components: AppComponents,
    context: ServerContext,
    opened: Tenants,
    observability: ObservabilityWiring,
) -> ServedApp:
    config = server_config.config
    replaceable = ReplaceableApp(configured_app(components))
    drain = DrainMiddleware(replaceable, context.draining, seconds=config.server.drain_seconds)
    running = RunningServer(
        components=components,
        app=replaceable,
        tenants=opened,
        session_limiter=context.session_limiter,
        status=observability.reload_status,
        environment=server_config.environment,
    )
    return ServedApp(
        app=observability.observed(drain),
        drain=drain,
        tenants=opened.opened,
        refused=observability.metrics.refused,
        reloader=Reloader(config, server_config.roles, server_config.source, running),
    )


def _tracing(config: Config, replica: str, tools: set[str]) -> AbstractContextManager[Tracing | None]:
    """Return what exports traces, if they are configured; `tools` is filled with the names that spans may contain."""
    return exporting_traces(replica, tools) if config.telemetry.traces else nullcontext()


class _Server(uvicorn.Server):
    """A uvicorn server without its signal handling, which would raise the signal again at the end."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. asyncio uses one number for the kernel's queue and for connections accepted at once; we need two."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)


def _protocol(config: Config, site: ServedApp) -> type[TimedProtocol]:
    server = config.server
    limits = config.limits.model_copy(update={"connections": usable_slots(config.limits.connections)})
    return protocol_of(limits, proxies=server.proxies, tls=tls_context(server), refused=site.refused)


def _uvicorn(config: Config, site: ServedApp, protocol: type[TimedProtocol]) -> uvicorn.Config:
    server = config.server
    return uvicorn.Config(
        site.app,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        backlog=accept_backlog(protocol.limits.connections),
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=bool(server.proxies),
        forwarded_allow_ips=list(server.proxies),
        timeout_keep_alive=math.ceil(config.limits.keep_alive_seconds),
    )


@dataclass(frozen=True, slots=True)
class _Shutdown:
    """Ends the server in order."""

    server: uvicorn.Server
    ending: ProcessExit
    draining: Draining
    drain: DrainMiddleware
    lame_duck_seconds: float

    async def run(self) -> None:
        """Serve on until balancers know, then until no request is active or the drain time is over; stop uvicorn."""
        self.draining.announce()
        await anyio.sleep(self.lame_duck_seconds)
        self.draining.begin()
        left = await self.drain.finished()
        # Clients may not have read their answers yet.
        self.server.config.timeout_graceful_shutdown = math.ceil(left) + GRACE_SECONDS
        self.server.should_exit = True


async def _shut_down_on_signal(shutdown: _Shutdown, *, task_status: TaskStatus[None]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored if the parent ignores it; exit codes are lost then
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:
            task_status.started()
            async for number in signals:
                logger.info("ending: %s", number.name)
                shutdown.ending.on_signal(number)
                tasks.start_soon(shutdown.run)


async def _reload_on_signal(reloader: Reloader, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            await reloader.reload()


def bind_sockets(config: Config, sockets: ExitStack, *, does_listen: bool = True) -> list[socket.socket]:
    """Bind a socket to every address of the host, all on one port.

    Raises:
        BadSetting: this machine has no such address, or the port is taken.
    """
    host, port = config.server.host, config.server.port
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        bound: list[socket.socket] = []
        for family, _, _, _, address in dict.fromkeys(addresses):
            # With the protocol number: asyncio sets TCP_NODELAY only if it is given. Without TCP_NODELAY an answer in
            # two parts waits 40 ms for the client's acknowledgement of the first.
            one = sockets.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has its own socket
            one.bind((address[0], bound[0].getsockname()[1] if bound else port))
            if does_listen:
                one.listen(BACKLOG)
            bound.append(one)
    except OSError as error:
        raise BadSetting(f"server.host {host}, port {port}: can't listen there: {error.strerror or error}") from error
    return bound


def _warn_of_anonymous(server_config: ServerConfig) -> None:
    callers = anonymous_callers(server_config.config.auth.anonymous)
    roots = server_config.roles[DEFAULT_ROLE].settings.roots
    logger.warning("%s; with the rights of role %s: %s", callers, DEFAULT_ROLE, ", ".join(roots))


def _log_addresses(config: Config, listening: Sequence[socket.socket]) -> None:
    scheme = "https" if config.server.tls_certificate else "http"
    for one in listening:
        host, port = one.getsockname()[:2]
        display_host = f"[{host}]" if one.family == socket.AF_INET6 else host
        logger.info("listening on %s://%s:%s%s", scheme, display_host, port, ENDPOINT)
