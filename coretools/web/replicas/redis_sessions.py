"""Records of sessions in Redis: owner and replica. They expire some time after the replica that wrote them.

A session is never taken over: its state lives in the process that opened it. With the record another replica can send
missed events to the owner and hide the session from everybody else.
"""

import time
from collections.abc import Callable

from coretools.errors import Conflict, Unreachable
from coretools.services.redis_connection import RedisConnection, Script, hashed
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

    def __init__(self, engine: RedisConnection, lease: Lease, *, clock: Callable[[], float] = time.monotonic) -> None:
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
        record = await self._engine.run(_OWNER, (self._keys(session)[0],), replica_key(self._engine, ""))
        if record is None:
            return None
        principal, role, replica = (word.decode() for word in record[:3])
        seconds = record[3] / 1000
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
        # Its start counts: the records that a long renewal wrote first expire first.
        self._renewed = began

    def _keys(self, session: str) -> tuple[str, str, str]:
        return session_keys(self._engine, session)


def session_keys(engine: RedisConnection, session: str) -> tuple[str, str, str]:
    """Return the keys of a session: record, events, and state of the events."""
    name = hashed(session)
    return engine.key("session", name), engine.key("events", name), engine.key("log", name)
