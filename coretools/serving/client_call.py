"""A call that came over MCP, as its command sees it: progress and messages go to the client that sent it."""

import ipaddress
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import mcp_types as types
from anyio.lowlevel import checkpoint
from mcp.server.context import ServerRequestContext

from coretools.asking import Question
from coretools.author import Author
from coretools.call import LOCAL, Capability, Level, SilentCall
from coretools.serving.asking import Interview
from coretools.serving.extending import offered
from coretools.serving.telling import Teller

T = TypeVar("T")

PRINCIPAL_KEY = "coretools.principal"
"""Where an HTTP server puts the principal of a request: a key of its ASGI scope."""

AUTHOR_KEY = "coretools.author"
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
