"""The stores of a server with replicas: shared state in Redis, under one prefix, every key with an expiry."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import anyio
from mcp.server.subscriptions import SubscriptionBus

from coretools.errors import BadSetting, Unreachable
from coretools.services.redis_connection import RedisAddress, RedisConnection, Script, hashed
from coretools.web.common.config import LimitsSection, RedisSection
from coretools.web.replicas.redis_bus import Channel
from coretools.web.replicas.redis_events import RedisEvents
from coretools.web.replicas.redis_lease import BEATS, Lease, pause_seconds
from coretools.web.replicas.redis_request_states import RedisUsedStates, shared_keys
from coretools.web.replicas.redis_sessions import RedisSessions
from coretools.web.replicas.stores import UNREACHABLE

# Rates over all replicas: GCRA in one script, by the clock of Redis. GCRA keeps one number for each caller, the
# "theoretical arrival time" of ITU-T I.371. No counter needs a reset, and no window edge allows twice the rate.


MICROSECONDS = 1_000_000

_TAKE = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval = tonumber(ARGV[1])
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local early = due - now - interval * (tonumber(ARGV[2]) - 1)
if early >= 1 then
  return math.ceil(early)
end
due = due + interval
redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', math.ceil((due - now) / 1000))
return 0
""")


class RedisRateLimiter:
    """Limits rates over all replicas."""

    def __init__(self, engine: RedisConnection) -> None:
        self._engine = engine

    async def take(self, key: str, *, per_second: float, burst: int) -> float:
        """Charge one request; return 0.0 if it is within the limit, otherwise the seconds to wait.

        Raises:
            Unreachable: Redis can't be reached.
        """
        if per_second <= 0:
            return 0.0
        interval = MICROSECONDS / per_second
        wait: int = await self._engine.run(_TAKE, (self._engine.key("rate", hashed(key)),), interval, burst)
        return wait / MICROSECONDS


def connect_to(section: RedisSection) -> RedisConnection:
    """Create the connection of the replicas, not opened yet.

    Raises:
        BadSetting: the URL is malformed.
    """
    return RedisConnection(
        RedisAddress(
            url=section.url,
            setting="redis.url",
            prefix=section.prefix,
            timeout_seconds=section.timeout_seconds,
            unreachable=UNREACHABLE,
        )
    )


END_SECONDS = 1.0
"""Wait at the end for background tasks."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
"""Part of the ids of runs, which occur in URIs and are copied by models."""

logger = logging.getLogger(__name__)


class RedisStores:
    """All stores in one Redis. Use them within `running`."""

    def __init__(
        self, section: RedisSection, limits: LimitsSection, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Does not connect yet.

        Raises:
            BadSetting: the URL or the name of the replica can't be used.
        """
        self.replica = section.replica or secrets.token_hex(4)
        if not _NAME.fullmatch(self.replica):
            raise BadSetting("redis.replica: up to 32 small letters, digits and hyphens, such as `a-1`")
        self._engine = connect_to(section)
        self._lease_seconds = section.lease_seconds
        self._lease = Lease(self._engine, self.replica, section.lease_seconds, clock=clock)
        self._limits = limits
        self._channel = Channel(self._engine, quiet_seconds=section.lease_seconds / BEATS)
        self._logs: WeakValueDictionary[str, RedisEvents] = WeakValueDictionary()
        self.sessions = RedisSessions(self._engine, self._lease, clock=clock)
        self.rates = RedisRateLimiter(self._engine)
        self.used_states = RedisUsedStates(self._engine)
        self.sealing_keys: Sequence[bytes] = ()
        """Known once `running` has begun."""

    @property
    def peers(self) -> frozenset[str]:
        """Return the names of the live replicas, including this one."""
        return self._lease.peers

    @property
    def has_lease(self) -> bool:
        """Whether this replica could renew its lease in time."""
        return self._lease.is_held

    def is_alive(self, replica: str) -> bool:
        """Whether a replica of that name has a lease."""
        return replica in self._lease.peers

    def events(self, session: str) -> RedisEvents:
        """Return the event log of one session; one object for all, so readers notice what a writer adds."""
        log = self._logs.get(session)
        if log is None:
            bounds = self._limits.events, self._limits.event_bytes
            log = RedisEvents(self._engine, self._lease, session, most_events=bounds[0], most_bytes=bounds[1])
            self._logs[session] = log
        return log

    def bus(self, role: str) -> SubscriptionBus:
        """Return the bus that notifies the listeners of one role on every replica."""
        return self._channel.bus(role)

    async def check(self) -> None:
        """Check that Redis answers and that this replica has its lease.

        Raises:
            Unreachable: one of them fails.
        """
        await self._engine.ask("PING")
        if not self._lease.is_held:
            reason = "another replica has this one's name" if self._lease.is_taken else "it has no lease yet"
            raise Unreachable(f"replica {self.replica}: {reason}")

    async def beat(self) -> None:
        """Renew the lease and the session records, and publish pending notifications.

        Raises:
            Unreachable: Redis can't be reached.
        """
        await self._lease.write()
        await self.sessions.renew()
        await self.used_states.keep()
        await shared_keys(self._engine, self.sealing_keys)
        await self._channel.publish_pending()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the stores; close them at the end of the block.

        Raises:
            BadSetting: Redis does not answer, or is no usable Redis.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._open()
            # asyncio tasks, not a task group: a fault in one makes this replica unready and must not end the server.
            tasks += [asyncio.create_task(self._keep_beating()), asyncio.create_task(self._channel.listener.run())]
            for task in tasks:
                task.add_done_callback(_note_end)
            yield
        finally:
            self._channel.listener.is_over = True
            with anyio.CancelScope(shield=True):
                for task in tasks:
                    task.cancel()
                if tasks:
                    await asyncio.wait(tasks, timeout=END_SECONDS)
                    await self._lease.drop()
                await self._engine.close()

    async def _open(self) -> None:
        await self._engine.require_usable()
        try:
            self.sealing_keys = await shared_keys(self._engine)
            await self.beat()
        except Unreachable as error:
            raise self._engine.refused(error) from None

    async def _keep_beating(self) -> None:
        was_heard, took = True, 0.0
        while True:
            await asyncio.sleep(pause_seconds(self._lease_seconds, took=took, has_failed=not was_heard))
            began = time.monotonic()
            try:
                await self.beat()
            except Unreachable as error:
                if was_heard:
                    logger.warning("redis can't be reached: %s", type(error.__cause__).__name__)
                was_heard = False
            else:
                if not was_heard:
                    logger.info("redis is reached again")
                was_heard = True
            took = time.monotonic() - began


def _note_end(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (failure := task.exception()) is not None:
        logger.error("this replica no longer receives notifications of the others", exc_info=failure)
