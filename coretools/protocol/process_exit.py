"""How a process of ours ends: by a signal like by the end of its input, with every child gone, in bounded time."""

import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

import anyio
from anyio.abc import TaskStatus

logger = logging.getLogger(__name__)

END_SECONDS = 5.0
"""After this the process ends whatever still runs in it (a thread stuck in a read of a dead network file system).
Its children end all the same: the guard sees the server go."""


class Ending:
    """Why the process ends. `exit_code` is 0, or 128 and the number of the signal, as a shell counts."""

    def __init__(self, seconds: float = END_SECONDS) -> None:
        """`seconds` is how long the end may take."""
        self.exit_code = 0
        self._seconds = seconds
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """The end has begun: from now on it is bounded."""
        if self._timer is None:
            self._timer = threading.Timer(self._seconds, self._overdue)
            self._timer.daemon = True
            self._timer.start()

    def over(self) -> None:
        """Everything has stopped; a process that goes on is not ended."""
        if self._timer is not None:
            self._timer.cancel()

    def by_signal(self, number: int) -> None:
        """A signal asked for the end; a second one gets it at once."""
        if self.exit_code:
            leave(self.exit_code)
        self.exit_code = 128 + number
        self.begin()

    def _overdue(self) -> None:
        logger.error("something did not stop within %s s; ending without it", self._seconds)
        leave(self.exit_code)


def leave(exit_code: int) -> NoReturn:
    """End the process now, without waiting for threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


async def _nothing() -> None:
    pass


@asynccontextmanager
async def until_signalled(
    ending: Ending, finish: Callable[[], Awaitable[None]] = _nothing
) -> AsyncIterator[anyio.CancelScope]:
    """Run the body until it ends or SIGTERM or SIGINT comes, which cancels it; `ending` says which it was.

    `finish` is awaited before it is cancelled, and takes no longer than the end may.
    """
    # A parent that ignores it hands that on, and then exit codes of children are lost (wait(2)).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    async def watch(scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for number in signals:
                logger.info("ending: %s", number.name)
                ending.by_signal(number)
                watcher.start_soon(finished, scope)  # beside this: a second signal ends at once

    async def finished(scope: anyio.CancelScope) -> None:
        await finish()
        scope.cancel()

    async with anyio.create_task_group() as watcher:
        with anyio.CancelScope() as body:
            # Before the body runs: a signal at its first prompt must not find Python's own handler.
            await watcher.start(watch, body)
            yield body
        watcher.cancel_scope.cancel()


# The end of a server that others still use: told to everything that would wait for them for ever.


class Draining:
    """Whether the server ends. Used on the event loop."""

    def __init__(self) -> None:
        self.has_begun = False
        self._listeners: set[Callable[[], None]] = set()

    def begin(self) -> None:
        """From now on nothing new is begun, and what has no end of its own is ended."""
        if not self.has_begun:
            self.has_begun = True
            for listener in tuple(self._listeners):
                listener()

    def hear(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have a function called when it begins, at once if it has; the result ends that."""
        self._listeners.add(listener)
        if self.has_begun:
            listener()
        return lambda: self._listeners.discard(listener)
