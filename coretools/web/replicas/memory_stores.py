"""The stores of a server without replicas, in the memory of the process."""

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from mcp.server.streamable_http import EventMessage
from mcp.server.subscriptions import InMemorySubscriptionBus, SubscriptionBus
from mcp_types import JSONRPCMessage

from coretools.protocol.round_trip_questions import InMemoryUsedStates
from coretools.web.replicas.stores import MissedEvents, Ownership

# Rate limits use the generic cell rate algorithm (ITU-T I.371, annex A).


MOST_KEYS = 10_000
"""Keys remembered; beyond it the least recently used one is forgotten and starts anew."""


class MemoryRateLimiter:
    """Keeps one time for each key: when all requests allowed so far are paid back at the rate."""

    def __init__(self, *, most_keys: int = MOST_KEYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_keys = most_keys
        self._clock = clock
        self._paid: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paid)

    async def take(self, key: str, *, per_second: float, burst: int) -> float:
        """Charge one request; return 0.0 if it is within the limit, otherwise the seconds to wait."""
        if per_second <= 0:
            return 0.0
        now = self._clock()
        paid = max(self._paid.get(key, now), now)
        early = paid - now - (burst - 1) / per_second
        if early > 1e-9:
            return early
        self._paid[key] = paid + 1 / per_second
        self._paid.move_to_end(key)
        self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        while self._paid and (len(self._paid) > self._most_keys or next(iter(self._paid.values())) <= now):
            self._paid.popitem(last=False)


MOST_EVENTS = 1_024
MOST_BYTES = 4 * 1024 * 1024
"""Default bounds of the events of one session; the oldest are dropped first."""


@dataclass(frozen=True, slots=True)
class _Event:
    stream: str
    message: JSONRPCMessage | None
    size: int


class MemoryEvents:
    """The last events of one session, of all its streams."""

    def __init__(self, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._kept: deque[_Event] = deque()
        self._first = 0
        self._bytes = 0
        # A random prefix: ids of another session are never valid here, though both count from 0.
        self._prefix = secrets.token_hex(8)
        self.news = asyncio.Event()

    async def add(self, stream: str, message: JSONRPCMessage | None) -> str:
        """Store an event and return its id."""
        # The name counts too: it is a request id, of any length that the client chooses.
        size = len(stream)
        if message is not None:
            size += len(message.model_dump_json(by_alias=True, exclude_none=True))
        self._kept.append(_Event(stream, message, size))
        self._bytes += size
        number = self._first + len(self._kept) - 1
        while len(self._kept) > self._most_events or self._bytes > self._most_bytes:
            self._bytes -= self._kept.popleft().size
            self._first += 1
        self._notify()
        return f"{self._prefix}-{number}"

    async def after(self, event_id: str) -> MissedEvents | None:
        """Return the events after one on its stream; None if that one is not stored, or of another session."""
        prefix, _, text = event_id.rpartition("-")
        if (
            prefix != self._prefix
            or not (text.isascii() and text.isdecimal())
            or len(text) > len(str(self._first + len(self._kept)))
        ):
            return None
        position = int(text) - self._first
        if not 0 <= position < len(self._kept):
            return None
        stream = self._kept[position].stream
        events = [
            EventMessage(event.message, f"{prefix}-{int(text) + offset}")
            for offset, event in enumerate(list(self._kept)[position:])
            if event.stream == stream and event.message is not None
        ]
        return MissedEvents.following(event_id, stream, events)

    async def clear(self) -> None:
        """Forget all events; their ids become invalid."""
        self._first += len(self._kept)
        self._kept.clear()
        self._bytes = 0
        self._notify()

    def _notify(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


class MemorySessions:
    """The sessions of a server without replicas."""

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._known: dict[str, Ownership] = {}

    async def claim(self, session: str, *, principal: str, role: str) -> None:
        """Register a session."""
        self._known[session] = Ownership(principal=principal, role=role, replica=self._replica)

    def holds(self, session: str) -> bool:
        """Whether the session is registered."""
        return session in self._known

    async def owner(self, session: str) -> Ownership | None:
        """Return the owner of a session."""
        owner = self._known.get(session)
        return None if owner is None else replace(owner)

    async def release(self, session: str) -> None:
        """Forget a session."""
        self._known.pop(session, None)


class MemoryStores:
    """All stores in the memory of one process."""

    def __init__(self, *, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self._bounds = (most_events, most_bytes)
        self.replica = ""
        """Empty: there is no other replica."""
        self.sessions = MemorySessions(self.replica)
        self.rates = MemoryRateLimiter()
        self.used_states = InMemoryUsedStates()
        self.sealing_keys: Sequence[bytes] = (secrets.token_bytes(32),)
        self._buses: dict[str, InMemorySubscriptionBus] = {}

    @property
    def has_lease(self) -> bool:
        """Whether this replica has its lease: without replicas there is none to lose."""
        return True

    def is_alive(self, replica: str) -> bool:
        """Whether a replica is alive: only this one is."""
        return replica == self.replica

    def events(self, _session: str) -> MemoryEvents:
        """Create an event log; the caller keeps it."""
        return MemoryEvents(*self._bounds)

    def bus(self, role: str) -> SubscriptionBus:
        """Return the bus that notifies the listeners of one role."""
        return self._buses.setdefault(role, InMemorySubscriptionBus())

    async def check(self) -> None:
        """Do nothing: memory is always available."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do nothing: there is nothing to open."""
        yield
