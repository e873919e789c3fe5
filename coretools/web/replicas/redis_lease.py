"""The lease of a replica: a key that expires unless it is renewed, and the names of the live replicas.

A replica that could not renew its lease in time takes itself for gone no later than the others do: its time runs from
before the write, theirs from when Redis executed it. It never serves its old sessions again, because another replica
may have answered for them; it continues under the same name with a new token. If two replicas have one name, the later
one gets it and the earlier one reports that it is not ready.
"""

import logging
import secrets
import time
from collections.abc import Callable

from coretools.errors import Unreachable
from coretools.services.redis_connection import RedisConnection, Script

BEATS = 5
"""Renewals within one lease, if Redis answers."""

RETRY_SECONDS = 0.5
"""Until the next renewal after one that failed, which may have waited for its timeout: a Redis that does not answer for
four fifths of a lease, less this time, costs no session."""


def pause_seconds(lease_seconds: float, *, took: float, has_failed: bool) -> float:
    """Return the time from the end of one renewal to the next; `took` is the duration of that one."""
    return RETRY_SECONDS if has_failed else max(lease_seconds / BEATS - took, 0.0)


# The first write of a process takes the name from any holder, so a killed replica can restart at once. Later writes
# only keep it, or take it while it is free: a process that was away must not take it from its replacement.
_WRITE = Script("""
local held = redis.call('GET', KEYS[1])
if ARGV[1] ~= 'first' and held and held ~= ARGV[2] and held ~= ARGV[3] then
  return {'taken'}
elseif ARGV[1] == 'keep' and not held then
  return {'gone'}
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[4])
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZADD', KEYS[2], now + ARGV[4], ARGV[5])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. now)
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {'held', unpack(redis.call('ZRANGE', KEYS[2], 0, 999))}
""")

_DROP = Script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[2])
end
""")

logger = logging.getLogger(__name__)


class Lease:
    """The lease of this replica."""

    def __init__(
        self, engine: RedisConnection, replica: str, seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.replica = replica
        self.token = ""
        """Identifies this lease; replaced each time that the lease was lost."""
        self.peers: frozenset[str] = frozenset()
        """The replicas alive at the last renewal."""
        self.is_taken = False
        """Whether a later replica has the name."""
        self._engine = engine
        self._seconds = seconds
        self._clock = clock
        self._until = float("-inf")
        # The next token, chosen in advance: a write that Redis executed without our getting the reply is still ours.
        self._next_token = secrets.token_hex(16)
        self._keys = (replica_key(engine, replica), engine.key("replicas"))

    @property
    def is_held(self) -> bool:
        """Whether no other replica can take this one for gone."""
        return not self.is_taken and self._clock() < self._until

    async def write(self) -> None:
        """Renew the lease; under a new token if it was lost.

        Raises:
            Unreachable: Redis could not be reached.
        """
        began = self._clock()
        mode = "first" if not self.token else "keep" if self.is_held else "again"
        outcome, peers = await self._write_lease(mode)
        # Redis lost the key, or counts its time a little differently. Others may have answered for the sessions
        # meanwhile, so they end with the old token.
        if outcome == "gone":
            outcome, peers = await self._write_lease("again")
        self.is_taken, was_taken = outcome == "taken", self.is_taken
        if not self.is_taken:
            self._until = began + self._seconds
            self.peers = frozenset(peers)
        elif not was_taken:
            self._until = float("-inf")
            logger.error("another replica has the name %r; give each its own (redis.replica)", self.replica)

    async def drop(self) -> None:
        """Delete the lease, so that the others need not wait until it expires."""
        self._until = float("-inf")
        try:
            await self._engine.run(_DROP, self._keys, self.token, self.replica)
        except Unreachable:
            logger.info("the lease of %r could not be deleted; it expires by itself", self.replica)

    async def _write_lease(self, mode: str) -> tuple[str, list[str]]:
        token = self.token if mode == "keep" else self._next_token
        words = (mode, token, self.token, int(self._seconds * 1000), self.replica)
        outcome, *peers = [word.decode() for word in await self._engine.run(_WRITE, self._keys, *words)]
        if outcome == "held":
            if mode == "again":
                logger.warning("the lease of %r was not renewed in time, or was lost: its sessions end", self.replica)
            self.token = token
            self._next_token = secrets.token_hex(16)
        elif outcome == "gone":
            self._until = float("-inf")
        return outcome, peers


def replica_key(engine: RedisConnection, replica: str) -> str:
    """Return the key of a replica's lease."""
    return f"{engine.key('replica')}:{replica}"
