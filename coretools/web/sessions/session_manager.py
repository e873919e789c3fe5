"""Sessions of the handshake era: counted for each principal, with events of their own, known to the other replicas.

The SDK's manager has one cap for everybody and one event store for all. What it leaves out is added by overriding two
of its methods (docs/adr/0019); a test fails when it has them no more.
"""

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol
from uuid import uuid4

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import JSONRPCMessage

from coretools.errors import Unreachable
from coretools.operations.call import LOCAL
from coretools.web.common.config import LimitsSection
from coretools.web.replicas.stores import EventLog, Stores
from coretools.web.sessions.response_format import SessionTransport

# The SDK's event store of one session, over a log of ours.
#
# The SDK's `EventStore` does not say of which session an event is, and names streams by the clients' own request ids:
# one store for all would hand one session's answers to another. So each transport is given a store of its own.


class SessionEventStore(EventStore):
    """What the SDK stores and replays, for one session. Its log is opened once the session has its id."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._log: EventLog | None = None
        self._has_hole = False

    def open(self, session: str) -> None:
        """The session has its id."""
        self._log = self._stores.events(session)

    @property
    def log(self) -> EventLog:
        """What is kept."""
        if self._log is None:
            raise RuntimeError("the session has no id yet")
        return self._log

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event. One that can't be kept is sent all the same, with an id that is of none.

        What was kept before is forgotten then, rather than replayed with a hole. Raising would end the SDK's router of
        messages, and with it every answer of the session.
        """
        try:
            if self._has_hole:
                await self.log.clear()
                self._has_hole = False
            return await self.log.add(stream_id, message)
        except Unreachable:
            self._has_hole = True
            return f"lost-{secrets.token_hex(8)}"

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what came after an event of the same session and stream, and what comes until the request is answered.

        The SDK would send what comes by itself, but only from a moment after this returns: an answer in between is
        stored and not sent, and its client waits for ever. Only the stream without a request is left to it.
        """
        last = last_event_id
        while True:
            news = self.log.news
            missed = await self.log.after(last)
            if missed is None:
                return None
            for event in missed.events:
                await send_callback(event)
                last = event.event_id or last
            if missed.stream == GET_STREAM_KEY:
                return missed.stream
            if missed.is_all:
                return None
            await news.wait()


RETRY_MILLISECONDS = 500
"""When a client that was sent away should come back."""

SHARE = 16
"""One principal gets this part of all sessions, unless the operator says another number."""

MOST_REMEMBERED = 1_024
"""Principals as the SDK knows them: made for each request they cost 50 microseconds."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """What sessions may use. Times in seconds, sizes in bytes."""

    sessions: int = 64
    per_principal: int = 0
    """0 is a sixteenth of `sessions`, at least one."""
    idle_seconds: float = 300.0
    """0: never ended for being idle."""
    body_bytes: int = 4 * 1024 * 1024

    @property
    def share(self) -> int:
        """Sessions of one principal."""
        return self.per_principal or max(1, self.sessions // SHARE)


def session_limits(limits: LimitsSection) -> SessionLimits:
    """Those of the configuration."""
    return SessionLimits(
        sessions=limits.sessions,
        per_principal=limits.sessions_per_principal,
        idle_seconds=limits.session_idle_seconds,
        body_bytes=limits.body_bytes,
    )


@dataclass(slots=True, eq=False)
class OpenSession:
    """One session, as an operator looks at it."""

    id: str
    principal: str
    events: SessionEventStore
    revision: str = ""
    """What its client proposed, which is what was negotiated where it is served."""
    opened: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)
    """When its last request came, or was answered."""
    under_way: int = 1
    """Requests and streams; the first is the one that opens it."""

    @property
    def age_seconds(self) -> float:
        """Since it was opened."""
        return time.monotonic() - self.opened

    @property
    def idle_seconds(self) -> float:
        """Since its last request."""
        return time.monotonic() - self.used

    def begin(self) -> None:
        """A request came."""
        self.under_way += 1
        self.used = time.monotonic()

    def end(self) -> None:
        """A request is over."""
        self.under_way -= 1
        self.used = time.monotonic()


class SessionWatcher(Protocol):
    """Told of sessions. Is quick, and raises nothing."""

    def session_opened(self, role: str) -> None:
        """One more."""
        ...

    def session_ended(self, role: str, reason: str) -> None:
        """One less: `deleted`, `idle`, `evicted` for another of its principal, or `closed` by the server."""
        ...


class NullSessionWatcher:
    """Nobody looks."""

    def session_opened(self, role: str) -> None:
        """One more."""

    def session_ended(self, role: str, reason: str) -> None:
        """One less."""


class SessionLimiter:
    """How many sessions are open, over all roles of a server."""

    def __init__(self, limits: SessionLimits, watcher: SessionWatcher | None = None) -> None:
        """`watcher` is told of every session."""
        self.limits = limits
        self.watcher = watcher or NullSessionWatcher()
        self._by_principal: Counter[str] = Counter()
        self.opened = 0
        """Since the start."""

    def use(self, limits: SessionLimits) -> None:
        """Go by these limits from now on; what is open stays."""
        self.limits = limits

    @property
    def open(self) -> int:
        """Sessions now."""
        return self._by_principal.total()

    @property
    def is_full(self) -> bool:
        """Whether nobody gets one more."""
        return self.open >= self.limits.sessions

    def has_room(self, principal: str) -> bool:
        """Whether this principal gets one more."""
        return not self.is_full and self._by_principal[principal] < self.limits.share

    def enter(self, principal: str) -> bool:
        """Count one more; False when there is no room for it."""
        if not self.has_room(principal):
            return False
        self._by_principal[principal] += 1
        self.opened += 1
        return True

    def leave(self, principal: str) -> None:
        """One is ended."""
        self._by_principal[principal] -= 1
        if not self._by_principal[principal]:
            del self._by_principal[principal]


@lru_cache(MOST_REMEMBERED)
def authenticated_user(principal: str) -> AuthenticatedUser:
    """How the SDK knows a principal: it binds sessions to it."""
    return AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))


class SessionManager(StreamableHTTPSessionManager):
    """The SDK's manager, with a share for each principal and an event store for each session."""

    def __init__(
        self,
        server: Server[Any],
        stores: Stores,
        session_limiter: SessionLimiter,
        *,
        role: str,
    ) -> None:
        limits = session_limiter.limits
        super().__init__(
            server,
            retry_interval=RETRY_MILLISECONDS,
            session_idle_timeout=limits.idle_seconds or None,
            max_request_body_size=limits.body_bytes,
            max_sessions=None,  # counted over all roles, by `session_limiter`
        )
        self.sessions: dict[str, OpenSession] = {}
        self.is_closing = False
        """The server ends: what its sessions missed is left to the other replicas."""
        self.session_ended: Callable[[str], None] = _ignore
        """Told the id of a session that is over, before the server is. Is quick, and raises nothing."""
        self._stores = stores
        self._session_limiter = session_limiter
        self._role = role

    def has_room(self, principal: str) -> bool:
        """Whether this principal gets one more, be it in place of one of his."""
        return self._session_limiter.has_room(principal) or self._longest_idle(principal) is not None

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        principal = LOCAL if requestor is None else requestor["client_id"]
        if not self._session_limiter.has_room(principal):
            self._evict(self._longest_idle(principal))
        if not self._session_limiter.enter(principal):
            return None  # taken since the endpoint looked
        events = SessionEventStore(self._stores)
        session = uuid4().hex
        transport = SessionTransport(
            mcp_session_id=session,
            event_store=events,
            security_settings=self.security_settings,
            retry_interval=self.retry_interval,
            idle_timeout=self._session_limiter.limits.idle_seconds or None,
        )
        if requestor is not None:
            self._session_owners[session] = requestor
        self._server_instances[session] = transport
        events.open(session)
        self.sessions[session] = OpenSession(session, principal, events)
        self._session_limiter.watcher.session_opened(self._role)
        return transport

    async def close(self) -> None:
        """End every session, since the server does.

        Each first: the SDK waits for five seconds to tell a client that its call is cancelled, or its question, through
        a stream that nothing reads any more.
        """
        self.is_closing = True
        for transport in tuple(self._server_instances.values()):
            await transport.terminate()

    def note_revision(self, session_id: str, revision: str) -> None:
        """A session was opened with this one proposed."""
        session = self.sessions.get(session_id)
        if session is not None:
            session.revision = revision

    async def end(self, session_id: str) -> None:
        """End a session now, if there is such a one."""
        transport = self._server_instances.get(session_id)
        if transport is not None:
            await self._discard_session(session_id, transport)

    def _longest_idle(self, principal: str) -> OpenSession | None:
        """The session of a principal that was used longest ago, and has no request or stream under way."""
        idle = (one for one in self.sessions.values() if one.principal == principal and not one.under_way)
        return min(idle, key=lambda one: one.used, default=None)

    def _evict(self, session: OpenSession | None) -> None:
        """Give the place of a session to another one at once; what it held is given back behind it."""
        if session is None or self._task_group is None:
            return
        transport = self._server_instances[session.id]
        self._give_back(session, "evicted")
        self._task_group.start_soon(self._over, session, transport)

    def _give_back(self, session: OpenSession, reason: str) -> None:
        del self.sessions[session.id]
        self._session_limiter.leave(session.principal)
        self._session_limiter.watcher.session_ended(self._role, reason)

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        session = self.sessions.get(session_id)
        if session is None:
            await super()._discard_session(session_id, transport)
            return
        self._give_back(session, "closed" if self.is_closing else _reason(transport))
        await self._over(session, transport)

    async def _over(self, session: OpenSession, transport: StreamableHTTPServerTransport) -> None:
        """End a session that has no place any more."""
        await super()._discard_session(session.id, transport)
        if not self.is_closing:
            self.session_ended(session.id)
            await self._forget(session)

    async def _forget(self, session: OpenSession) -> None:
        try:
            await session.events.log.clear()
            await self._stores.sessions.release(session.id)
        except Unreachable:
            logger.warning("the end of a session is not told to the other replicas: the store can't be reached")


def _ignore(_: str) -> None:
    pass


def _reason(transport: StreamableHTTPServerTransport) -> str:
    if transport.is_terminated:
        return "deleted"
    return "idle" if transport.idle_scope is not None and transport.idle_scope.cancel_called else "closed"
