"""The stores of a server that stands alone: everything in the memory of the process, and gone with it."""

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from mcp.server.streamable_http import EventMessage
from mcp.server.subscriptions import InMemorySubscriptionBus, SubscriptionBus
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse

from coretools.protocol.round_trip_questions import InMemoryUsedStates
from coretools.web.replicas.stores import MissedEvents, Ownership

# How often somebody comes, in the memory of one process: the generic cell rate algorithm (ITU-T I.371, annex A).


MOST_KEYS = 10_000
"""Remembered at once; beyond it whoever came longest ago is forgotten, and begins anew."""


class MemoryRateLimiter:
    """One time for each key: when everything that it was allowed so far will have been paid back."""

    def __init__(self, *, most_keys: int = MOST_KEYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_keys = most_keys
        self._clock = clock
        self._paid: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paid)

    async def take(self, key: str, *, per_second: float, burst: int) -> float:
        """Count one request. 0.0 when it is within the limit, otherwise the seconds until one would be."""
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
"""Kept for one session; the oldest go first."""


@dataclass(frozen=True, slots=True)
class _Event:
    stream: str
    message: JSONRPCMessage | None
    size: int


class MemoryEvents:
    """The last events of one session, all its streams together."""

    def __init__(self, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._kept: deque[_Event] = deque()
        self._first = 0
        self._bytes = 0
        # Another session's ids are never ours, even where both count from 0.
        self._prefix = secrets.token_hex(8)
        self.news = asyncio.Event()

    async def add(self, stream: str, message: JSONRPCMessage | None) -> str:
        """Keep an event, and get its id."""
        # The name counts too: it is the id of a request, as long as its client likes.
        size = len(stream)
        if message is not None:
            size += len(message.model_dump_json(by_alias=True, exclude_none=True))
        self._kept.append(_Event(stream, message, size))
        self._bytes += size
        number = self._first + len(self._kept) - 1
        while len(self._kept) > self._most_events or self._bytes > self._most_bytes:
            self._bytes -= self._kept.popleft().size
            self._first += 1
        self._tell()
        return f"{self._prefix}-{number}"

    async def after(self, event_id: str) -> MissedEvents | None:
        """What came after an event on its stream; None when it is not kept, or not of this session."""
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
        found = [
            EventMessage(event.message, f"{prefix}-{int(text) + offset}")
            for offset, event in enumerate(list(self._kept)[position:])
            if event.stream == stream and event.message is not None
        ]
        is_all = any(isinstance(event.message, JSONRPCResponse | JSONRPCError) for event in found)
        return MissedEvents(stream=stream, events=[one for one in found if one.event_id != event_id], is_all=is_all)

    async def clear(self) -> None:
        """Forget everything; ids that were given out are of no event from now on."""
        self._first += len(self._kept)
        self._kept.clear()
        self._bytes = 0
        self._tell()

    def _tell(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


class MemorySessions:
    """Sessions of a server that stands alone: it knows its own, and there are no others."""

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._known: dict[str, Ownership] = {}

    async def claim(self, session: str, *, principal: str, role: str) -> None:
        """This server has it."""
        self._known[session] = Ownership(principal=principal, role=role, replica=self._replica)

    def holds(self, session: str) -> bool:
        """Whether it was claimed, and is not ended."""
        return session in self._known

    async def owner(self, session: str) -> Ownership | None:
        """Whose it is."""
        found = self._known.get(session)
        return None if found is None else replace(found)

    async def release(self, session: str) -> None:
        """It is ended."""
        self._known.pop(session, None)


class MemoryStores:
    """Everything in the memory of one process."""

    def __init__(self, *, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self._bounds = (most_events, most_bytes)
        self.replica = ""
        """It has no name: there is no other."""
        self.sessions = MemorySessions(self.replica)
        self.rates = MemoryRateLimiter()
        self.used_states = InMemoryUsedStates()
        self.sealing_keys: Sequence[bytes] = (secrets.token_bytes(32),)
        self._buses: dict[str, InMemorySubscriptionBus] = {}

    def is_alive(self, replica: str) -> bool:
        """There is only this one."""
        return replica == self.replica

    def events(self, _session: str) -> MemoryEvents:
        """A new log; it belongs to whoever holds it."""
        return MemoryEvents(*self._bounds)

    def bus(self, role: str) -> SubscriptionBus:
        """Tells the listeners of one role what changed."""
        return self._buses.setdefault(role, InMemorySubscriptionBus())

    async def check(self) -> None:
        """They always can be used."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Nothing has to be opened."""
        yield
