"""The last events of one session in Redis: written by the replica that has the session, read by any.

One list of entries, and beside it the name of the log, the number of the next entry and the bytes of all. The name is
drawn when the first event comes, so nobody guesses the id of an event, and ids of another session are of none here.
"""

import asyncio
import json
import re
import secrets

from mcp.server.streamable_http import EventMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from coretools.errors import Unreachable
from coretools.serving.web.shared.redis_engine import Engine, Script
from coretools.serving.web.shared.redis_lease import Lease
from coretools.serving.web.shared.redis_sessions import KEPT_SECONDS, session_keys
from coretools.serving.web.shared.stores import Missed

_ID = re.compile(r"([0-9a-f]{16})-([0-9]{1,15})", re.ASCII)

ENDED = "this session is ended: its server was away too long"

# Everything that a write decides is decided in this one step: another replica's session is not written to.
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

    def __init__(self, engine: Engine, lease: Lease, session: str, *, most_events: int, most_bytes: int) -> None:
        self._engine = engine
        self._lease = lease
        self._keys = session_keys(engine, session)
        self._bounds = (most_events, most_bytes)
        self.news = asyncio.Event()
        """Set with the next event that is added here, and replaced then."""

    async def add(self, stream: str, message: JSONRPCMessage | None) -> str:
        """Keep an event, and get its id.

        Raises:
            Unreachable: it can't be kept, or the session is not this replica's any more.
        """
        text = "" if message is None else message.model_dump_json(by_alias=True, exclude_none=True)
        # A stream is named by whatever id a client gave its request; as JSON it has no line break.
        entry = f"{json.dumps(stream)}\n{text}"
        words = (self._lease.token, entry, *self._bounds, int(KEPT_SECONDS * 1000), secrets.token_hex(8))
        answer = await self._engine.run(_ADD, self._keys, *words)
        if answer is None:
            raise Unreachable(ENDED)
        self._tell()
        return f"{answer[0].decode()}-{answer[1]}"

    async def after(self, event_id: str) -> Missed | None:
        """What came after an event on its stream; None when it is not kept, or not of this session.

        Raises:
            Unreachable: it can't be told now.
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
        first = f"{name}-{int(number)}"
        return Missed(stream=of, events=[event for event in found if event.event_id != first], is_all=is_all)

    async def clear(self) -> None:
        """Forget everything; ids that were given out are of no event from now on.

        Raises:
            Unreachable: it can't be done now; the events expire then.
        """
        try:
            if not await self._engine.run(_CLEAR, self._keys, self._lease.token):
                raise Unreachable(ENDED)
        finally:
            self._tell()

    def _tell(self) -> None:
        self.news.set()
        self.news = asyncio.Event()
