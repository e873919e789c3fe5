"""Records of sessions in Redis: owner and replica. They expire some time after the replica that wrote them.

A session is never taken over: its state lives in the process that opened it. With the record another replica can send
missed events to the owner and hide the session from everybody else.
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Sequence

from coretools.errors import BadSetting, Conflict, Unreachable
from coretools.protocol.round_trip_questions import STATE_TTL_SECONDS
from coretools.web.replicas.redis_engine import RedisEngine, Script, hashed
from coretools.web.replicas.redis_lease import Lease, replica_key
from coretools.web.replicas.stores import Ownership

KEPT_SECONDS = 600.0
"""How long a record and the events of its session outlive the last renewal by their replica."""

RENEWED = 3
"""Renewals within that time."""

AT_ONCE = 256
"""Sessions renewed by one script, so that it does not block Redis for long."""

_CLAIM = Script("""
local token = redis.call('HGET', KEYS[1], 'token')
if token and (token ~= ARGV[1] or redis.call('HGET', KEYS[1], 'principal') ~= ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'principal', ARGV[2], 'role', ARGV[3], 'replica', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
""")

_OWNER = Script("""
local found = redis.call('HMGET', KEYS[1], 'principal', 'role', 'replica', 'token')
if not found[1] then
  return false
end
local sign = ARGV[1] .. found[3]
found[4] = redis.call('GET', sign) == found[4] and redis.call('PTTL', sign) or 0
return found
""")

_RELEASE = Script("""
local token = redis.call('HGET', KEYS[1], 'token')
if not token or token == ARGV[1] then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
end
""")

_RENEW = Script("""
local gone = {}
for at = 1, #KEYS, 3 do
  if redis.call('HGET', KEYS[at], 'token') == ARGV[1] then
    for offset = 0, 2 do
      redis.call('PEXPIRE', KEYS[at + offset], ARGV[2])
    end
  else
    table.insert(gone, (at - 1) / 3)
  end
end
return gone
""")


class RedisSessions:
    """The session records of all replicas."""

    def __init__(self, engine: RedisEngine, lease: Lease, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._lease = lease
        self._clock = clock
        self._mine: dict[str, str] = {}
        """Sessions claimed by this replica, with the token of its lease then."""
        self._renewed = clock()

    async def claim(self, session: str, *, principal: str, role: str) -> None:
        """Claim a session for this replica.

        Raises:
            Conflict: another replica has it. Unreachable: Redis can't be reached, or this replica lost its lease.
        """
        token = self._lease.token
        if not self._lease.is_held:
            raise Unreachable("this replica lost its place among the others; try again in a moment")
        words = (token, principal, role, self._lease.replica, int(KEPT_SECONDS * 1000))
        if not await self._engine.run(_CLAIM, (self._keys(session)[0],), *words):
            raise Conflict("another replica has a session of this id")
        self._mine[session] = token

    def holds(self, session: str) -> bool:
        """Whether this replica may serve a session: it claimed it and never lost its lease since."""
        return self._lease.is_held and self._mine.get(session) == self._lease.token

    async def owner(self, session: str) -> Ownership | None:
        """Return the owner of a session; None if it is unknown."""
        found = await self._engine.run(_OWNER, (self._keys(session)[0],), replica_key(self._engine, ""))
        if found is None:
            return None
        principal, role, replica = (word.decode() for word in found[:3])
        seconds = found[3] / 1000
        return Ownership(principal=principal, role=role, replica=replica, is_alive=seconds > 0, alive_seconds=seconds)

    async def release(self, session: str) -> None:
        """Delete the record and the events of a session, unless another replica has it."""
        token = self._mine.pop(session, self._lease.token)
        await self._engine.run(_RELEASE, self._keys(session), token)

    async def renew(self) -> None:
        """Renew the records of this replica when due. A record that Redis lost ends the claim."""
        if self._clock() < self._renewed + KEPT_SECONDS / RENEWED:
            return
        began = self._clock()
        self._mine = {session: token for session, token in self._mine.items() if token == self._lease.token}
        mine = list(self._mine)
        for at in range(0, len(mine), AT_ONCE):
            some = mine[at : at + AT_ONCE]
            keys = tuple(key for session in some for key in self._keys(session))
            for index in await self._engine.run(_RENEW, keys, self._lease.token, int(KEPT_SECONDS * 1000)):
                self._mine.pop(some[index], None)
        # The begin counts: of a long renewal the first records expire first.
        self._renewed = began

    def _keys(self, session: str) -> tuple[str, str, str]:
        return session_keys(self._engine, session)


def session_keys(engine: RedisEngine, session: str) -> tuple[str, str, str]:
    """Return the keys of a session: record, events, and state of the events."""
    name = hashed(session)
    return engine.key("session", name), engine.key("events", name), engine.key("log", name)


# Sealing keys and used request states (`coretools.protocol.round_trip_questions`).


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

    def __init__(self, engine: RedisEngine) -> None:
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


async def shared_keys(engine: RedisEngine, own: Sequence[bytes] = ()) -> tuple[bytes, ...]:
    """Return the sealing keys of all replicas; store these, or a new one, if there are none yet.

    Raises:
        Unreachable: they can't be read. BadSetting: the stored value is malformed.
    """
    offered = [key.hex() for key in own or (secrets.token_bytes(KEY_BYTES),)]
    found = await engine.run(_KEYS, (engine.key("sealing-keys"),), int(KEYS_SECONDS * 1000), *offered)
    try:
        keys = tuple(bytes.fromhex(word.decode("ascii")) for word in found)
    except ValueError:  # the text of the cause contains a part of the key
        keys = ()
    if not 0 < len(keys) <= MOST_KEYS or any(len(key) != KEY_BYTES for key in keys):
        reason = f"{engine.key('sealing-keys')}: must be a list of 1 to {MOST_KEYS} keys of {KEY_BYTES} bytes, as hex"
        raise BadSetting(reason)
    return keys
