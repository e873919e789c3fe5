"""The client of Redis: limits on time and connections, failures as `Unreachable`, and a URL that is never shown.

It runs small scripts, each of which Redis executes atomically. A single Redis works, also behind the one address of
Sentinel or a provider; a Redis Cluster does not, because the scripts use keys of several slots.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from coretools.errors import BadSetting, Unreachable
from coretools.web.common.config import RedisSection
from coretools.web.replicas.stores import UNREACHABLE

CONNECTIONS = 64
"""Connections at once; further callers wait for one within their timeout. With 2,000 callers that is milliseconds."""

SCHEMES = ("redis://", "rediss://", "unix://")

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Script:
    """A Lua script; Redis knows it by its digest once it was sent."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()  # SHA-1, as EVALSHA requires


class RedisEngine:
    """The client of one Redis, shared by all stores of a replica."""

    def __init__(self, section: RedisSection) -> None:
        """Does not connect yet.

        Raises:
            BadSetting: the URL is malformed; it is not repeated, because it may contain a password.
        """
        self.timeout_seconds = section.timeout_seconds
        self._prefix = section.prefix
        if not section.url.startswith(SCHEMES):
            raise BadSetting(f"redis.url: must begin with one of {', '.join(SCHEMES)}")
        try:
            self._pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
                section.url,
                max_connections=CONNECTIONS,
                timeout=section.timeout_seconds,
                socket_timeout=section.timeout_seconds,
                socket_connect_timeout=section.timeout_seconds,
                # No retry: a command that was sent may have been executed.
                retry=Retry(NoBackoff(), 0),
                protocol=2,
            )
        except (ValueError, TypeError):
            # Without the cause: for `redis://:a/b@host` it names "a" as a bad port.
            raise BadSetting("redis.url: can't be read; write reserved characters of a password as %XX") from None
        self.client: Any = Redis.from_pool(self._pool)
        """`Any`: redis-py annotates every command as possibly synchronous."""

    def key(self, kind: str, name: str = "") -> str:
        """Build a key with our prefix. Callers hash the parts that clients choose."""
        return f"{self._prefix}{kind}:{name}" if name else f"{self._prefix}{kind}"

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
            raise Unreachable(UNREACHABLE) from error
        return answer

    async def require_usable(self) -> str:
        """Check that this Redis can be used and return its version.

        Raises:
            BadSetting: Redis does not answer, or is a cluster.
        """
        try:
            server = await self.ask("INFO", "server")
            await self.ask("PING")
        except Unreachable as error:
            cause = type(error.__cause__).__name__
            raise BadSetting(f"redis.url: no Redis answers there, or it refuses us ({cause})") from None
        if server["redis_mode"] == "cluster":
            raise BadSetting("redis.url: must lead to a single Redis, not to a cluster")
        return str(server["redis_version"])

    async def close(self) -> None:
        """Close every connection."""
        await self.client.aclose()
        await self._pool.disconnect()


def hashed(name: str) -> str:
    """Hash a name that a client chose, for use in a key."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
