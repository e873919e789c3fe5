"""What a client of Streamable HTTP missed while it was away, for the one session it belongs to (Last-Event-ID).

The SDK's `EventStore` does not say of which session an event is, and names streams by the clients' own request ids: one
store for all would hand one session's answers to another. So each session has a store of its own. Its tasks are started
in the context of the request that opened it, and a context variable there leads to its store; later requests find it
by their session's id, which the SDK checks against its principal before it replays anything. A store is emptied when
its session is ended by DELETE, and gone with the last task of one that ends in another way.
"""

import asyncio
import secrets
from collections import deque
from contextvars import ContextVar
from weakref import WeakValueDictionary

from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    MCP_SESSION_ID_HEADER,
    EventCallback,
    EventMessage,
    EventStore,
)
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_EVENTS = 1_024
MOST_BYTES = 4 * 1024 * 1024
"""Kept for one session; the oldest go first."""

RETRY_MILLISECONDS = 500
"""When a client that was sent away should come back."""

_SESSION = MCP_SESSION_ID_HEADER.encode("ascii")


class SessionEvents:
    """The last events of one session, all its streams together."""

    def __init__(self, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._kept: deque[tuple[str, JSONRPCMessage | None, int]] = deque()
        self._first = 0
        self._bytes = 0
        # Another session's ids are never ours, even where both count from 0.
        self._prefix = secrets.token_hex(8)
        self.news = asyncio.Event()
        """Set with the next event, and replaced then."""

    def add(self, stream: str, message: JSONRPCMessage | None) -> str:
        """Keep an event, and get its id. No message marks the beginning of a stream."""
        size = 0 if message is None else len(message.model_dump_json(by_alias=True, exclude_none=True))
        self._kept.append((stream, message, size))
        self._bytes += size
        number = self._first + len(self._kept) - 1
        while len(self._kept) > self._most_events or self._bytes > self._most_bytes:
            self._bytes -= self._kept.popleft()[2]
            self._first += 1
        self._tell()
        return f"{self._prefix}-{number}"

    def after(self, event_id: str) -> tuple[str, list[EventMessage], bool] | None:
        """The stream of an event, what came on it since, and whether that is all there will be.

        None when the event is not kept, or not of this session.
        """
        prefix, _, text = event_id.rpartition("-")
        if prefix != self._prefix or not text.isdecimal() or len(text) > len(str(self._first + len(self._kept))):
            return None
        position = int(text) - self._first
        if not 0 <= position < len(self._kept):
            return None
        stream = self._kept[position][0]
        found = [
            EventMessage(message, f"{prefix}-{int(text) + offset}")
            for offset, (other, message, _) in enumerate(list(self._kept)[position:])
            if other == stream and message is not None
        ]
        is_all = any(isinstance(event.message, JSONRPCResponse | JSONRPCError) for event in found)
        return stream, [event for event in found if event.event_id != event_id], is_all

    def clear(self) -> None:
        """Forget everything; ids that were given out are of no event from now on."""
        self._first += len(self._kept)
        self._kept.clear()
        self._bytes = 0
        self._tell()

    def _tell(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


_current: ContextVar[SessionEvents] = ContextVar("events of the session")


class EventsBySession(EventStore):
    """The SDK's side: what it stores and replays goes to the session in whose context it does so."""

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event."""
        return _current.get().add(stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what came after an event of the same session and stream, and what comes until the request is answered.

        The SDK would send what comes by itself, but only from a moment after this returns: an answer in between is
        stored and not sent, and its client waits for ever. Only the stream without a request is left to it.
        """
        events, last = _current.get(), last_event_id
        while True:
            news = events.news
            found = events.after(last)
            if found is None:
                return None
            stream, missed, is_all = found
            for event in missed:
                await send_callback(event)
                last = event.event_id or last
            if stream == GET_STREAM_KEY:
                return stream
            if is_all:
                return None
            await news.wait()


class Resumable:
    """The SDK's app, given an `EventsBySession`, with the store of each request's session at hand."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._sessions: WeakValueDictionary[bytes, SessionEvents] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; the answer that opens a session says its id, and one to DELETE whether it is ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        session = dict(scope["headers"]).get(_SESSION)
        events = (None if session is None else self._sessions.get(session)) or SessionEvents()

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened = dict(message.get("headers", ())).get(_SESSION)
                if session is None and opened is not None:
                    self._sessions[opened] = events
                elif session is not None and scope["method"] == "DELETE" and message["status"] < 300:
                    self._sessions.pop(session, None)
                    events.clear()
            await send(message)

        before = _current.set(events)
        try:
            await self._app(scope, receive, noting)
        finally:
            _current.reset(before)
