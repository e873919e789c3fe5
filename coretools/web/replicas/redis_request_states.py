"""Sealing keys, and used request states (`coretools.protocol.round_trip_questions`), for all replicas."""

import logging
import math
import secrets
from collections.abc import Sequence

from coretools.errors import BadSetting
from coretools.protocol.round_trip_questions import STATE_TTL_SECONDS
from coretools.services.redis_connection import RedisConnection, Script, hashed

SKEW_SECONDS = 30.0
"""Allowed clock difference of replicas and Redis; a state minted outside of it counts as used."""

KEY_BYTES = 32

MOST_KEYS = 8

KEYS_SECONDS = 86_400.0
"""How long the keys outlive the last replica."""

logger = logging.getLogger(__name__)

# A restarted Redis, or a replica of it that was promoted, may have lost the last writes: states minted before this
# process was first asked are refused. INFO has the run id of the process.
_BEGIN = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local known = redis.call('HMGET', KEYS[1], 'id', 'began')
if known[1] ~= id then
  known[2] = now
  redis.call('HSET', KEYS[1], 'id', id, 'began', string.format('%.6f', now))
end
"""

_KEEP = Script(f"{_BEGIN}redis.call('PEXPIRE', KEYS[1], ARGV[1])")

_TAKE = Script(f"""{_BEGIN}
redis.call('PEXPIRE', KEYS[1], ARGV[4])
local minted = tonumber(ARGV[1])
local left = minted + ARGV[2] + ARGV[3] - now
if minted <= tonumber(known[2]) or left <= 0 or minted > now + ARGV[3] then
  return 0
end
return redis.call('SET', KEYS[2], '', 'NX', 'PX', math.ceil(left * 1000)) and 1 or 0
""")

_KEYS = Script("""
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('RPUSH', KEYS[1], unpack(ARGV, 2))
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('LRANGE', KEYS[1], 0, -1)
""")


class RedisUsedStates:
    """The request states whose confirmation was used, on any replica."""

    def __init__(self, engine: RedisConnection) -> None:
        self._engine = engine

    async def take(self, nonce: str, minted: float) -> bool:
        """Use a state that was minted at that time; False if it was used before, or may have been.

        Raises:
            Unreachable: Redis can't be reached.
        """
        if not math.isfinite(minted):
            return False
        keys = (self._engine.key("states"), self._engine.key("used", hashed(nonce)))
        words = (repr(minted), STATE_TTL_SECONDS, SKEW_SECONDS, int(KEYS_SECONDS * 1000))
        return bool(await self._engine.run(_TAKE, keys, *words))

    async def keep(self) -> None:
        """Record since when this Redis process knows the used states.

        Raises:
            Unreachable: Redis does not answer.
        """
        await self._engine.run(_KEEP, (self._engine.key("states"),), int(KEYS_SECONDS * 1000))


async def shared_keys(engine: RedisConnection, own: Sequence[bytes] = ()) -> tuple[bytes, ...]:
    """Return the sealing keys of all replicas; store these, or a new one, if there are none yet.

    Raises:
        Unreachable: they can't be read. BadSetting: the stored value is malformed.
    """
    offered = [key.hex() for key in own or (secrets.token_bytes(KEY_BYTES),)]
    stored = await engine.run(_KEYS, (engine.key("sealing-keys"),), int(KEYS_SECONDS * 1000), *offered)
    try:
        keys = tuple(bytes.fromhex(word.decode("ascii")) for word in stored)
    except ValueError:  # the text of the cause contains a part of the key
        keys = ()
    if not 0 < len(keys) <= MOST_KEYS or any(len(key) != KEY_BYTES for key in keys):
        reason = f"{engine.key('sealing-keys')}: must be a list of 1 to {MOST_KEYS} keys of {KEY_BYTES} bytes, as hex"
        raise BadSetting(reason)
    return keys
