"""What replicas of one server share. Everything is in the memory of the process unless an engine is configured.

Two implementations with the same tests: `coretools.serving.web.memory_stores` and `coretools.serving.web.redis_stores`.
Every operation of an engine that can't be reached raises `Unreachable`: a request then fails as a whole (503), because
an answer without its store could be a wrong one.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from mcp.server.streamable_http import EventMessage
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import JSONRPCMessage

from coretools.serving.rounds import UsedStates


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """What came on one stream after an event."""

    stream: str
    events: Sequence[EventMessage]
    is_all: bool
    """Whether the request of that stream is answered, so that no more comes."""


class EventLog(Protocol):
    """The last events of one session, all its streams together: bounded, the oldest go first."""

    async def add(self, stream: str, message: JSONRPCMessage | None) -> str:
        """Keep an event, and get its id. No message marks the beginning of a stream."""
        ...

    async def after(self, event_id: str) -> Missed | None:
        """What came after an event on its stream. None when the event is not kept, or not of this session."""
        ...

    async def changed(self) -> None:
        """Wait for the next event. Waiting begins when this is called: the coroutine must be made before `after`."""
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


class SessionIndex(Protocol):
    """Which replica has which session."""

    async def claim(self, session: str, *, principal: str, role: str) -> None:
        """Say that this replica serves it from now on; said again by the store until it is released."""
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
