"""The events of sessions in Redis, and notifications between replicas.

The replica that has a session writes its events; any replica can read them. A log is a list of entries, its name, the
number of the next entry and the size in bytes. The name is random, so event ids can't be guessed, and ids of another
session are not valid here.
"""

import asyncio
import json
import logging
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from mcp.server.streamable_http import EventMessage
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from coretools.errors import Unreachable
from coretools.web.replicas.redis_engine import RedisEngine, Script
from coretools.web.replicas.redis_lease import Lease
from coretools.web.replicas.redis_sessions import KEPT_SECONDS, session_keys
from coretools.web.replicas.stores import MissedEvents

_ID = re.compile(r"([0-9a-f]{16})-([0-9]{1,15})", re.ASCII)

ENDED = "this session has ended: its server was away too long"

# One atomic script, so that nothing is written to a session that another replica took.
_ADD = Script("""
local token = redis.call('HGET', KEYS[1], 'token')
if token and token ~= ARGV[1] then
  return false
end
local name = redis.call('HGET', KEYS[3], 'name')
if not name then
  name = ARGV[6]
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[3], 'name', name, 'next', 0, 'bytes', 0)
end
local number = redis.call('HINCRBY', KEYS[3], 'next', 1) - 1
local count = redis.call('RPUSH', KEYS[2], ARGV[2])
local bytes = count == 1 and 0 or tonumber(redis.call('HGET', KEYS[3], 'bytes'))
bytes = bytes + #ARGV[2]
while count > tonumber(ARGV[3]) or (count > 0 and bytes > tonumber(ARGV[4])) do
  bytes = bytes - #redis.call('LPOP', KEYS[2])
  count = count - 1
end
redis.call('HSET', KEYS[3], 'bytes', bytes)
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return {name, number}
""")

_CLEAR = Script("""
local token = redis.call('HGET', KEYS[1], 'token')
if token and token ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[3])
return 1
""")

_AFTER = Script("""
local state = redis.call('HMGET', KEYS[2], 'name', 'next')
if state[1] ~= ARGV[1] then
  return false
end
local count = redis.call('LLEN', KEYS[1])
local position = tonumber(ARGV[2]) - (tonumber(state[2]) - count)
if position < 0 or position >= count then
  return false
end
local entries = redis.call('LRANGE', KEYS[1], position, -1)
local stream = string.match(entries[1], '^[^\\n]*\\n')
local found = {}
for at, entry in ipairs(entries) do
  if string.sub(entry, 1, #stream) == stream then
    table.insert(found, tonumber(ARGV[2]) + at - 1)
    table.insert(found, entry)
  end
end
return found
""")


class RedisEvents:
    """The events of one session."""

    def __init__(self, engine: RedisEngine, lease: Lease, session: str, *, most_events: int, most_bytes: int) -> None:
        self._engine = engine
        self._lease = lease
        self._keys = session_keys(engine, session)
        self._bounds = (most_events, most_bytes)
        self.news = asyncio.Event()
        """Set when an event is added here, and then replaced."""

    async def add(self, stream: str, message: JSONRPCMessage | None) -> str:
        """Store an event and return its id.

        Raises:
            Unreachable: it can't be stored, or this replica lost the session.
        """
        text = "" if message is None else message.model_dump_json(by_alias=True, exclude_none=True)
        # A stream has the id of a request, which the client chooses; as JSON it has no line break.
        entry = f"{json.dumps(stream)}\n{text}"
        words = (self._lease.token, entry, *self._bounds, int(KEPT_SECONDS * 1000), secrets.token_hex(8))
        answer = await self._engine.run(_ADD, self._keys, *words)
        if answer is None:
            raise Unreachable(ENDED)
        self._notify()
        return f"{answer[0].decode()}-{answer[1]}"

    async def after(self, event_id: str) -> MissedEvents | None:
        """Return the events after one on its stream; None if that one is not stored, or of another session.

        Raises:
            Unreachable: Redis can't be reached.
        """
        parts = _ID.fullmatch(event_id)
        if parts is None:
            return None
        name, number = parts.groups()
        answer = await self._engine.run(_AFTER, self._keys[1:], name, number)
        if answer is None:
            return None
        found: list[EventMessage] = []
        try:
            for position, entry in zip(answer[::2], answer[1::2], strict=True):
                stream, _, text = entry.partition(b"\n")
                if text:
                    found.append(EventMessage(jsonrpc_message_adapter.validate_json(text), f"{name}-{position}"))
            of: str = json.loads(stream)
        except (ValidationError, ValueError) as error:
            raise Unreachable("the events of this session can't be read; initialize a new one") from error
        is_all = any(isinstance(event.message, JSONRPCResponse | JSONRPCError) for event in found)
        # The entry of the id itself is among them; the client has that event. The id may have leading zeros.
        first = f"{name}-{int(number)}"
        return MissedEvents(stream=of, events=[event for event in found if event.event_id != first], is_all=is_all)

    async def clear(self) -> None:
        """Forget all events; their ids become invalid.

        Raises:
            Unreachable: Redis can't be reached; the events then expire.
        """
        try:
            if not await self._engine.run(_CLEAR, self._keys, self._lease.token):
                raise Unreachable(ENDED)
        finally:
            self._notify()

    def _notify(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


# Notifications of changes go to the listeners of a role on every replica, over one Redis channel. The replica where
# something changed notifies its own listeners directly, so each is notified exactly once, with or without Redis. After
# a gap in the subscription it is unknown what was missed, so all listeners are notified that every list changed: a
# needless request costs a client a millisecond, a missing notification leaves a wrong list. A publisher that could not
# reach Redis does the same later. Lost updates of single resources are not repeated: a replica watches the resources of
# its clients.


QUIET_SECONDS = 5.0
"""Ping Redis after this time without a message."""

AGAIN_SECONDS = 0.5
"""Pause between attempts to subscribe."""

EVERYTHING = "everything"
"""Published if it is unknown which lists changed."""

_LISTS: dict[str, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "resources": ResourcesListChanged,
    "prompts": PromptsListChanged,
}

logger = logging.getLogger(__name__)


class Channel:
    """The buses of all roles of one replica, and the channel between the replicas."""

    def __init__(self, engine: RedisEngine, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._engine = engine
        self._own = secrets.token_hex(8)
        """Sender id of this replica, to skip its own messages."""
        self._quiet_seconds = quiet_seconds
        self._name = engine.key("changes")
        self._buses: dict[str, RedisBus] = {}
        self._owed: set[str] = set()
        """Roles with notifications that could not be published."""
        self.is_open = asyncio.Event()
        """Set while the subscription works."""
        self.is_over = False
        """Set before `hear` is cancelled: redis-py swallows a cancellation while it connects."""

    def bus(self, role: str) -> "RedisBus":
        """Return the bus of one role."""
        return self._buses.setdefault(role, RedisBus(self, role))

    async def tell(self, role: str, event: ServerEvent) -> None:
        """Publish a change; if that fails, publish later that every list changed."""
        if not await self._sent(role, *_written(event)):
            self._owed.add(role)

    async def make_up(self) -> None:
        """Publish pending notifications."""
        # A copy: `tell` may add a role while this waits for Redis.
        for role in tuple(self._owed):
            if await self._sent(role, EVERYTHING, ""):
                self._owed.discard(role)

    async def hear(self) -> None:
        """Pass messages of other replicas on, until cancelled."""
        was_away = False
        while not self.is_over:
            pubsub = self._engine.client.pubsub()
            try:
                await pubsub.subscribe(self._name)
                await self._hear(pubsub, was_away=was_away)
            except (RedisError, OSError, TimeoutError, Unreachable) as error:
                logger.warning("notifications of other replicas are not received now: %s", type(error).__name__)
            finally:
                self.is_open.clear()
                await _closed(pubsub)
            was_away = True
            if not self.is_over:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _hear(self, pubsub: PubSub, *, was_away: bool) -> None:
        is_asked = False
        while not self.is_over:
            message: dict[str, Any] | None = await pubsub.get_message(timeout=self._quiet_seconds)
            if message is None:
                if is_asked:
                    raise Unreachable("no word from Redis")
                # A silent connection may be dead.
                await pubsub.ping()
                is_asked = True
                continue
            is_asked = False
            if message["type"] == "subscribe":
                self.is_open.set()
                if was_away:
                    await self._everything(self._buses.values())
            elif message["type"] == "message":
                await self._pass_on(message["data"])

    async def _pass_on(self, data: bytes) -> None:
        try:
            sent = json.loads(data)
            sender, role, kind, uri = (str(sent[name]) for name in ("from", "role", "kind", "uri"))
        except (ValueError, KeyError, TypeError):
            logger.warning("a malformed message on the channel of the replicas is ignored")
            return
        bus = self._buses.get(role)
        if bus is None or sender == self._own:
            return
        if kind == EVERYTHING:
            await self._everything([bus])
        elif kind in _LISTS:
            await bus.here.publish(_LISTS[kind]())
        else:
            await bus.here.publish(ResourceUpdated(uri=uri))

    async def _everything(self, buses: "Iterable[RedisBus]") -> None:
        for bus in tuple(buses):
            for made in _LISTS.values():
                await bus.here.publish(made())

    async def _sent(self, role: str, kind: str, uri: str) -> bool:
        try:
            text = json.dumps({"from": self._own, "role": role, "kind": kind, "uri": uri})
            await self._engine.ask("PUBLISH", self._name, text)
        except Unreachable:
            return False
        return True


class RedisBus:
    """Notifies the listeners of one role on every replica."""

    def __init__(self, channel: Channel, role: str) -> None:
        self.here = InMemorySubscriptionBus()
        """The listeners on this replica."""
        self._channel = channel
        self._role = role

    async def publish(self, event: ServerEvent) -> None:
        """Notify every listener; those on other replicas later if Redis can't be reached."""
        await self.here.publish(event)
        await self._channel.tell(self._role, event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Add a listener; the returned function removes it."""
        return self.here.subscribe(listener)


async def _closed(pubsub: Any) -> None:
    try:
        await pubsub.aclose()
    except (RedisError, OSError, TimeoutError) as error:
        logger.debug("redis: %s", type(error).__name__)


def _written(event: ServerEvent) -> tuple[str, str]:
    if isinstance(event, ResourceUpdated):
        return "resource", event.uri
    return next(kind for kind, made in _LISTS.items() if made is type(event)), ""
