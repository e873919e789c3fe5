"""Values in Redis: one hash, with the ends of their time to live beside it, so that count and bytes are exact.

Keys of Redis that expire by themselves would leave the totals wrong. As in memory, an expired value goes when it is
read, or when its room is needed.
"""

from coretools.services.limits import ServiceLimits
from coretools.services.redis_connection import RedisConnection, Script

MICROSECONDS = 1_000_000

LONGEST_SECONDS = 1e9
"""Thirty years: longer times to live and leases would be no exact numbers of microseconds in Lua."""

CLOCK = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""
"""Microseconds. Numbers are written with `%.0f`: Lua's own form keeps 14 digits."""

# KEYS: values, ends, totals.
_VALUES = f"""{CLOCK}
local function drop(key)
  local size = redis.call('HSTRLEN', KEYS[1], key)
  if redis.call('HDEL', KEYS[1], key) == 1 then
    redis.call('HINCRBY', KEYS[3], 'value_bytes', -(#key + size))
  end
  redis.call('ZREM', KEYS[2], key)
end
local function current(key)
  local till = redis.call('ZSCORE', KEYS[2], key)
  if till and tonumber(till) <= now then
    drop(key)
  end
  return redis.call('HGET', KEYS[1], key)
end
"""

_GET = Script(f"{_VALUES} return current(ARGV[1])")

_DELETE = Script(f"""{_VALUES}
local existed = current(ARGV[1]) and 1 or 0
drop(ARGV[1])
return existed
""")

# ARGV: key, whether the current value matters, 1 with the expected one, 1 with the new one, time to live or -1, limits.
_SET = Script(f"""{_VALUES}
local key, value = ARGV[1], ARGV[6]
local before = current(key)
if ARGV[2] == '1' and before ~= (ARGV[3] == '1' and ARGV[4]) then
  return 0
end
if ARGV[5] ~= '1' then
  drop(key)
  return 1
end
local more = #key + #value - (before and #key + #before or 0)
local function fits()
  local count = redis.call('HLEN', KEYS[1]) + (before and 0 or 1)
  local bytes = redis.call('HGET', KEYS[3], 'value_bytes') or 0
  return count <= tonumber(ARGV[8]) and bytes + more <= tonumber(ARGV[9])
end
if not fits() then
  for _, expired in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))) do
    drop(expired)
  end
  if not fits() then
    return -1
  end
end
-- First what needs memory: Redis refuses that only in a script that has not written anything yet.
redis.call('HSET', KEYS[1], key, value)
redis.call('HINCRBY', KEYS[3], 'value_bytes', more)
redis.call('ZREM', KEYS[2], key)
if tonumber(ARGV[7]) >= 0 then
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[7]), key)
end
return 1
""")


def microseconds(seconds: float) -> int:
    """A time to live or a lease in microseconds."""
    return int(max(0.0, min(seconds, LONGEST_SECONDS)) * MICROSECONDS)


class RedisValues:
    """`coretools.services.interface.Values` in Redis."""

    def __init__(self, connection: RedisConnection, limits: ServiceLimits) -> None:
        self._connection = connection
        self._limits = limits
        self._keys = tuple(map(connection.key, ("values", "value-ends", "totals")))

    async def get(self, key: str) -> bytes | None:
        """The value of the key, or None."""
        value: bytes | None = await self._connection.run(_GET, self._keys, key)
        return value

    async def set(self, key: str, value: bytes, *, ttl_seconds: float | None = None) -> None:
        """Set the value of the key."""
        await self._set(key, None, value, ttl_seconds)

    async def delete(self, key: str) -> bool:
        """Delete the key. Returns whether it existed."""
        return bool(await self._connection.run(_DELETE, self._keys, key))

    async def compare_and_set(
        self, key: str, expected: bytes | None, value: bytes | None, *, ttl_seconds: float | None = None
    ) -> bool:
        """Set the value if the current one is as expected."""
        return await self._set(key, (expected,), value, ttl_seconds)

    async def _set(
        self, key: str, expected: tuple[bytes | None] | None, value: bytes | None, ttl_seconds: float | None
    ) -> bool:
        """Set a value; `expected` in a tuple: only if it is the current one."""
        self._limits.check(key, value or b"")
        wanted = expected[0] if expected else None
        words = (
            *(key, int(expected is not None), int(wanted is not None), wanted or b""),
            *(int(value is not None), value or b"", -1 if ttl_seconds is None else microseconds(ttl_seconds)),
            *(self._limits.keys, self._limits.kept_bytes),
        )
        outcome = await self._connection.store(_SET, self._keys, *words)
        if outcome < 0:
            raise self._limits.no_room_for_value(key)
        return bool(outcome)
