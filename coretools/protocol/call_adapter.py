"""A call that came over MCP, as its command sees it: progress and messages go to the client that sent it."""

import asyncio
import ipaddress
import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, get_args

import anyio
import mcp_types as types
from anyio.lowlevel import checkpoint
from mcp.server.connection import allowed_log_levels
from mcp.server.context import ServerRequestContext

from coretools.config.author import Author
from coretools.operations.call import LOCAL, Capability, Level, SilentCall
from coretools.operations.content import escape_surrogates
from coretools.protocol.extensions import offered
from coretools.protocol.live_questions import Interview
from coretools.questions.kinds import Question

# What a call tells its client while it runs: how far it is, and messages. Never waits for whoever reads.
#
# The newest progress waits in one slot, messages in a short queue; a task of the call's own sends them as fast as the
# client reads, progress not more often than `MOST_PER_SECOND`. What comes meanwhile takes the place of what waits.


MOST_PER_SECOND = 20

LAST_SECONDS = 0.5
"""Waited for the client to take what is left, before the result goes out behind it."""

MOST_MESSAGES = 100
"""That wait for a client; of more the oldest are dropped, and their number is told."""

MOST_CHARACTERS = 8_192
"""Of one text; of a longer one the beginning is told."""

MOST_TOLD = 1024 * 1024
"""Characters that one call tells. On a session of Streamable HTTP the SDK has one writer for all answers: a client that
leaves one unread holds up the others once the buffers of its socket are full (2.8 MB on Linux, mcp 2.3.0)."""

LATE_SECONDS = 5.0
"""Between two progress notifications of a call that told as much; its messages are dropped."""

_FRAME = 250
"""Counted for a notification beside its text."""

LOGGER = "coretools"

LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
"""The least severe first."""

_NUDGE = 1e-9
"""Progress has to increase (basic/utilities/progress), also where only its message is another."""


class Teller:
    """What one request tells. Without a token from the client its progress goes nowhere; that is the SDK's to see."""

    def __init__(self, context: ServerRequestContext[Any], least: types.LoggingLevel) -> None:
        """`least` is the level from which on this connection wants messages."""
        self._session = context.session
        self._request_id = context.request_id
        asked = allowed_log_levels(context.protocol_version, context.meta)
        self._levels = asked.intersection(LEVELS[LEVELS.index(least) :])
        self._progress: tuple[float, float | None, str | None] | None = None
        self._done = -1.0
        self._total: float | None = None
        self._messages: deque[tuple[Level, str]] = deque(maxlen=MOST_MESSAGES)
        self._dropped = 0
        self._told = 0
        self._news = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """How far the work is; what does not advance is dropped."""
        if not done > self._done or not math.isfinite(done):
            return
        self._done, self._total = done, total
        self._progress = (done, total, None if message is None else _cut(message))
        self._tell()

    def log(self, level: Level, text: str) -> None:
        """A message: one of its own where the client wants those, and that of the progress."""
        text = _cut(text)
        if level in self._levels:
            self._dropped += len(self._messages) == MOST_MESSAGES
            self._messages.append((level, text))
        if level != "debug" and self._done != self._total:
            if self._progress is None:
                done = max(self._done, 0.0)
                self._done = max(done + _NUDGE, math.nextafter(done, math.inf))
            self._progress = (self._done, self._total, text)
        self._tell()

    async def end(self) -> None:
        """Nothing more is told: what waits goes out within `LAST_SECONDS`, or not at all."""
        if self._task is None:
            return
        self._ending.set()
        try:
            with anyio.move_on_after(LAST_SECONDS):
                await self._all_sent.wait()
        finally:
            self._task.cancel()

    def _tell(self) -> None:
        self._all_sent.clear()
        self._news.set()
        if self._task is None:
            # A task of asyncio and not of a group: nobody waits for one that its reader holds up.
            self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._messages:
                await self._send_message(*self._messages.popleft())
            if self._progress is not None:
                (done, total, message), self._progress = self._progress, None
                self._told += _FRAME + len(message or "")
                await self._session.report_progress(done, total, escape_surrogates(message))
                if not self._ending.is_set():
                    with anyio.move_on_after(1 / MOST_PER_SECOND if self._told < MOST_TOLD else LATE_SECONDS):
                        await self._ending.wait()
            if not self._news.is_set():
                self._all_sent.set()
                if self._ending.is_set():
                    return

    async def _send_message(self, level: Level, text: str) -> None:
        if self._told >= MOST_TOLD:
            self._dropped += 1
            return
        self._told += _FRAME + len(text)
        if self._dropped:
            text, self._dropped = f"[{self._dropped} messages before this one were left out]\n{text}", 0
        params = types.LoggingMessageNotificationParams(level=level, logger=LOGGER, data=escape_surrogates(text))
        # `send_log_message` does the same and is deprecated, which it would tell in the log of whoever runs this.
        await self._session.send_notification(
            types.LoggingMessageNotification(params=params), related_request_id=self._request_id
        )


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} [{len(text) - MOST_CHARACTERS} more]"


T = TypeVar("T")

PRINCIPAL_KEY = "coretools.principal"
"""Where an HTTP server puts the principal of a request: a key of its ASGI scope."""

AUTHOR_KEY = "coretools.config.author"
"""Where it puts as whom that principal commits, if his token says it."""

SESSION_KEY = "coretools.session"
"""Where it puts the id of the session that the request belongs to, once it is known to be the principal's own."""


def principal_of(context: ServerRequestContext[Any]) -> str:
    """Who calls: as the HTTP request says that carried it; everywhere else whoever started the server."""
    if context.request is None:
        return LOCAL
    principal: str = context.request.scope.get(PRINCIPAL_KEY, LOCAL)
    return principal


def author_in(context: ServerRequestContext[Any]) -> Author | None:
    """As whom the caller commits: as the HTTP request says that carried the call."""
    if context.request is None:
        return None
    author: Author | None = context.request.scope.get(AUTHOR_KEY)
    return author


def session_of(context: ServerRequestContext[Any]) -> str:
    """The session of the request, as the HTTP server says; empty in the stateless era, and over a pair of streams."""
    if context.request is None:
        return ""
    session: str = context.request.scope.get(SESSION_KEY, "")
    return session


def address_in(scope: Mapping[str, Any]) -> str:
    """The address of an HTTP request's client, IPv4 within IPv6 as IPv4; empty where there is none.

    The server has looked behind declared proxies already, and behind no others; what they say may be no address.
    """
    client = scope.get("client")
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0]) if client else None
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address or "")


def address_of(context: ServerRequestContext[Any]) -> str:
    """Where a request came from; empty over a pair of streams."""
    return "" if context.request is None else address_in(context.request.scope)


class ClientCall:
    """One request. Without a progress token from the client no progress is sent."""

    def __init__(
        self,
        context: ServerRequestContext[Any],
        *,
        interview: Interview | None = None,
        least: types.LoggingLevel = "info",
    ) -> None:
        """Without an interview nobody is asked. `least` is the level from which on the client wants messages."""
        self._peer = context.session
        self._make_teller = partial(Teller, context, least)
        self._teller: Teller | None = None
        self._is_over = False
        self._close_stream = context.close_sse_stream
        self._principal = principal_of(context)
        self.author = author_in(context)
        """As whom the caller commits, where his token says it."""
        self.session = session_of(context)
        """The session that it came in; empty where there is none."""
        self.address = address_of(context)
        """Where it came from; empty over a pair of streams."""
        self._interview = interview or SilentCall(trusts_answers=False)

    @property
    def principal(self) -> str:
        """Who calls."""
        return self._principal

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Kept for the questions."""
        self._interview.prefill(answers, asks)

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Have it sent; waits for nobody. What comes too fast or does not advance is dropped."""
        if not self._is_over:
            self._telling().progress(done, total, message)
        await checkpoint()

    async def log(self, level: Level, text: str) -> None:
        """Have it sent; waits for nobody."""
        if not self._is_over:
            self._telling().log(level, text)
        await checkpoint()

    async def end(self) -> None:
        """Have what is left to tell go out before the result, for half a second at most. Nothing is told after it."""
        self._is_over = True
        if self._teller is not None:
            await self._teller.end()

    def offers(self, capability: Capability) -> bool:
        """As the client declared: in its handshake, or with this request."""
        return offered(self._peer.client_capabilities, capability)

    async def close_stream(self) -> None:
        """Where events are kept (Streamable HTTP, revision 2025-11-25): the client asks for them by Last-Event-ID."""
        if self._close_stream is not None:
            await self._close_stream()

    async def ask(self, question: Question[T]) -> T:
        """As the client can."""
        answer: T
        (answer,) = await self._interview.ask_all(question)
        return answer

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """As the client can; in the stateless era at once."""
        return await self._interview.ask_all(*questions)

    def _telling(self) -> Teller:
        """Made when the command has something to tell: most have nothing."""
        if self._teller is None:
            self._teller = self._make_teller()
        return self._teller
