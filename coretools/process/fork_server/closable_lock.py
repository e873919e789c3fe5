"""A lock whose holder can be cancelled, so that what it protects can be closed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio import CancelScope

from coretools.process.fork_server.messages import ForkServerFailed


class ClosableLock:
    """`async with lock` waits for the lock even after `close`; `async with lock.until_closed()` is cancelled by it."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._scope = CancelScope()
        self.is_closed = False

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        """Whether a task has the lock."""
        return self._lock.locked()

    @asynccontextmanager
    async def until_closed(self) -> AsyncIterator[None]:
        """Have the lock until the end of the block or until `close`, which cancels the block.

        Raises:
            ForkServerFailed: the lock was closed, before or during the block.
        """
        async with self._lock:
            with CancelScope() as self._scope:
                if not self.is_closed:
                    yield
            if self.is_closed:
                raise ForkServerFailed("the commands of this server are being ended")

    def close(self) -> None:
        """Cancel the block of `until_closed` and refuse later ones. The lock is free once the block has ended."""
        self.is_closed = True
        self._scope.cancel()
