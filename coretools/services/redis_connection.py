"""The connection to a Redis: limits on time and connections, failures as `Unreachable`, and a URL that is never shown.

It runs small scripts, each of which Redis executes atomically. A single Redis works, also behind the one address of
Sentinel or a provider; a Redis Cluster does not, because the scripts use keys of several slots.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, OutOfMemoryError, RedisError

from coretools.errors import BadSetting, Busy, Unreachable

CONNECTIONS = 64
"""Connections at once; further callers wait for one within their timeout. With 2,000 callers that is milliseconds."""

LISTENERS = 4_096
"""Connections that are subscribed at once; limits of callers are below."""

SCHEMES = ("redis://", "rediss://", "unix://")

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Script:
    """A Lua script; Redis knows it by its digest once it was sent."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()  # SHA-1, as EVALSHA requires


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """Where a Redis is, and how it is used."""

    url: str = field(repr=False)
    setting: str
    """The setting that has the URL, for errors."""
    prefix: str
    """Prefix of every key."""
    timeout_seconds: float
    unreachable: str
    """The sentence of `Unreachable`."""


class RedisConnection:
    """The client of one Redis, shared by all that a process stores there."""

    def __init__(self, address: RedisAddress) -> None:
        """Does not connect yet.

        Raises:
            BadSetting: the URL is malformed; it is not repeated, because it may contain a password.
        """
        self.timeout_seconds = address.timeout_seconds
        self._address = address
        if not address.url.startswith(SCHEMES):
            raise BadSetting(f"{address.setting}: must begin with one of {', '.join(SCHEMES)}")
        options: dict[str, Any] = {
            "socket_timeout": address.timeout_seconds,
            "socket_connect_timeout": address.timeout_seconds,
            # No retry: a command that was sent may have been executed.
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "encoding_errors": "surrogatepass",
        }
        try:
            self._pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
                address.url, max_connections=CONNECTIONS, timeout=address.timeout_seconds, **options
            )
            # Of their own: a subscription keeps its connection.
            self._listeners: ConnectionPool = ConnectionPool.from_url(address.url, max_connections=LISTENERS, **options)
        except (ValueError, TypeError):
            # Without the cause: for `redis://:a/b@host` it names "a" as a bad port.
            reason = "can't be read; write reserved characters of a password as %XX"
            raise BadSetting(f"{address.setting}: {reason}") from None
        self.client: Any = Redis.from_pool(self._pool)
        """`Any`: redis-py annotates every command as possibly synchronous."""

    def key(self, kind: str, name: str = "") -> str:
        """Build a key with our prefix. Callers hash the parts that clients choose, or have them last."""
        return f"{self._address.prefix}{kind}:{name}" if name else f"{self._address.prefix}{kind}"

    def pubsub(self) -> PubSub:
        """Create an object that subscribes, on a connection of its own."""
        return PubSub(self._listeners)

    async def ask(self, *words: str | bytes | float) -> Any:
        """Run one command and return its reply.

        Raises:
            Unreachable: no reply in time, or Redis refused it.
        """
        return await self.within(lambda: self.client.execute_command(*words))

    async def run(self, script: Script, keys: tuple[str, ...], *words: str | bytes | float) -> Any:
        """Run one script and return its reply.

        Raises:
            Unreachable: no reply in time, or Redis refused it.
        """

        async def sent() -> Any:
            try:
                return await self.client.execute_command("EVALSHA", script.digest, len(keys), *keys, *words)
            except NoScriptError:  # at first use, and after a restart of Redis
                return await self.client.execute_command("EVAL", script.text, len(keys), *keys, *words)

        return await self.within(sent)

    async def store(self, script: Script, keys: tuple[str, ...], *words: str | bytes | float) -> Any:
        """Run one script that stores something and return its reply.

        Raises:
            Unreachable: no reply in time, or Redis refused it. Busy: Redis has reached its `maxmemory`.
        """
        try:
            return await self.run(script, keys, *words)
        except Unreachable as error:
            if isinstance(error.__cause__, OutOfMemoryError):
                raise Busy("the store has no memory left (maxmemory of Redis); nothing was stored") from error
            raise

    async def within(self, asked: Callable[[], Awaitable[T]]) -> T:
        """Await a reply within the timeout.

        Raises:
            Unreachable: no reply in time, or Redis refused it.
        """
        # Shielded: redis-py returns a connection to its pool after an `await`, which a cancelled scope of anyio
        # interrupts each time; the pool would lose the connection. It ends within `timeout_seconds` anyway.
        try:
            with anyio.CancelScope(shield=True):
                async with asyncio.timeout(self.timeout_seconds):
                    answer = await asked()
        except (RedisError, OSError, TimeoutError) as error:
            logger.debug("redis: %s", type(error).__name__)
            raise self.unreachable() from error
        return answer

    def unreachable(self) -> Unreachable:
        """The error of a Redis that does not answer."""
        return Unreachable(self._address.unreachable)

    async def information(self) -> dict[str, Any]:
        """What Redis tells about itself (INFO).

        Raises:
            Unreachable: it does not answer, or refuses us. BadSetting: it is a cluster.
        """
        told: dict[str, Any] = await self.ask("INFO")
        await self.ask("PING")
        if told["redis_mode"] == "cluster":
            raise BadSetting(f"{self._address.setting}: must lead to a single Redis, not to a cluster")
        return told

    async def require_usable(self) -> dict[str, Any]:
        """Check that this Redis can be used, and return what it tells about itself.

        Raises:
            BadSetting: Redis does not answer, or is a cluster.
        """
        try:
            return await self.information()
        except Unreachable as error:
            raise self.refused(error) from None

    def refused(self, error: Unreachable) -> BadSetting:
        """The error of a start that needs this Redis."""
        cause = type(error.__cause__).__name__
        return BadSetting(f"{self._address.setting}: no Redis answers there, or it refuses us ({cause})")

    async def close(self) -> None:
        """Close every connection."""
        await self.client.aclose()
        await self._pool.disconnect()
        await self._listeners.disconnect()


def hashed(name: str) -> str:
    """Hash a name that a client chose, for use in a key."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
