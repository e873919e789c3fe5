"""Orderly exit of a server process: on a signal or at the end of input, without children left, in bounded time."""

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

EXIT_SECONDS = 5.0
"""After this time the process exits whatever still runs (a thread blocked by a dead network file system, say). Its
children end too: the watchdog notices that the server is gone."""


class ProcessExit:
    """How the process exits. `exit_code` is 0, or 128 plus the signal's number, as in a shell."""

    def __init__(self, seconds: float = EXIT_SECONDS) -> None:
        """`seconds` is how long the shutdown may take."""
        self.exit_code = 0
        self._seconds = seconds
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Begin the shutdown; from now on its time is limited."""
        if self._timer is None:
            self._timer = threading.Timer(self._seconds, self._on_deadline)
            self._timer.daemon = True
            self._timer.start()

    def cancel_deadline(self) -> None:
        """Cancel the time limit: everything has stopped, and the process may go on."""
        if self._timer is not None:
            self._timer.cancel()

    def on_signal(self, number: int) -> None:
        """Begin the shutdown for a signal; a second signal exits at once."""
        if self.exit_code:
            exit_process(self.exit_code)
        self.exit_code = 128 + number
        self.begin()

    def _on_deadline(self) -> None:
        logger.error("shutdown did not finish within %s s; exiting now", self._seconds)
        exit_process(self.exit_code)


def exit_process(exit_code: int) -> NoReturn:
    """Exit now, without waiting for threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


@asynccontextmanager
async def cancel_on_signal(
    process_exit: ProcessExit, finish: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[anyio.CancelScope]:
    """Run the body until it ends, or until SIGTERM or SIGINT cancels it; `process_exit` records the signal.

    `finish` is awaited before the cancellation, within the time limit of the shutdown.
    """
    # An ignored SIGCHLD is inherited from the parent, and would lose the exit codes of children (wait(2)).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    async def watch(scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for number in signals:
                logger.info("shutting down: %s", number.name)
                process_exit.on_signal(number)
                watcher.start_soon(finish_and_cancel, scope)  # concurrently: a second signal exits at once

    async def finish_and_cancel(scope: anyio.CancelScope) -> None:
        if finish is not None:
            await finish()
        scope.cancel()

    async with anyio.create_task_group() as watcher:
        with anyio.CancelScope() as body:
            # Before the body runs: an early signal must not reach Python's default handler.
            await watcher.start(watch, body)
            yield body
        watcher.cancel_scope.cancel()
