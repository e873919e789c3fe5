"""The SDK's event store of one session, over a log of ours.

The SDK's `EventStore` does not say of which session an event is, and names streams by the clients' own request ids: one
store for all would hand one session's answers to another. So each transport is given a store of its own.
"""

import secrets

from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventStore
from mcp_types import JSONRPCMessage

from coretools.errors import Unreachable
from coretools.serving.web.shared.stores import EventLog, Stores


class SessionEvents(EventStore):
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
