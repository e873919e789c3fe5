"""The MCP endpoint of one role: both protocol eras on one path, for authenticated principals.

A session that is unknown here may belong to another replica. Once that replica is gone, its client can read missed
events here; the session itself is not taken over, and the client must initialize a new one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coretools.errors import Conflict, Unreachable
from coretools.protocol.call_adapter import SESSION_KEY
from coretools.protocol.draining import Draining
from coretools.web.common.error_response import error_response
from coretools.web.common.events import ResponseState
from coretools.web.common.headers import HANDSHAKE_REVISIONS, LAST_EVENT_HEADER, REVISION_HEADER, SESSION_HEADER
from coretools.web.common.principals import principal_name
from coretools.web.replicas.stores import UNREACHABLE, MissedEvents, Stores
from coretools.web.sessions.batches import header_mismatch, no_stream_here
from coretools.web.sessions.response_format import (
    ResponseFormatMiddleware,
    without_cancelled,
    without_cancelled_response,
)
from coretools.web.sessions.session_limiter import NoRoom, SessionLimiter
from coretools.web.sessions.session_manager import OpenSession, SessionManager, authenticated_user
from coretools.web.sessions.session_transport import JSON_RESPONSE_KEY, MESSAGE_KEY, UsesJsonResponse

LONGEST_ID = 128
"""Largest session id or event id accepted, in bytes; ours have 32 and fewer than 40."""

POLL_SECONDS = 0.5
"""Interval of checks whether the replica of a session is gone, for a client that asks for missed events."""

RETRY_SECONDS = "5"

WATCH_SECONDS = 0.1
"""Delay before a client that is to get JSON is watched for a disconnect."""


class Endpoint:
    """Serves one role over HTTP. Its lifespan is `running`."""

    def __init__(
        self,
        server: Server[Any],
        *,
        role: str,
        stores: Stores,
        session_limiter: SessionLimiter,
        draining: Draining | None = None,
        uses_json_response: UsesJsonResponse | None = None,
    ) -> None:
        """`uses_json_response` selects the requests that need no stream; None: every request may need one."""
        self.manager = SessionManager(server, stores, session_limiter, role=role)
        self._uses_json_response = uses_json_response
        # The SDK has one setting for all responses of a manager; the stateless era needs no state from the other one.
        self._json_manager: StreamableHTTPSessionManager | None = None
        if uses_json_response is not None:
            most = session_limiter.limits.body_bytes
            self._json_manager = StreamableHTTPSessionManager(
                server, json_response=True, stateless=True, max_request_body_size=most
            )
        self._draining = draining or Draining()
        self._role = role
        self._stores = stores
        self._session_limiter = session_limiter
        self._handshake: ASGIApp = ResponseFormatMiddleware(self.manager.handle_request)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve until the end of the block; then close every session."""
        async with AsyncExitStack() as stack:
            for manager in (self._json_manager, self.manager):
                if manager is not None:
                    await stack.enter_async_context(manager.run())
            try:
                yield
            finally:
                await self.manager.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of a principal of this role."""
        scope = {**scope, "user": authenticated_user(principal_name(scope))}
        headers = dict(scope["headers"])
        revision = headers.get(REVISION_HEADER)
        if revision is not None and revision not in HANDSHAKE_REVISIONS:
            await self._stateless(scope, receive, send)
            return
        mismatch = header_mismatch(scope, revision)
        if mismatch is not None:
            await mismatch(scope, receive, send)
            return
        session = headers.get(SESSION_HEADER)
        if session is None:
            await self._open(scope, receive, send)
            return
        known = self.manager.sessions.get(session.decode("latin-1"))
        # The same answer for both: whoever guesses an id does not learn that another principal has it.
        if known is None or known.principal != principal_name(scope):
            await self._elsewhere(session, headers.get(LAST_EVENT_HEADER), scope, receive, send)
            return
        if not self._stores.sessions.holds(known.id):
            # Other replicas considered this one gone and may have told the client to initialize a new session.
            await self._elsewhere(session, headers.get(LAST_EVENT_HEADER), scope, receive, send)
            await self.manager.end(known.id)
            return
        scope[SESSION_KEY] = known.id
        known.begin()
        try:
            await self._within(known, headers.get(LAST_EVENT_HEADER), scope, receive, send)
        finally:
            self.manager.end_request(known)

    async def _within(
        self, known: OpenSession, last_event: bytes | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve one request of a session."""
        if scope["method"] == "GET":
            await self._listen(known, last_event, scope, receive, send)
        elif self._is_json_request(scope):
            scope[JSON_RESPONSE_KEY] = True
            await self.manager.handle_request(scope, receive, without_cancelled_response(send))
        else:
            await self._handshake(scope, receive, send)

    def revision_of(self, scope: Scope) -> str:
        """Return the revision that the session of a request negotiated; empty if its principal has no such session."""
        session = dict(scope["headers"]).get(SESSION_HEADER, b"")
        known = self.manager.sessions.get(session.decode("latin-1"))
        return known.revision if known is not None and known.principal == principal_name(scope) else ""

    def _is_json_request(self, scope: Scope) -> bool:
        message = scope.get(MESSAGE_KEY)
        return message is not None and self._uses_json_response is not None and self._uses_json_response(message)

    async def _stateless(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of the stateless era; a client that disconnects cancels it."""
        if scope["method"] != "POST":
            await no_stream_here()(scope, receive, send)
            return
        if self._json_manager is None or not self._is_json_request(scope):
            await self.manager.handle_request(scope, receive, send)
            return
        # The SDK watches for disconnects only where it may stream (mcp 2.3.0).
        with anyio.CancelScope() as answering:
            watch = _DisconnectWatcher(receive, answering)
            try:
                await self._json_manager.handle_request(scope, watch.receive, send)
            finally:
                watch.stop()

    async def _listen(
        self, session: OpenSession, last_event: bytes | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve the stream of a session, or the missed events of another stream."""
        missed = None
        if last_event is not None and len(last_event) <= LONGEST_ID:
            with suppress(Unreachable):  # the SDK finds it too
                missed = await session.events.log.after(last_event.decode("latin-1"))
        if missed is not None and missed.is_cancelled:
            await _cancelled()(scope, receive, send)
        else:
            await self._stream(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a stream until the client or the server ends it."""

        async def sending(message: Message) -> None:
            await send(without_cancelled(message))

        response = ResponseState(sending)
        with anyio.CancelScope() as streaming:
            stop = self._draining.add_listener(streaming.cancel)
            try:
                await self._handshake(scope, receive, response.send)
            finally:
                stop()
        # The end of the body; without it the client would see a broken connection.
        if streaming.cancelled_caught and response.is_begun and not response.is_over:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request without a session: only `initialize` can succeed."""
        message = scope.get(MESSAGE_KEY, {})
        if message.get("method") != "initialize":
            reason = "send the id of a session (Mcp-Session-Id); initialize opens one"
            await error_response(400, reason, kind="no-session")(scope, receive, send)
            return
        revision = str((message.get("params") or {}).get("protocolVersion", ""))
        opening = _SessionOpening(self, principal_name(scope), send, revision)
        try:
            await self._handshake(scope, receive, opening.send)
        except NoRoom:
            await self._no_room()(scope, receive, send)
            return
        finally:
            opening.end()
        if opening.has_failed:
            await _unreachable()(scope, receive, send)

    def _no_room(self) -> Response:
        limits = self._session_limiter.limits
        if self._session_limiter.is_full:
            return _refused(503, f"{limits.sessions} sessions are open, which is the limit; try again later")
        reason = (
            f"you have {limits.session_share} sessions in use, which is your share; end one (DELETE) or try again later"
        )
        return _refused(429, reason)

    async def claim(self, session: str, principal: str) -> None:
        """Register a new session with the other replicas.

        Raises:
            Unreachable: the shared store can't be reached.
        """
        await self._stores.sessions.claim(session, principal=principal, role=self._role)

    async def _elsewhere(
        self, session: bytes, last_event: bytes | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer for an unknown session: the missed events if its replica is gone, otherwise 404."""
        try:
            missed = await self._missed(session, last_event, scope)
        except Unreachable:
            await _unreachable()(scope, receive, send)
            return
        if missed is None or not missed.events:
            reason = "no such session: it is ended, or another server has it; initialize a new one"
            await error_response(404, reason, kind="unknown-session")(scope, receive, send)
            return
        if missed.is_cancelled:
            await _cancelled()(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        for event in missed.events:
            data = event.message.model_dump_json(by_alias=True, exclude_none=True)
            frame = f"id: {event.event_id}\r\nevent: message\r\ndata: {data}\r\n\r\n"
            await send({"type": "http.response.body", "body": frame.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _missed(self, session: bytes, last_event: bytes | None, scope: Scope) -> MissedEvents | None:
        if scope["method"] != "GET" or last_event is None or max(len(session), len(last_event)) > LONGEST_ID:
            return None
        session_id = session.decode("latin-1")
        owner = await self._stores.sessions.owner(session_id)
        while owner is not None:
            if (owner.principal, owner.role) != (principal_name(scope), self._role):
                return None
            if not owner.is_alive:
                break
            # A killed replica seems alive until its lease expires; a live one renews it meanwhile.
            await anyio.sleep(min(POLL_SECONDS, owner.alive_seconds))
            again = await self._stores.sessions.owner(session_id)
            if again is not None and again.alive_seconds >= owner.alive_seconds:
                return None
            owner = again
        if owner is None:
            return None
        return await self._stores.events(session_id).after(last_event.decode("latin-1"))


class _DisconnectWatcher:
    """Cancels a call when its client disconnects. It starts late: most calls end before and need no task for it."""

    def __init__(self, receive: Receive, answering: anyio.CancelScope) -> None:
        self._receive = receive
        self._answering = answering
        self._polling: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._begin)

    async def receive(self) -> Message:
        """Receive the body for the application, which asks for nothing else."""
        return await self._receive()

    def stop(self) -> None:
        """Stop watching; the call is over."""
        self._timer.cancel()
        if self._polling is not None:
            self._polling.cancel()

    def _begin(self) -> None:
        self._polling = asyncio.get_running_loop().create_task(self._poll())

    async def _poll(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._answering.cancel()


class _SessionOpening:
    """The response to `initialize`: the client gets the session id only after the replicas know it."""

    def __init__(self, endpoint: Endpoint, principal: str, send: Send, revision: str) -> None:
        """`revision` is the one that the client proposed: if it is supported, it is the negotiated one."""
        self._revision = revision
        self._endpoint = endpoint
        self._principal = principal
        self._send = send
        self._session = ""
        self.has_failed = False

    async def send(self, message: Message) -> None:
        """Send one message of the application; an error response carries no session id."""
        if message["type"] == "http.response.start":
            opened = dict(message.get("headers", ())).get(SESSION_HEADER)
            if opened is not None and message["status"] < 400:
                self._session = opened.decode("ascii")
                await self._claim(self._session)
            elif opened is not None:
                kept = [(name, value) for name, value in message["headers"] if name != SESSION_HEADER]
                message = {**message, "headers": kept}
        if not self.has_failed:
            await self._send(message)

    def end(self) -> None:
        """Note that the request is over; the session is idle until the next one."""
        opened = self._endpoint.manager.sessions.get(self._session)
        if opened is not None:
            opened.end()

    async def _claim(self, session: str) -> None:
        try:
            await self._endpoint.claim(session, self._principal)
            self._endpoint.manager.note_revision(session, self._revision)
        except (Conflict, Unreachable):
            self.has_failed = True
            await self._endpoint.manager.end(session)


def _refused(status: int, reason: str) -> Response:
    return error_response(status, reason, kind="too-many-sessions", headers={"Retry-After": RETRY_SECONDS})


def _cancelled() -> Response:
    """Return 405: clients end the stream; after anything else they retry (2025-11-25, basic/transports)."""
    reason = (
        "the request of this stream was cancelled, by its client or because the session had no connection for"
        " limits.resume_seconds; there are no more events"
    )
    return error_response(405, reason, kind="cancelled", headers={"Allow": "POST, DELETE"})


def _unreachable() -> Response:
    return error_response(503, UNREACHABLE, kind="unreachable", headers={"Retry-After": RETRY_SECONDS})


_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
