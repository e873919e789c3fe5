"""The connection to Redis: bounded in time and number, its failures as `Unreachable`, its URL never shown.

What it is asked is small scripts, each of which Redis carries out as one step. Standing alone and behind Sentinel's
or a provider's single address it serves us; a Redis Cluster does not, because the scripts touch keys of several slots.
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

CONNECTIONS = 64
"""At once; who comes later waits for one, within his own timeout. With 2,000 callers each waits some milliseconds."""

SCHEMES = ("redis://", "rediss://", "unix://")

SAID = "what the replicas of this server share can't be reached now; try again in a moment"

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Script:
    """A script, known to Redis by its digest once it was sent."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()  # as EVALSHA names scripts


class RedisEngine:
    """One Redis, for everything of one replica."""

    def __init__(self, section: RedisSection) -> None:
        """Nothing is connected yet.

        Raises:
            BadSetting: the URL is none; it is not repeated, because it may hold a password.
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
                # No retry: a command that was sent may have been carried out.
                retry=Retry(NoBackoff(), 0),
                protocol=2,
            )
        except (ValueError, TypeError):
            # The cause is left out as well: for `redis://:a/b@host` it says that "a" is no port.
            raise BadSetting("redis.url: can't be read; write reserved characters of a password as %XX") from None
        self.client: Any = Redis.from_pool(self._pool)
        """`Any`: the annotations of redis-py say of every command that it may be one of its synchronous client."""

    def key(self, kind: str, name: str = "") -> str:
        """A key of ours. What a client chose is hashed by whoever calls this."""
        return f"{self._prefix}{kind}:{name}" if name else f"{self._prefix}{kind}"

    async def ask(self, *words: str | bytes | float) -> Any:
        """One command and its answer.

        Raises:
            Unreachable: there was none in time, or Redis refused it.
        """
        return await self.within(lambda: self.client.execute_command(*words))

    async def run(self, script: Script, keys: tuple[str, ...], *words: str | bytes | float) -> Any:
        """One script and its answer.

        Raises:
            Unreachable: there was none in time, or Redis refused it.
        """

        async def sent() -> Any:
            try:
                return await self.client.execute_command("EVALSHA", script.digest, len(keys), *keys, *words)
            except NoScriptError:  # the first time, and after Redis was started again
                return await self.client.execute_command("EVAL", script.text, len(keys), *keys, *words)

        return await self.within(sent)

    async def within(self, asked: Callable[[], Awaitable[T]]) -> T:
        """The answer to what is asked of the client, in time.

        Raises:
            Unreachable: there was none, or Redis refused it.
        """
        # Shielded: redis-py gives a connection back to its pool behind an `await`, which a cancelled scope of anyio
        # would interrupt each time; the connection would be lost to the pool. It is over in `timeout_seconds` anyway.
        try:
            with anyio.CancelScope(shield=True):
                async with asyncio.timeout(self.timeout_seconds):
                    answer = await asked()
        except (RedisError, OSError, TimeoutError) as error:
            logger.debug("redis: %s", type(error).__name__)
            raise Unreachable(SAID) from error
        return answer

    async def require_usable(self) -> str:
        """Whether it is one that we can use; its version.

        Raises:
            BadSetting: it does not answer, or is a cluster.
        """
        try:
            found = await self.ask("INFO", "server")
            await self.ask("PING")
        except Unreachable as error:
            cause = type(error.__cause__).__name__
            raise BadSetting(f"redis.url: no Redis answers there, or it refuses us ({cause})") from None
        if found["redis_mode"] == "cluster":
            raise BadSetting("redis.url: must lead to a single Redis, not to a cluster")
        return str(found["redis_version"])

    async def close(self) -> None:
        """Close every connection."""
        await self.client.aclose()
        await self._pool.disconnect()


def hashed(name: str) -> str:
    """A name of any length, and of anybody's choice, as a part of a key."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
