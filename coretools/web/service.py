"""The HTTP server from its first socket to its clean end: opens what it serves, listens, drains, and leaves nothing."""

import logging
import math
import signal
import socket
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass

import anyio
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp

from coretools.errors import BadSetting
from coretools.operations.dispatch import CallObserver
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.process_exit import Draining, Ending
from coretools.web.app import PATH, Parts, Replaceable, application
from coretools.web.auth.exposure import require_safe
from coretools.web.auth.jwt_tokens import AcceptedClaims
from coretools.web.auth.verifiers import replaceable, verifier_of
from coretools.web.common.config import Config, LimitsSection, RedisSection
from coretools.web.common.principals import Role
from coretools.web.connection.connection_slots import places_for, taken_at_once
from coretools.web.connection.deadlines import Refused, TimedProtocol, protocol_of
from coretools.web.connection.drain import Drained
from coretools.web.connection.tls import tls_context, warn_of_key, warn_of_time
from coretools.web.observability.tracing import Tracing, exported
from coretools.web.reload import Living, Reloading, Source
from coretools.web.replicas.memory_stores import MemoryStores
from coretools.web.replicas.stores import Stores
from coretools.web.sessions.session_manager import Admission, session_limits
from coretools.web.tenants import Surroundings, Workplaces, workplaces
from coretools.web.wiring import Overseer, Standing

# Which stores a server has: those of its memory, or an engine that its replicas share.


NO_PACKAGE = "redis.url: needs the package redis, which the extra `redis` of coretools installs"


async def require_engine(section: RedisSection) -> str:
    """Connect to the engine and ask it; its version. Nothing is written there.

    Raises:
        BadSetting: it does not answer, or can't be used.
    """
    try:
        # Imported late: as below.
        from coretools.web.replicas.redis_engine import Engine
    except ModuleNotFoundError as error:
        raise BadSetting(NO_PACKAGE) from error
    engine = Engine(section)
    try:
        return await engine.require_usable()
    finally:
        await engine.close()


def stores_of(section: RedisSection, limits: LimitsSection) -> Stores:
    """What is configured. Not opened yet.

    Raises:
        BadSetting: what is configured can't be used.
    """
    if not section.url:
        return MemoryStores(most_events=limits.events, most_bytes=limits.event_bytes)
    try:
        # Imported late: a server that stands alone needs none.
        from coretools.web.replicas.redis_stores import RedisStores
    except ModuleNotFoundError as error:
        raise BadSetting(NO_PACKAGE) from error
    return RedisStores(section, limits)


BACKLOG = 2_048

END_SECONDS = 5.0
"""After the drain: for what was cancelled to be gone."""

GRACE_SECONDS = 2
"""Between the end of the drain, when requests under way are ended with an answer, and the end of every connection."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is served: everything that the operator decided."""

    config: Config
    roles: Mapping[str, Role]
    others: Sequence[Registry] = ()
    environment: Mapping[str, str]
    source: Source | None = None
    """Where configuration and roles are read again; None: they never are."""


async def serve(plan: Plan) -> int:
    """Listen until SIGTERM or SIGINT comes and everything under way is answered, or its time is over.

    Returns:
        The exit code of the process: 128 and the number of the signal.

    Raises:
        BadSetting: something can't be used, or would be open to strangers; before anything listens.
        Unconfined: commands can't be held as the operator requires.
    """
    config = plan.config
    ending = Ending(config.server.drain_seconds + END_SECONDS)
    draining = Draining()
    with ExitStack() as sockets:
        listening = bound(config, sockets)
        async with served(plan, listening[0].getsockname()[1], draining) as site:
            protocol = _protocol(config, site)
            site.reloading.connections = protocol.use
            server = _Server(_uvicorn(config, site, protocol))
            async with anyio.create_task_group() as watching:
                await watching.start(_ended_by_signal, _End(server, ending, draining, site.drained))
                await watching.start(_reloaded_by_signal, site.reloading)
                warn_of_time(config.server)
                warn_of_key(config.server)
                _say_where(config, listening)
                await server.serve(sockets=listening)
                watching.cancel_scope.cancel()
    ending.over()
    return ending.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is served, and who counts what is refused before it."""

    app: ASGIApp
    refused: Refused
    reloading: Reloading
    drained: Drained
    """Knows what is under way."""


@asynccontextmanager
async def served(plan: Plan, port: int, draining: Draining) -> AsyncIterator[Site]:
    """The application, with all that stands behind it, until the end of the block.

    Raises:
        BadSetting: something can't be used, or would be open to strangers.
        Unconfined: commands can't be held as the operator requires.
    """
    config = plan.config
    accepted = AcceptedClaims()
    verifier = replaceable(verifier_of(config, accepted))
    require_safe(config, has_auth=verifier is not None)
    stores = stores_of(config.redis, config.limits)
    async with stores.running():
        standing = Standing(stores=stores, kind="redis" if config.redis.url else "memory", draining=draining)
        tools: set[str] = set()
        with _tracing(config, stores.replica, tools) as tracing:
            overseer = Overseer(config, standing, plan.environment, tracing)

            def watching(role: str, catalog: LiveCatalog) -> CallObserver:
                tools.update(command.name for command in catalog.registry)
                return overseer.watcher(role, catalog)

            around = Surroundings(
                environment=plan.environment,
                others=plan.others,
                stores=stores,
                admission=Admission(session_limits(config.limits), overseer.metrics),
                watching=watching,
                draining=draining,
                is_same_for_all=len(plan.roles) == 1 and verifier is None,
            )
            async with workplaces(plan.roles, around) as opened:
                standing.opened = opened.opened
                if verifier is not None:
                    opened.watch(verifier)
                parts = Parts(
                    config=config,
                    port=port,
                    verifier=verifier,
                    accepted=accepted,
                    stores=stores,
                    workplaces=opened.opened,
                    pages=overseer.routes(),
                    draining=draining,
                )
                yield _site(plan, parts, around, opened, overseer)


def _site(plan: Plan, parts: Parts, around: Surroundings, opened: Workplaces, overseer: Overseer) -> Site:
    inner = Replaceable(application(parts))
    bounded = Drained(inner, around.draining, seconds=plan.config.server.drain_seconds)
    living = Living(
        parts=parts,
        app=inner,
        workplaces=opened,
        admission=around.admission,
        draining=around.draining,
        environment=plan.environment,
    )
    return Site(
        app=overseer.observed(bounded, PATH),
        drained=bounded,
        refused=overseer.metrics.refused,
        reloading=Reloading(plan.config, plan.roles, plan.source, living),
    )


def _tracing(config: Config, replica: str, tools: set[str]) -> AbstractContextManager[Tracing | None]:
    """`tools` are the names that a span may say; filled once they are known."""
    return exported(replica, tools, (PATH,)) if config.telemetry.traces else nullcontext()


class _Server(uvicorn.Server):
    """Leaves signals to us: it would raise them again at its end, and the process would not end as it should."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; asyncio has one number for how many wait in the kernel and how many it takes at once."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)


def _protocol(config: Config, site: Site) -> type[TimedProtocol]:
    server = config.server
    limits = config.limits.model_copy(update={"connections": places_for(config.limits.connections)})
    return protocol_of(limits, proxies=server.proxies, tls=tls_context(server), refused=site.refused)


def _uvicorn(config: Config, site: Site, protocol: type[TimedProtocol]) -> uvicorn.Config:
    server = config.server
    return uvicorn.Config(
        site.app,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        backlog=taken_at_once(protocol.limits.connections),
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=bool(server.proxies),
        forwarded_allow_ips=list(server.proxies),
        timeout_keep_alive=math.ceil(config.limits.keep_alive_seconds),
    )


@dataclass(frozen=True, slots=True)
class _End:
    """What takes part in the end of the server."""

    server: uvicorn.Server
    ending: Ending
    draining: Draining
    drained: Drained

    async def come(self) -> None:
        """Listen until nothing is under way or the time is over; then no connection is taken any more."""
        self.draining.begin()
        left = await self.drained.finished()
        # What is answered may not be read yet.
        self.server.config.timeout_graceful_shutdown = math.ceil(left) + GRACE_SECONDS
        self.server.should_exit = True


async def _ended_by_signal(end: _End, *, task_status: TaskStatus[None]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent that ignores it hands that on; exit codes are lost then
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:
            task_status.started()
            async for number in signals:
                logger.info("ending: %s", number.name)
                end.ending.by_signal(number)
                tasks.start_soon(end.come)


async def _reloaded_by_signal(reloading: Reloading, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            await reloading.reload()


def bound(config: Config, sockets: ExitStack, *, does_listen: bool = True) -> list[socket.socket]:
    """Sockets on every address of the host, all on one port.

    Raises:
        BadSetting: no such address here, or it is taken.
    """
    host, port = config.server.host, config.server.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        made: list[socket.socket] = []
        for family, _, _, _, address in dict.fromkeys(found):
            # With the protocol's number: asyncio sets TCP_NODELAY only where it stands, and without that an answer in
            # two parts waits 40 ms for the client's acknowledgement of the first.
            one = sockets.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
            one.bind((address[0], made[0].getsockname()[1] if made else port))
            if does_listen:
                one.listen(BACKLOG)
            made.append(one)
    except OSError as error:
        raise BadSetting(f"server.host {host}, port {port}: can't listen there: {error.strerror or error}") from error
    return made


def _say_where(config: Config, listening: Sequence[socket.socket]) -> None:
    scheme = "https" if config.server.tls_certificate else "http"
    for one in listening:
        host, port = one.getsockname()[:2]
        shown = f"[{host}]" if one.family == socket.AF_INET6 else host
        logger.info("listening on %s://%s:%s%s", scheme, shown, port, PATH)
