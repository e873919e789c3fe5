"""The `Call` of an MCP request: who made it, and what a command can do meanwhile."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import mcp_types as types
from anyio.lowlevel import checkpoint
from mcp.server.context import ServerRequestContext

from coretools.config.commit_author import Author
from coretools.egress.hosts import system_address
from coretools.operations.call import LOCAL, Capability, Level
from coretools.operations.declare import Channel
from coretools.operations.session_state import SessionState
from coretools.protocol.extensions import has_capability
from coretools.protocol.live_questions import CallQuestions
from coretools.protocol.notifier import Notifier
from coretools.questions.kinds import Question

T = TypeVar("T")

PRINCIPAL_KEY = "coretools.principal"
"""Key of the ASGI scope under which an HTTP server stores the principal of a request."""

AUTHOR_KEY = "coretools.config.commit_author"
"""Key for the author of that principal's commits, if its token names one."""

SESSION_KEY = "coretools.session"
"""Key for the id of the request's session, once the session is known to belong to the principal."""


def _scope_of(context: ServerRequestContext[Any]) -> Mapping[str, Any]:
    """Return the ASGI scope of an HTTP request; empty on other transports."""
    return {} if context.request is None else context.request.scope


def principal_of(context: ServerRequestContext[Any]) -> str:
    """Return the caller: the principal of the HTTP request, or the user who started the server on other transports."""
    principal: str = _scope_of(context).get(PRINCIPAL_KEY, LOCAL)
    return principal


def author_in(context: ServerRequestContext[Any]) -> Author | None:
    """Return the author of the caller's commits, as the HTTP request states it."""
    author: Author | None = _scope_of(context).get(AUTHOR_KEY)
    return author


def session_of(context: ServerRequestContext[Any]) -> str:
    """Return the id of the request's HTTP session; empty in the stateless era and on a pair of streams."""
    session: str = _scope_of(context).get(SESSION_KEY, "")
    return session


def address_in(scope: Mapping[str, Any]) -> str:
    """Return the client address of an HTTP request, IPv4-mapped IPv6 as IPv4; empty if there is none.

    The server has already applied the headers of declared proxies, and of no others. Their value may not be an address.
    """
    client = scope.get("client")
    try:
        return str(system_address(client[0])) if client else ""
    except ValueError:
        return ""


def address_of(context: ServerRequestContext[Any]) -> str:
    """Return the client address of a request; empty on a pair of streams."""
    return address_in(_scope_of(context))


class ClientCall:
    """The `Call` of one request. Progress is sent only if the client gave a progress token."""

    channel: Channel = "mcp"

    def __init__(
        self,
        context: ServerRequestContext[Any],
        questions: Callable[[], CallQuestions],
        *,
        min_level: types.LoggingLevel,
        state: SessionState | None = None,
    ) -> None:
        """`questions` returns those of this call, created on first use: most commands ask nothing.

        `min_level` is the least severe level of messages for the client.
        """
        self._client_session = context.session
        self._make_notifier = partial(Notifier, context, min_level)
        self._notifier: Notifier | None = None
        self._is_closed = False
        self._close_stream = context.close_sse_stream
        self.principal = principal_of(context)
        """The caller."""
        self.author = author_in(context)
        """Author of the caller's commits, if its token names one."""
        self.session = session_of(context)
        """Id of the session; empty if there is none."""
        self.state = state
        """What commands keep for the session; None if there is none."""
        self.address = address_of(context)
        """Client address; empty on a pair of streams."""
        self._questions = questions
        self._prefilled: tuple[Mapping[str, Any], Sequence[str] | None] = ({}, None)

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Keep these answers for the questions of this call."""
        self._prefilled = (answers, asks)

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Queue a progress notification without waiting for the client. Values that do not increase are dropped."""
        if not self._is_closed:
            self._get_notifier().progress(done, total, message)
        await checkpoint()

    async def log(self, level: Level, text: str) -> None:
        """Queue a log message without waiting for the client."""
        if not self._is_closed:
            self._get_notifier().log(level, text)
        await checkpoint()

    async def end(self) -> None:
        """Send pending notifications before the result, for `notifier.FLUSH_SECONDS` at most; drop later ones."""
        self._is_closed = True
        if self._notifier is not None:
            await self._notifier.end()

    def has_capability(self, capability: Capability) -> bool:
        """Whether the client declared a capability, in its handshake or with this request."""
        return has_capability(self._client_session.client_capabilities, capability)

    async def close_stream(self) -> None:
        """Close the SSE stream if its events are stored; the client resumes with `Last-Event-ID` (2025-11-25)."""
        if self._close_stream is not None:
            await self._close_stream()

    async def ask(self, question: Question[T]) -> T:
        """Ask in a way that the client supports."""
        answer: T
        (answer,) = await self.ask_all(question)
        return answer

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Ask in a way that the client supports; in the stateless era all questions at once."""
        asking = self._questions()
        asking.prefill(*self._prefilled)
        return await asking.ask_all(*questions)

    def _get_notifier(self) -> Notifier:
        """Return the notifier, created on first use: most commands send nothing."""
        if self._notifier is None:
            self._notifier = self._make_notifier()
        return self._notifier
