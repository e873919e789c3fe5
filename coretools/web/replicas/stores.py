"""Interfaces of the state that replicas share: in memory, or in Redis if it is configured.

The implementations `memory_stores` and `redis_stores` pass the same tests. If Redis can't be reached, every operation
raises `Unreachable` and the request fails as a whole (503): an answer without its store could be wrong.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from mcp.server.streamable_http import REQUEST_CANCELLED, EventMessage
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse

from coretools.protocol.round_trip_questions import UsedStates

UNREACHABLE = "the store that the replicas share can't be reached now; try again later"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedEvents:
    """The events of one stream after a given event."""

    stream: str
    events: Sequence[EventMessage]
    is_all: bool
    """Whether the request of that stream is answered, so no more events follow."""

    @classmethod
    def following(cls, event_id: str, stream: str, stored: Sequence[EventMessage]) -> "MissedEvents":
        """The events after one, of those stored since and including it."""
        is_all = any(isinstance(event.message, JSONRPCResponse | JSONRPCError) for event in stored)
        return cls(stream=stream, events=[event for event in stored if event.event_id != event_id], is_all=is_all)

    @property
    def is_cancelled(self) -> bool:
        """Whether that request was cancelled, so it has no answer."""
        last = self.events[-1].message if self.events else None
        return isinstance(last, JSONRPCError) and last.error.code == REQUEST_CANCELLED


class EventLog(Protocol):
    """The last events of one session, of all its streams; bounded, the oldest are dropped first."""

    async def add(self, stream: str, message: JSONRPCMessage | None) -> str:
        """Store an event and return its id. An event without a message marks the beginning of a stream."""
        ...

    async def after(self, event_id: str) -> MissedEvents | None:
        """Return the events after one on its stream; None if that one is not stored, or of another session."""
        ...

    @property
    def news(self) -> asyncio.Event:
        """Set when this replica adds an event, and then replaced. Read it before calling `after`."""
        ...

    async def clear(self) -> None:
        """Forget all events; their ids become invalid."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The owner of a session and its replica."""

    principal: str
    role: str
    replica: str
    is_alive: bool = True
    """Whether that replica has a lease."""
    alive_seconds: float = 0.0
    """Seconds until its lease expires; a killed replica is gone after that."""


class SessionIndex(Protocol):
    """Knows which replica has which session."""

    async def claim(self, session: str, *, principal: str, role: str) -> None:
        """Claim a session for this replica; the store renews the claim until `release`.

        Raises:
            Conflict: another replica has it.
        """
        ...

    def holds(self, session: str) -> bool:
        """Whether this replica may serve a session: it claimed it and never lost its lease since.

        Checked before each request of a session; a session without a valid claim is ended here.
        """
        ...

    async def owner(self, session: str) -> Ownership | None:
        """Return the owner of a session; None if it is unknown."""
        ...

    async def release(self, session: str) -> None:
        """Forget an ended session and its events."""
        ...


class RateLimiter(Protocol):
    """Limits rates over all replicas."""

    async def take(self, key: str, *, per_second: float, burst: int) -> float:
        """Charge one request; return 0.0 if it is within the limit, otherwise the seconds to wait."""
        ...


class Stores(Protocol):
    """All shared state. The server opens it once."""

    @property
    def replica(self) -> str:
        """Name of this replica, unique among the live ones."""
        ...

    @property
    def sessions(self) -> SessionIndex:
        """Knows which replica has which session."""
        ...

    @property
    def rates(self) -> RateLimiter:
        """Rate limits of principals."""
        ...

    @property
    def used_states(self) -> UsedStates:
        """Used confirmations."""
        ...

    @property
    def sealing_keys(self) -> Sequence[bytes]:
        """Keys that seal request states, 32 bytes each; the first one seals, all can open."""
        ...

    @property
    def has_lease(self) -> bool:
        """Whether this replica could renew its lease in time; always true without replicas."""
        ...

    def is_alive(self, replica: str) -> bool:
        """Whether a replica of that name has a lease."""
        ...

    def events(self, session: str) -> EventLog:
        """Return the event log of one session."""
        ...

    def bus(self, role: str) -> SubscriptionBus:
        """Return the bus that notifies the listeners of one role on every replica."""
        ...

    async def check(self) -> None:
        """Check that the stores can be used now.

        Raises:
            Unreachable: they can't.
        """
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Open the stores; close them at the end of the block.

        Raises:
            BadSetting: Redis does not answer, or is no usable Redis.
        """
        ...
