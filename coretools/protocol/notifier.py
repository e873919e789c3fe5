"""The progress and log messages of one request.

Notifications never make the command wait. The newest progress waits in one slot and messages in a short queue; a task
of the call sends them as fast as the client reads, progress at most `MAX_PER_SECOND` times a second.
"""

import asyncio
import math
from collections import deque
from typing import Any, get_args

import anyio
import mcp_types as types
from mcp.server.connection import allowed_log_levels
from mcp.server.context import ServerRequestContext

from coretools.operations.call import Level
from coretools.operations.content import escape_surrogates
from coretools.truncation import cut_text

MAX_PER_SECOND = 20

FLUSH_SECONDS = 0.5
"""How long the call waits for pending notifications to leave, before its result is sent."""

MAX_MESSAGES = 100
"""Messages queued for a client. The oldest are dropped when there are more, and their number is reported."""

MAX_CHARACTERS = 8_192
"""Longest text sent, in characters; longer ones are truncated."""

MAX_TOTAL_CHARACTERS = 1024 * 1024
"""Characters that one call may send before it is throttled. On a Streamable HTTP session the SDK has one writer for
all responses: a client that leaves one unread blocks the others once its socket buffers are full (2.8 MB on Linux, mcp
2.3.0)."""

THROTTLED_SECONDS = 5.0
"""Time between two progress notifications of a throttled call. Its messages are dropped."""

_NOTIFICATION_OVERHEAD = 250
"""Counted for each notification in addition to its text."""

LOGGER = "coretools"

LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
"""Log levels, least severe first."""

_SMALLEST_STEP = 1e-9
"""Progress must increase with each notification (basic/utilities/progress), even if only its message changes."""


class Notifier:
    """Sends the progress and log messages of one request. The SDK drops progress if the client gave no token."""

    def __init__(self, context: ServerRequestContext[Any], min_level: types.LoggingLevel) -> None:
        """`min_level` is the least severe level that this connection wants."""
        self._session = context.session
        self._request_id = context.request_id
        allowed = allowed_log_levels(context.protocol_version, context.meta)
        self._levels = allowed.intersection(LEVELS[LEVELS.index(min_level) :])
        self._progress: tuple[float, float | None, str | None] | None = None
        self._done = -1.0
        self._total: float | None = None
        self._messages: deque[tuple[Level, str]] = deque(maxlen=MAX_MESSAGES)
        self._dropped = 0
        self._sent_characters = 0
        self._has_news = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._is_finishing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Report progress. A value that does not increase is dropped."""
        if not done > self._done or not math.isfinite(done):
            return
        self._done, self._total = done, total
        self._progress = (done, total, None if message is None else cut_text(message, MAX_CHARACTERS))
        self._wake()

    def log(self, level: Level, text: str) -> None:
        """Send a message: as a log message if the client wants its level, and as the message of the progress."""
        text = cut_text(text, MAX_CHARACTERS)
        if level in self._levels:
            self._dropped += len(self._messages) == MAX_MESSAGES
            self._messages.append((level, text))
        if level != "debug" and self._done != self._total:
            if self._progress is None:
                done = max(self._done, 0.0)
                self._done = max(done + _SMALLEST_STEP, math.nextafter(done, math.inf))
            self._progress = (self._done, self._total, text)
        self._wake()

    async def end(self) -> None:
        """Send what is pending, within `FLUSH_SECONDS`, and stop."""
        if self._task is None:
            return
        self._is_finishing.set()
        try:
            # The result must not wait for a client that reads no notifications.
            with anyio.move_on_after(FLUSH_SECONDS):
                await self._all_sent.wait()
        finally:
            self._task.cancel()

    def _wake(self) -> None:
        self._all_sent.clear()
        self._has_news.set()
        if self._task is None:
            # An asyncio task, not one of a task group: nothing waits for it when the client does not read.
            self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        while True:
            await self._has_news.wait()
            # Cleared before the messages are read: one that comes while the client reads sets it again.
            self._has_news.clear()
            while self._messages:
                await self._send_message(*self._messages.popleft())
            if self._progress is not None:
                (done, total, message), self._progress = self._progress, None
                self._sent_characters += _NOTIFICATION_OVERHEAD + len(message or "")
                await self._session.report_progress(done, total, escape_surrogates(message))
                if not self._is_finishing.is_set():
                    with anyio.move_on_after(
                        1 / MAX_PER_SECOND if self._sent_characters < MAX_TOTAL_CHARACTERS else THROTTLED_SECONDS
                    ):
                        await self._is_finishing.wait()
            if not self._has_news.is_set():
                self._all_sent.set()
                if self._is_finishing.is_set():
                    return

    async def _send_message(self, level: Level, text: str) -> None:
        if self._sent_characters >= MAX_TOTAL_CHARACTERS:
            self._dropped += 1
            return
        self._sent_characters += _NOTIFICATION_OVERHEAD + len(text)
        if self._dropped:
            text, self._dropped = f"[{self._dropped} earlier messages were dropped]\n{text}", 0
        params = types.LoggingMessageNotificationParams(level=level, logger=LOGGER, data=escape_surrogates(text))
        # Not `send_log_message`, which is deprecated and logs a warning about it.
        await self._session.send_notification(
            types.LoggingMessageNotification(params=params), related_request_id=self._request_id
        )
