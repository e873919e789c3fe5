"""Work queues in Redis: a list of waiting ids, a sorted set of leases by their end, hashes with data and attempts.

Each operation is one script, so no item is in two places or in none, whoever is killed. Leases end by the clock of
Redis; whoever uses a queue next takes back what has expired. Getters wait for a message that a queue is no longer
empty, or until its first lease ends.
"""

import logging
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Literal

import anyio

from coretools.services.interface import DEAD_SUFFIX, QueueCounts, QueueTotals, WorkItem, dead_letters
from coretools.services.limits import ServiceLimits
from coretools.services.redis_connection import RedisConnection, Script
from coretools.services.redis_listener import RedisListener, listening
from coretools.services.redis_values import CLOCK, MICROSECONDS, microseconds

_STATES = ("waiting", "leased", "dead")

# KEYS: waiting, leased, data, attempts, totals; waiting and data of the dead letters.
# ARGV: the channel, the queue, its dead letters ('' if it is a queue of them), attempts; then each script's own.
# A lease has a number of its own, which is stored with the attempts: the lease before cannot end it.
_QUEUE = f"""{CLOCK}
local channel, queue, dead = ARGV[1], ARGV[2], ARGV[3]
local function count(from, to)
  if dead == '' then
    from, to = from and 'dead', to and 'dead'
  end
  if from ~= to then
    if from then redis.call('HINCRBY', KEYS[5], from, -1) end
    if to then redis.call('HINCRBY', KEYS[5], to, 1) end
  end
end
local function push(side, list, id, name)
  if redis.call(side, list, id) == 1 then
    redis.call('PUBLISH', channel, name)
  end
end
local function attempts(id)
  return tonumber(string.match(redis.call('HGET', KEYS[4], id) or '', '^%d+') or 0)
end
local function forget(id)
  redis.call('HDEL', KEYS[3], id)
  redis.call('HDEL', KEYS[4], id)
end
local function bury(id)
  local data = redis.call('HGET', KEYS[3], id)
  forget(id)
  redis.call('HSET', KEYS[7], id, data)
  push('RPUSH', KEYS[6], id, dead == '' and queue or dead)
  count('leased', 'dead')
end
local function give_back(ids)
  local kept = {{}}
  for _, id in ipairs(ids) do
    redis.call('ZREM', KEYS[2], id)
    if dead ~= '' and attempts(id) >= tonumber(ARGV[4]) then
      bury(id)
    else
      kept[#kept + 1] = id
    end
  end
  for index = #kept, 1, -1 do
    push('LPUSH', KEYS[1], kept[index], queue)
    count('leased', 'waiting')
  end
end
give_back(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now)))
"""

# ARGV: the new id, data, limits.
_PUT = Script(f"""{_QUEUE}
local totals = redis.call('HMGET', KEYS[5], 'waiting', 'leased', 'dead', 'item_bytes')
local items = (totals[1] or 0) + (totals[2] or 0) + (totals[3] or 0)
if items >= tonumber(ARGV[7]) or (totals[4] or 0) + #ARGV[6] > tonumber(ARGV[8]) then
  return 0
end
redis.call('HSET', KEYS[3], ARGV[5], ARGV[6])
redis.call('HINCRBY', KEYS[5], 'item_bytes', #ARGV[6])
count(nil, 'waiting')
push('RPUSH', KEYS[1], ARGV[5], queue)
return 1
""")

# ARGV: the lease. Returns the item, or the time until the first lease ends, -1 without one.
_GET = Script(f"""{_QUEUE}
local id = redis.call('LPOP', KEYS[1])
if not id then
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  return {{first[2] and first[2] - now or -1}}
end
local attempt = attempts(id) + 1
local lease = redis.call('HINCRBY', KEYS[5], 'leases', 1)
redis.call('HSET', KEYS[4], id, attempt .. ':' .. lease)
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[5]), id)
count('waiting', 'leased')
return {{id .. ':' .. lease, attempt, redis.call('HGET', KEYS[3], id)}}
""")

# ARGV: what is done with the item, its id, its lease, how long an extended lease is.
_END = Script(f"""{_QUEUE}
local id = ARGV[6]
local till = redis.call('ZSCORE', KEYS[2], id)
if not till or string.match(redis.call('HGET', KEYS[4], id), ':(.*)$') ~= ARGV[7] then
  return 0
end
if ARGV[5] == 'extend' then
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[8]), id)
  if now + ARGV[8] < tonumber(till) then
    redis.call('PUBLISH', channel, queue)
  end
  return 1
end
if ARGV[5] == 'release' then
  give_back({{id}})
  return 1
end
redis.call('ZREM', KEYS[2], id)
if ARGV[5] == 'reject' then
  bury(id)
else
  redis.call('HINCRBY', KEYS[5], 'item_bytes', -redis.call('HSTRLEN', KEYS[3], id))
  forget(id)
  count('leased', nil)
end
return 1
""")

_COUNTS = Script(f"{_QUEUE} return {{redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2])}}")

_Ending = Literal["acknowledge", "release", "extend", "reject"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Getters:
    """Those of this process that wait for an item of one queue. Only the first asks Redis again and again."""

    first: anyio.Lock = field(default_factory=anyio.Lock)
    changed: anyio.Event = field(default_factory=anyio.Event)
    count: int = 0


class RedisQueues:
    """`coretools.services.interface.Queues` in Redis."""

    def __init__(self, connection: RedisConnection, limits: ServiceLimits, tasks: AsyncExitStack) -> None:
        """`tasks` closes what is started at the first `get`."""
        self._connection = connection
        self._limits = limits
        self._tasks = tasks
        self._channel = connection.key("changed")
        self._listener: RedisListener | None = None
        self._getters: dict[str, _Getters] = {}

    async def put(self, queue: str, data: bytes) -> None:
        """Add an item at the end of the queue."""
        self._limits.check(queue, data)
        words = (uuid.uuid4().hex, data, self._limits.work_items, self._limits.kept_bytes)
        if not await self._connection.store(_PUT, self._keys(queue), *self._words(queue), *words):
            raise self._limits.no_room_for_item(queue)

    async def get(self, queue: str, *, lease_seconds: float = 60.0) -> WorkItem:
        """Lease the first item, waiting for one if the queue is empty."""
        self._limits.check(queue.removesuffix(DEAD_SUFFIX), b"")
        getters = self._getters.setdefault(queue, _Getters())
        getters.count += 1
        lease = microseconds(lease_seconds)
        try:
            # At once with the others, while there is something: the store may take long to write each lease.
            item = await self._take(queue, lease)
            if isinstance(item, WorkItem):
                return item
            async with getters.first:
                await self._listen()
                return await self._wait_for(queue, getters, lease)
        finally:
            getters.count -= 1
            if not getters.count:
                del self._getters[queue]

    async def acknowledge(self, item: WorkItem) -> bool:
        """Mark an item as done."""
        return await self._end(item, "acknowledge")

    async def release(self, item: WorkItem) -> bool:
        """Return an item to the front of the queue."""
        return await self._end(item, "release")

    async def extend(self, item: WorkItem, *, lease_seconds: float = 60.0) -> bool:
        """Let the lease end so many seconds from now."""
        return await self._end(item, "extend", microseconds(lease_seconds))

    async def reject(self, item: WorkItem) -> bool:
        """Move an item to the dead letters."""
        return await self._end(item, "reject")

    async def counts(self, queue: str) -> QueueCounts:
        """The numbers of items in the queue."""
        waiting, leased = await self._connection.run(_COUNTS, self._keys(queue), *self._words(queue))
        return QueueCounts(waiting=waiting, leased=leased)

    async def totals(self) -> QueueTotals:
        """The numbers of items in all queues."""
        figures = await self._connection.ask("HMGET", self._connection.key("totals"), *_STATES)
        return QueueTotals(**{state: int(figure or 0) for state, figure in zip(_STATES, figures, strict=True)})

    async def _wait_for(self, queue: str, getters: _Getters, lease: int) -> WorkItem:
        while True:
            changed = getters.changed
            item = await self._take(queue, lease)
            if isinstance(item, WorkItem):
                return item
            # The end of a lease is announced by nothing.
            with anyio.move_on_after(item):
                await changed.wait()

    async def _take(self, queue: str, lease: int) -> WorkItem | float | None:
        """Lease the first item; without one return the seconds until the first lease ends, None if there is none."""
        first, *rest = await self._connection.run(_GET, self._keys(queue), *self._words(queue), lease)
        if rest:
            return WorkItem(id=first.decode(), queue=queue, attempt=rest[0], data=rest[1])
        return None if first < 0 else first / MICROSECONDS

    async def _end(self, item: WorkItem, ending: _Ending, lease: int = 0) -> bool:
        item_id, _, number = item.id.partition(":")
        words = (ending, item_id, number, lease)
        return bool(await self._connection.run(_END, self._keys(item.queue), *self._words(item.queue), *words))

    async def _listen(self) -> None:
        """Listen for queues that are no longer empty; from the first `get` on."""
        if self._listener is None:
            self._listener = RedisListener(
                self._connection,
                (self._channel,),
                self,
                what="changes of queues",
            )
            await self._tasks.enter_async_context(listening(self._listener))
        if not self._listener.is_open.is_set():
            await self._connection.within(self._listener.is_open.wait)

    async def received(self, name: bytes) -> None:
        """Wake who waits for the queue of this name; called by the listener, as the next two."""
        getters = self._getters.get(name.decode("utf-8", "surrogatepass"))
        if getters is not None:
            _notify(getters)

    async def opened(self, has_gap: bool) -> None:  # noqa: ARG002  # they ask at the first time too
        """Let those who wait ask again."""
        self.lost()

    def lost(self) -> None:
        """Let those who wait ask again: a message may have been missed, or Redis is gone, which is their error."""
        for getters in self._getters.values():
            _notify(getters)

    def _keys(self, queue: str) -> tuple[str, ...]:
        of_dead = dead_letters(queue)
        kinds = (("waiting", queue), ("leased", queue), ("data", queue), ("attempts", queue), ("totals", ""))
        return tuple(self._connection.key(*one) for one in (*kinds, ("waiting", of_dead), ("data", of_dead)))

    def _words(self, queue: str) -> tuple[str | int, ...]:
        dead = "" if queue.endswith(DEAD_SUFFIX) else dead_letters(queue)
        return self._channel, queue, dead, self._limits.attempts


def _notify(getters: _Getters) -> None:
    getters.changed.set()
    getters.changed = anyio.Event()
