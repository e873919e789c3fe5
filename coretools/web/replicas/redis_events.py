"""The events of sessions in Redis.

The replica that has a session writes its events; any replica can read them. A log is a list of entries, its name, the
number of the next entry and the size in bytes. The name is random, so event ids can't be guessed, and ids of another
session are not valid here.
"""

import asyncio
import json
import re
import secrets

from mcp.server.streamable_http import EventMessage
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from coretools.errors import Unreachable
from coretools.services.redis_connection import RedisConnection, Script
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

    def __init__(
        self, engine: RedisConnection, lease: Lease, session: str, *, most_events: int, most_bytes: int
    ) -> None:
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
        events: list[EventMessage] = []
        try:
            for position, entry in zip(answer[::2], answer[1::2], strict=True):
                stream, _, text = entry.partition(b"\n")
                if text:
                    events.append(EventMessage(jsonrpc_message_adapter.validate_json(text), f"{name}-{position}"))
            of: str = json.loads(stream)
        except (ValidationError, ValueError) as error:
            raise Unreachable("the events of this session can't be read; initialize a new one") from error
        # The id that the client sent may have leading zeros.
        return MissedEvents.following(f"{name}-{int(number)}", of, events)

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
