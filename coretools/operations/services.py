"""What commands share: values by key, messages to whoever listens, work that waits in a queue.

A command gets it by naming a parameter of the type `Services`. It belongs to the server, not to a call, a connection or
a principal: what one command puts there every other one can read, so a key that is somebody's must say whose.
These are protocols; `coretools.operations.memory_services` is the default, and an engine that outlives the process can
take its place. A plain `def` command, which runs in a worker thread, uses them through `anyio.from_thread.run`.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


class Values(Protocol):
    """Bytes by key."""

    async def get(self, key: str) -> bytes | None:
        """What stands at the key; None when nothing does, or its time is over."""
        ...

    async def set(self, key: str, value: bytes, *, ttl_seconds: float | None = None) -> None:
        """Put a value there, whatever stood there; for a time, or until it is deleted.

        Raises:
            TooLarge: the value, or the key. Busy: there are too many, or too many bytes.
        """
        ...

    async def delete(self, key: str) -> bool:
        """Take away what stands at the key; whether something did."""
        ...

    async def compare_and_set(
        self, key: str, expected: bytes | None, value: bytes | None, *, ttl_seconds: float | None = None
    ) -> bool:
        """Put a value there if what stands there is the expected one, in one step; whether it was.

        None is nothing: expected, it puts only where nothing stands; as the value, it takes away.

        Raises:
            What `set` raises.
        """
        ...


class Subscription(Protocol):
    """The messages of one topic since the subscription began, in their order."""

    @property
    def dropped(self) -> int:
        """Messages that this subscriber was too slow for: the oldest go first."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Waits for the next one."""
        ...

    async def __anext__(self) -> bytes:
        """The next message."""
        ...


class Topics(Protocol):
    """Messages to everybody who listens at the time. Nothing is kept for later, and no publisher ever waits."""

    async def publish(self, topic: str, message: bytes) -> int:
        """Give a message to every subscriber; how many there are.

        Raises:
            TooLarge: the message, or the name of the topic.
        """
        ...

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[Subscription]:
        """Listen until the end of the block.

        Raises:
            Busy: too many listen already.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One piece of work, leased to whoever got it."""

    id: str
    """Another one each time that it is given out: who lost his lease can't acknowledge for who has it now."""
    queue: str
    data: bytes
    attempt: int
    """1 the first time; more after a lease that ran out or was released."""


class Queues(Protocol):
    """Work that is done at least once: what was got and is not acknowledged within its lease is given out again."""

    async def put(self, queue: str, data: bytes) -> None:
        """Add work at the end.

        Raises:
            TooLarge: the data, or the name of the queue. Busy: too much waits already.
        """
        ...

    async def get(self, queue: str, *, lease_seconds: float = 60.0) -> Job:
        """The first that waits; waits for one."""
        ...

    async def acknowledge(self, job: Job) -> bool:
        """Say that it is done; False when the lease was over, so that somebody else may do it too."""
        ...

    async def release(self, job: Job) -> bool:
        """Give it back, to the front; False when the lease was over."""
        ...


class Services(Protocol):
    """What commands share. A command gets it by naming a parameter of this type."""

    @property
    def values(self) -> Values:
        """Values by key."""
        ...

    @property
    def topics(self) -> Topics:
        """Publish and subscribe."""
        ...

    @property
    def queues(self) -> Queues:
        """Queues of work."""
        ...
