"""Sessions of the handshake era: limited for each principal, with separate event stores, known to the other replicas.

The SDK's manager has one limit for all principals and one event store for all sessions. `SessionManager` overrides two
of its methods (docs/adr/0019); a test fails when it has them no more.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import uuid4

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from coretools.errors import Unreachable
from coretools.operations.call import LOCAL
from coretools.web.replicas.stores import Stores
from coretools.web.sessions.event_store import SessionEventStore
from coretools.web.sessions.session_limiter import NoRoom, SessionLimiter
from coretools.web.sessions.session_transport import SessionTransport

RETRY_MILLISECONDS = 500
"""Reconnection delay sent to clients."""

MOST_REMEMBERED = 1_024
"""Cached users of the SDK: creating one takes 50 microseconds."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class OpenSession:
    """One open session and its usage."""

    id: str
    principal: str
    events: SessionEventStore
    revision: str = ""
    """The revision that the client proposed, which is the negotiated one if it is supported."""
    opened: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)
    """Time of the last request or response."""
    under_way: int = 1
    """Active requests and streams, at first the one that opens the session."""
    abandoned: asyncio.TimerHandle | None = None
    """Cancels the calls of a client that lost its last connection, unless it comes back."""

    @property
    def age_seconds(self) -> float:
        """Seconds since it was opened."""
        return time.monotonic() - self.opened

    @property
    def idle_seconds(self) -> float:
        """Seconds since its last request."""
        return time.monotonic() - self.used

    def begin(self) -> None:
        """Note the start of a request."""
        self.under_way += 1
        self.used = time.monotonic()
        self.keep_calls()

    def end(self) -> None:
        """Note the end of a request."""
        self.under_way -= 1
        self.used = time.monotonic()

    def keep_calls(self) -> None:
        """Let the calls under way run on."""
        if self.abandoned is not None:
            self.abandoned.cancel()
            self.abandoned = None


@lru_cache(MOST_REMEMBERED)
def authenticated_user(principal: str) -> AuthenticatedUser:
    """Return the principal as the SDK's user, to which it binds sessions."""
    return AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))


class SessionManager(StreamableHTTPSessionManager):
    """The SDK's session manager, with a limit for each principal and an event store for each session."""

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
            session_idle_timeout=limits.session_idle_seconds or None,
            max_request_body_size=limits.body_bytes,
            max_sessions=None,  # `session_limiter` counts over all roles
        )
        self.sessions: dict[str, OpenSession] = {}
        self.is_closing = False
        """The server is ending: stored events are left for the other replicas."""
        self.session_ended: Callable[[str], object] = lambda _: None
        """Called with the id of a session that ended before the server. Must be fast and must not raise."""
        self._stores = stores
        self._session_limiter = session_limiter
        self._role = role

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport:
        """Register a new session, possibly in place of an idle one. The SDK calls this under a lock.

        Raises:
            NoRoom: the SDK would answer None with a 503 of its own.
        """
        principal = LOCAL if requestor is None else requestor["client_id"]
        if not self._session_limiter.has_room(principal):
            self._evict_idle(principal)
        if not self._session_limiter.enter(principal):
            raise NoRoom
        events = SessionEventStore(self._stores)
        session = uuid4().hex
        transport = SessionTransport(
            mcp_session_id=session,
            event_store=events,
            security_settings=self.security_settings,
            retry_interval=self.retry_interval,
            idle_timeout=self._session_limiter.limits.session_idle_seconds or None,
        )
        if requestor is not None:
            self._session_owners[session] = requestor
        self._server_instances[session] = transport
        events.open(session)
        self.sessions[session] = OpenSession(session, principal, events)
        self._session_limiter.watcher.session_opened(self._role)
        return transport

    async def close(self) -> None:
        """Terminate every session, because the server ends.

        Before the task group is cancelled: otherwise the SDK waits five seconds to report cancelled calls and questions
        through streams that nobody reads.
        """
        self.is_closing = True
        # A copy: an ended session removes itself while the next one is awaited.
        for transport in tuple(self._server_instances.values()):
            await transport.terminate()

    def note_revision(self, session_id: str, revision: str) -> None:
        """Record the revision that a new session's client proposed."""
        session = self.sessions.get(session_id)
        if session is not None:
            session.revision = revision

    def end_request(self, session: OpenSession) -> None:
        """Note the end of a request. Calls of a session without a connection are cancelled after a while (http-4)."""
        session.end()
        transport = self._server_instances.get(session.id)
        if session.under_way or not isinstance(transport, SessionTransport) or not transport.has_open_requests:
            return
        seconds = self._session_limiter.limits.resume_seconds
        session.abandoned = asyncio.get_running_loop().call_later(seconds, self._abandon, session, transport, seconds)

    def _abandon(self, session: OpenSession, transport: SessionTransport, seconds: float) -> None:
        if self._task_group is not None and transport.has_open_requests:
            logger.info(
                "a session of %s had no connection for %g s: its calls are cancelled", session.principal, seconds
            )
            self._task_group.start_soon(transport.cancel_requests)

    async def end(self, session_id: str) -> None:
        """End a session now, if it exists."""
        transport = self._server_instances.get(session_id)
        if transport is not None:
            await self._discard_session(session_id, transport)

    def _evict_idle(self, principal: str) -> None:
        """End the principal's least recently used session without an active request or stream, if there is one.

        Its place is free at once; its resources are freed in the background.
        """
        idle = (one for one in self.sessions.values() if one.principal == principal and not one.under_way)
        session = min(idle, key=lambda one: one.used, default=None)
        if session is None or self._task_group is None:
            return
        transport = self._server_instances[session.id]
        self._free_place(session, "evicted")
        self._task_group.start_soon(self._over, session, transport)

    def _free_place(self, session: OpenSession, reason: str) -> None:
        del self.sessions[session.id]
        session.keep_calls()  # they end with the session
        self._session_limiter.leave(session.principal)
        self._session_limiter.watcher.session_ended(self._role, reason)

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        session = self.sessions.get(session_id)
        if session is None:
            await super()._discard_session(session_id, transport)
            return
        self._free_place(session, "closed" if self.is_closing else _reason(transport))
        await self._over(session, transport)

    async def _over(self, session: OpenSession, transport: StreamableHTTPServerTransport) -> None:
        """End a session whose place is free already."""
        await super()._discard_session(session.id, transport)
        if not self.is_closing:
            self.session_ended(session.id)
            await self._forget(session)

    async def _forget(self, session: OpenSession) -> None:
        try:
            await session.events.log.clear()
            await self._stores.sessions.release(session.id)
        except Unreachable:
            logger.warning("the end of a session could not be recorded: the shared store can't be reached")


def _reason(transport: StreamableHTTPServerTransport) -> str:
    if transport.is_terminated:
        return "deleted"
    return "idle" if transport.idle_scope is not None and transport.idle_scope.cancel_called else "closed"
