"""The events of one session, for clients that resume a stream.

The SDK's `EventStore` gets no session with an event, and names streams by the clients' request ids: one store for all
would deliver one session's responses to another. So each transport gets its own store.
"""

import secrets

from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventStore
from mcp_types import JSONRPCMessage

from coretools.errors import Unreachable
from coretools.web.replicas.stores import EventLog, Stores


class SessionEventStore(EventStore):
    """The SDK's event store for one session. Its log is opened once the session has an id."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._log: EventLog | None = None
        self._has_hole = False

    def open(self, session: str) -> None:
        """Open the log of the session."""
        self._log = self._stores.events(session)

    @property
    def log(self) -> EventLog:
        """The event log."""
        if self._log is None:
            raise RuntimeError("the session has no id yet")
        return self._log

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event. If that fails, it is still sent, with an id that no event has.

        Earlier events are then forgotten rather than replayed with a gap. An exception would end the SDK's message
        router, and with it every response of the session.
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
        """Send the events after one of the same stream, and new ones until the request is answered.

        The SDK sends new events itself, but only from a moment after this returns: a response in between is stored
        and not sent, and its client waits forever. Only the stream without a request is left to the SDK.
        """
        last = last_event_id
        while True:
            # Before the query: an event that is stored while it runs sets this one, and none is missed.
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
