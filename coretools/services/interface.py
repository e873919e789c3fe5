"""Services that commands share: a key-value store, publish and subscribe, and work queues.

A command gets them as a parameter of type `Services`. They belong to the server, not to a call, a connection or a
principal: every command can read what another one stores, so a key for one principal must contain its name. These are
protocols; `coretools.services.memory` is the default, and `coretools.services.connect` opens engines that outlive the
process. With these every operation can raise `Unreachable`: the store did not answer in time, and what was asked of it
may have happened. A plain `def` command, which runs in a worker thread, uses services through `anyio.from_thread.run`.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

UNREACHABLE = "the store of the services can't be reached; the operation may have happened; try again later"
"""The text of `Unreachable`."""


class Values(Protocol):
    """A key-value store of bytes."""

    async def get(self, key: str) -> bytes | None:
        """The value of the key; None if there is none or it has expired."""
        ...

    async def set(self, key: str, value: bytes, *, ttl_seconds: float | None = None) -> None:
        """Set the value of the key, until it expires or is deleted.

        Raises:
            TooLarge: the value or the key is too long. Busy: the store is full.
        """
        ...

    async def delete(self, key: str) -> bool:
        """Delete the key. Returns whether it existed."""
        ...

    async def compare_and_set(
        self, key: str, expected: bytes | None, value: bytes | None, *, ttl_seconds: float | None = None
    ) -> bool:
        """Set the value in one atomic step if the current one is as expected. Returns whether it was.

        None means no value: as `expected` it sets only a missing key, as `value` it deletes the key.

        Raises:
            As `set`.
        """
        ...


class Subscription(Protocol):
    """The messages of one topic since the subscription began, in order."""

    @property
    def dropped(self) -> int:
        """Number of messages that this subscriber lost.

        It was too slow (the oldest are dropped first), or the connection to the store was lost meanwhile; a loss of
        unknown size counts as one.
        """
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the messages, waiting for the next one."""
        ...

    async def __anext__(self) -> bytes:
        """The next message."""
        ...


class Topics(Protocol):
    """Publish and subscribe. Messages reach current subscribers only, and a publisher never waits."""

    async def publish(self, topic: str, message: bytes) -> int | None:
        """Send a message to every subscriber. Returns their number; None if the engine cannot know it.

        Raises:
            TooLarge: the message or the topic name is too long.
        """
        ...

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[Subscription]:
        """Subscribe until the end of the block.

        Raises:
            Busy: there are too many subscribers.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One piece of work, leased to the worker that got it."""

    id: str
    """Identifies the lease. An expired lease cannot acknowledge for the current holder."""
    queue: str
    data: bytes
    attempt: int
    """1 the first time; increases after each lease that expired or was released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """Numbers of items in one queue."""

    waiting: int
    leased: int
    """Items of workers whose leases have not expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTotals:
    """Numbers of items in all queues."""

    waiting: int
    leased: int
    """Leased, or with a lease that has expired since the queue was last used."""
    dead: int
    """Items in queues of dead letters."""


DEAD_SUFFIX = ".dead"


def dead_letters(queue: str) -> str:
    """The name of the queue that takes the dead letters of a queue. A queue of dead letters has none of its own."""
    return queue if queue.endswith(DEAD_SUFFIX) else queue + DEAD_SUFFIX


class Queues(Protocol):
    """Work queues with at-least-once delivery: an item not acknowledged within its lease is delivered again.

    An item that was leased `ServiceLimits.attempts` times and never acknowledged is a dead letter: it moves to the end
    of the queue `dead_letters(queue)`, with its attempts counted anew. That is a queue like any other. To try an item
    again, put its data back, then acknowledge it there.
    """

    async def put(self, queue: str, data: bytes) -> None:
        """Add an item at the end of the queue.

        Raises:
            TooLarge: the data or the queue name is too long. Busy: the queues are full. Unreachable: the store did not
                answer; the item may have been added nevertheless.
        """
        ...

    async def get(self, queue: str, *, lease_seconds: float = 60.0) -> WorkItem:
        """Lease the first item of the queue, waiting for one if it is empty.

        To wait for a time, cancel it: `with anyio.move_on_after(10)`. An item that arrives in that moment is delivered
        to the next one, at the latest when its lease ends. Give it 10 s or more to tell a store that is away, which is
        waited for up to 6 s, from a queue that is empty.

        Raises:
            Unreachable: the store does not answer.
        """
        ...

    async def acknowledge(self, item: WorkItem) -> bool:
        """Mark an item as done. Returns False if the lease had expired, so another worker may do it too."""
        ...

    async def release(self, item: WorkItem) -> bool:
        """Return an item to the queue, before those that were never leased. Returns False if the lease had expired."""
        ...

    async def extend(self, item: WorkItem, *, lease_seconds: float = 60.0) -> bool:
        """Let the lease end so many seconds from now. Returns False if it had expired."""
        ...

    async def reject(self, item: WorkItem) -> bool:
        """Move an item to the dead letters at once. Returns False if the lease had expired."""
        ...

    async def counts(self, queue: str) -> QueueCounts:
        """The numbers of items in the queue."""
        ...


class Services(Protocol):
    """The services shared by all commands. A command gets them as a parameter of this type."""

    @property
    def values(self) -> Values:
        """The key-value store."""
        ...

    @property
    def topics(self) -> Topics:
        """Publish and subscribe."""
        ...

    @property
    def queues(self) -> Queues:
        """The work queues."""
        ...


class ServiceEngine(Services, Protocol):
    """Services with what the server that opened them reports: readiness and metrics."""

    async def check(self) -> str:
        """Check that they can be used now, and say what they are, such as `redis 7.0.15`.

        Raises:
            Unreachable: their store does not answer.
        """
        ...

    async def totals(self) -> QueueTotals:
        """The numbers of items in all queues.

        Raises:
            Unreachable: their store does not answer.
        """
        ...
