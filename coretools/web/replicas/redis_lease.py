"""A replica's sign of life: a key that expires unless it is written again, and the names of the others.

A replica that could not write it in time counts itself as gone no later than the others count it so: its time runs
from before it wrote, theirs from when Redis read it. What it held by then it never holds again, because somebody may
have answered for it meanwhile; it goes on under the same name with a new token. Two replicas of one name: the later
one has it, and the earlier one says that it is not ready.
"""

import logging
import secrets
import time
from collections.abc import Callable

from coretools.errors import Unreachable
from coretools.web.replicas.redis_engine import RedisEngine, Script

BEATS = 3
"""Times that the sign is written while it lasts: two may fail."""

# The first sign of a process takes the name whoever has it: one that was killed starts again at once. Later it is only
# kept, or taken again when it is free: a process that was away must not take it from the one that took its place.
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
    """The sign of life of this replica."""

    def __init__(
        self, engine: RedisEngine, replica: str, seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.replica = replica
        self.token = ""
        """Of this stay; another one after each time that the sign was not written in time."""
        self.peers: frozenset[str] = frozenset()
        """Who was alive when it was written last."""
        self.is_taken = False
        """Whether a later replica has the name."""
        self._engine = engine
        self._seconds = seconds
        self._clock = clock
        self._until = float("-inf")
        # The next token. Drawn beforehand: an attempt that Redis carried out without our hearing of it is ours.
        self._drawn = secrets.token_hex(16)
        self._keys = (replica_key(engine, replica), engine.key("replicas"))

    @property
    def is_held(self) -> bool:
        """Whether nobody can take this replica for gone."""
        return not self.is_taken and self._clock() < self._until

    async def write(self) -> None:
        """Say that this replica is alive; again under a new token when it did not in time.

        Raises:
            Unreachable: it could not be said.
        """
        began = self._clock()
        said, peers = await self._said(self._mode)
        if said == "gone":
            said, peers = await self._said("again")
        self.is_taken, was_taken = said == "taken", self.is_taken
        if not self.is_taken:
            self._until = began + self._seconds
            self.peers = frozenset(peers)
        elif not was_taken:
            self._until = float("-inf")
            logger.error("another replica has the name %r; give each its own (redis.replica)", self.replica)

    async def drop(self) -> None:
        """Say that this replica is gone; the others need not wait until they notice."""
        self._until = float("-inf")
        try:
            await self._engine.run(_DROP, self._keys, self.token, self.replica)
        except Unreachable:
            logger.info("the replicas are not told of the end of %r; they will notice", self.replica)

    @property
    def _mode(self) -> str:
        if not self.token:
            return "first"
        return "keep" if self.is_held else "again"

    async def _said(self, mode: str) -> tuple[str, list[str]]:
        token = self.token if mode == "keep" else self._drawn
        words = (mode, token, self.token, int(self._seconds * 1000), self.replica)
        said, *peers = [word.decode() for word in await self._engine.run(_WRITE, self._keys, *words)]
        if said == "held":
            if mode == "again":
                logger.warning("%r was not said to be alive in time, or Redis lost it: its sessions end", self.replica)
            self.token = token
            self._drawn = secrets.token_hex(16)
        elif said == "gone":
            self._until = float("-inf")
        return said, peers


def replica_key(engine: RedisEngine, replica: str) -> str:
    """Where the sign of a replica stands."""
    return f"{engine.key('replica')}:{replica}"
