"""What replicas of one server share. Everything is in the memory of the process unless an engine is configured.

Two implementations with the same tests: `memory_stores` and `redis_stores`.
Every operation of an engine that can't be reached raises `Unreachable`: a request then fails as a whole (503), because
an answer without its store could be a wrong one.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from mcp.server.streamable_http import REQUEST_CANCELLED, EventMessage
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import JSONRPCError, JSONRPCMessage

from coretools.protocol.round_trip_questions import UsedStates


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedEvents:
    """What came on one stream after an event."""

    stream: str
    events: Sequence[EventMessage]
    is_all: bool
    """Whether the request of that stream is answered, so that no more comes."""

    @property
    def is_cancelled(self) -> bool:
        """Whether that request was cancelled, so that it has no answer to send."""
        last = self.events[-1].message if self.events else None
        return isinstance(last, JSONRPCError) and last.error.code == REQUEST_CANCELLED


class EventLog(Protocol):
    """The last events of one session, all its streams together: bounded, the oldest go first."""

    async def add(self, stream: str, message: JSONRPCMessage | None) -> str:
        """Keep an event, and get its id. No message marks the beginning of a stream."""
        ...

    async def after(self, event_id: str) -> MissedEvents | None:
        """What came after an event on its stream. None when the event is not kept, or not of this session."""
        ...

    @property
    def news(self) -> asyncio.Event:
        """Set with the next event that this replica adds; another one takes its place then. Take it before `after`."""
        ...

    async def clear(self) -> None:
        """Forget everything; ids that were given out are of no event from now on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Whose a session is, and which replica serves it."""

    principal: str
    role: str
    replica: str
    is_alive: bool = True
    """Whether that replica still says that it is."""
    alive_seconds: float = 0.0
    """For how long it counts as alive if it does not say so again; one that was killed is gone after that."""


class SessionIndex(Protocol):
    """Which replica has which session."""

    async def claim(self, session: str, *, principal: str, role: str) -> None:
        """Say that this replica serves it from now on; said again by the store until it is released.

        Raises:
            Conflict: it is another replica's.
        """
        ...

    def holds(self, session: str) -> bool:
        """Whether this replica may serve it: it claimed it, and no other one could take it for gone since.

        Asked before each request of a session. One that is not held is ended here, whatever is left of it.
        """
        ...

    async def owner(self, session: str) -> Ownership | None:
        """Whose it is; None when nobody knows it."""
        ...

    async def release(self, session: str) -> None:
        """It is ended; its events are forgotten too."""
        ...


class RateLimiter(Protocol):
    """How often somebody came, over all replicas."""

    async def take(self, key: str, *, per_second: float, burst: int) -> float:
        """Count one request. 0.0 when it is within the limit, otherwise the seconds until one would be."""
        ...


class Stores(Protocol):
    """Everything that replicas share. Opened once, by the server."""

    @property
    def replica(self) -> str:
        """Name of this replica, different from that of every other one that is alive."""
        ...

    @property
    def sessions(self) -> SessionIndex:
        """Which replica has which session."""
        ...

    @property
    def rates(self) -> RateLimiter:
        """How often somebody came."""
        ...

    @property
    def used_states(self) -> UsedStates:
        """Which confirmations were used."""
        ...

    @property
    def sealing_keys(self) -> Sequence[bytes]:
        """What request states are sealed with, 32 bytes each; the first seals, all open."""
        ...

    def is_alive(self, replica: str) -> bool:
        """Whether a replica of that name said a moment ago that it is."""
        ...

    def events(self, session: str) -> EventLog:
        """The events of one session."""
        ...

    def bus(self, role: str) -> SubscriptionBus:
        """Tells the listeners of one role, on every replica, what changed."""
        ...

    async def check(self) -> None:
        """Whether the stores can be used now.

        Raises:
            Unreachable: they can't.
        """
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Use them until the end of the block.

        Raises:
            BadSetting: the engine does not answer, or is no such engine.
        """
        ...
