"""What several servers write to one terminal: one question at a time, and messages that never break into it."""

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio

from coretools.cli.common.terminal import TerminalCapabilities, print_error, print_text
from coretools.cli.mcp.output import event_line, in_line, visible, without_commands

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from coretools.cli.common.progress_bar import ProgressBar

MAX_HELD = 200
"""Messages kept while a question is open; the oldest are dropped and counted."""


class Screen:
    """Standard error of a client of several servers."""

    def __init__(self, terminal: TerminalCapabilities, *, logs_events: bool = False) -> None:
        """`logs_events` prints log messages of servers as events to standard output (`--output ndjson`)."""
        self.terminal = terminal
        self._logs_events = logs_events
        self.is_at_prompt = False
        """A line is being typed: no question can be asked."""
        self._lock = anyio.Lock()
        self._question: anyio.CancelScope | None = None
        self._is_asking = False
        self._held: deque[str] = deque(maxlen=MAX_HELD)
        self._dropped = 0
        self._bar: ProgressBar | None = None

    def say(self, text: str) -> None:
        """Print a message above the progress bar; while a question is open, after its answer."""
        if self._is_asking:
            self._dropped += len(self._held) == MAX_HELD
            self._held.append(text)
            return
        with self._paused():
            print_error(in_line(text))

    def say_lines(self, text: str) -> None:
        """Print several lines as they are, each marked, so that none is taken for a message of ours."""
        with self._paused():
            for line in visible(text).splitlines():
                print_error("| " + without_commands(line))

    def log(self, server: str, level: str, logger: str, text: str) -> None:
        """Print a log message of a server."""
        if self._logs_events:
            print_text(event_line("log", {"server": server, "level": level, "logger": logger, "message": text}))
            return
        self.say(f"server {server!r}: {level}{f' [{logger}]' if logger else ''}: {text}")

    async def end_questions(self) -> None:
        """End the open question, if there is one, and wait until nothing reads from the terminal."""
        self.is_at_prompt = True  # one that waits for its turn is declined
        if self._question is not None:
            self._question.cancel()
        async with self._lock:
            pass

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Hold the terminal for one question. If it is cancelled, the body ends early and the block is left."""
        async with self._lock:
            with self._paused(), anyio.CancelScope() as self._question:
                self._is_asking = True
                try:
                    yield
                finally:
                    self._is_asking = False
                    self._print_held()

    @contextmanager
    def progress(self) -> "Iterator[ProgressFnT | None]":
        """Yield what shows the progress of a call; None if nobody sees it."""
        if not self.terminal.can_show_progress:
            yield None
            return
        from coretools.cli.common.progress_bar import (
            ProgressBar,  # imported late: only a terminal needs it, and it takes 30 ms
        )

        bar = self._bar = ProgressBar(is_shown=True)

        async def show(progress: float, total: float | None, message: str | None) -> None:
            if not self._is_asking:  # the bar would be drawn over the question
                bar.step(progress, total, None if message is None else in_line(message))

        try:
            yield show
        finally:
            bar.close()
            self._bar = None

    def _paused(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._bar is None else self._bar.paused()

    def _print_held(self) -> None:
        if self._dropped:
            print_error(f"[{self._dropped} earlier messages are not shown]")
            self._dropped = 0
        while self._held:
            print_error(in_line(self._held.popleft()))
