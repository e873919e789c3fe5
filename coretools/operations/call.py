"""The call that a command is part of. Each surface (MCP, command line, REPL, test) implements `Call`."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, NewType, Protocol, TypeVar, overload

from coretools.config.commit_author import Author
from coretools.operations.declare import Channel
from coretools.operations.session_state import SessionState
from coretools.questions.answer_resolution import AnswerResolution, AskChannel, declined_error
from coretools.questions.kinds import AskConfirmation, Question

T = TypeVar("T")
T2 = TypeVar("T2")
T3 = TypeVar("T3")

LOCAL = "local"
"""The principal of a server that a user started for themselves."""

Level = Literal["debug", "info", "warning", "error"]

Principal = NewType("Principal", str)
"""The identity of the caller. A command gets it as a parameter of this type."""

Capability = str
"""A capability of the client: `elicitation` (asks its user), `sampling` (asks its model), `roots` (lists its
directories), or the identifier of an extension, which contains a slash."""


class Call(Protocol):
    """What a command can do during a call. A command gets it as a parameter of this type."""

    @property
    def principal(self) -> str:
        """The identity of the caller."""
        ...

    @property
    def channel(self) -> Channel:
        """Where the call comes from. For the form of an answer only: a declaration decides who may call a command."""
        ...

    @property
    def author(self) -> Author | None:
        """The author for commits, from the caller's token; None for that of the role or the server."""
        ...

    @property
    def session(self) -> str:
        """The session of the call, whose end also ends the runs started in it; empty without one."""
        ...

    @property
    def state(self) -> SessionState | None:
        """What commands keep for the caller's session; None without one: a stateless request, a task, one line."""
        ...

    @property
    def address(self) -> str:
        """The network address of the caller; empty without a network."""
        ...

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Store the prefilled answers, by the key of the question.

        `asks` are the keys that the command declared; asking another is a bug of the command. None allows any.
        """
        ...

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress. Never blocks for long: a surface drops messages that come too fast."""
        ...

    async def log(self, level: Level, text: str) -> None:
        """Send a log message to the client. Never blocks for long."""
        ...

    def has_capability(self, capability: Capability) -> bool:
        """Whether the client declared this capability. `ask` checks it itself; this is for commands that must know."""
        ...

    async def close_stream(self) -> None:
        """Close the stream so that the client resumes later, where it can; elsewhere do nothing."""
        ...

    async def ask(self, question: Question[T]) -> T:
        """Ask one question and return its answer. A command must not change anything before its last question.

        Raises:
            AnswerNeeded: nobody can be asked; names the answer to prefill.
            Declined: the question was declined.
            InvalidArguments: the response is not a valid answer.
        """
        ...

    @overload
    async def ask_all(self, first: Question[T], second: Question[T2], /) -> tuple[T, T2]: ...
    @overload
    async def ask_all(self, first: Question[T], second: Question[T2], third: Question[T3], /) -> tuple[T, T2, T3]: ...
    @overload
    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]: ...

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Ask several questions at once and return their answers in the same order.

        Raises:
            What `ask` raises.
        """
        ...


NO_ANSWERS: Mapping[str, Any] = {}


class SilentCall:
    """A call without a user, such as that of a unit test: shows nothing; answers are prefilled, or the defaults."""

    channel: Channel = "none"
    author: Author | None = None
    session = ""
    state: SessionState | None = None
    address = ""

    def __init__(
        self, principal: str = LOCAL, *, answers: Mapping[str, Any] = NO_ANSWERS, trusts_answers: bool = True
    ) -> None:
        """`answers` by the key of their question. `trusts_answers`: also to what needs a person."""
        self.principal = principal
        """The identity of the caller."""
        self._resolution = AnswerResolution("defaults", trusts_answers=trusts_answers)
        self.prefill(answers)

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Store the answers."""
        self._resolution.prefill(answers, asks)

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Do nothing."""

    async def log(self, level: Level, text: str) -> None:
        """Do nothing."""

    def has_capability(self, _: Capability) -> bool:
        """False."""
        return False

    async def close_stream(self) -> None:
        """Do nothing."""

    async def ask(self, question: Question[T]) -> T:
        """Return the prefilled answer, or the default."""
        resolved = self._resolution.resolve(question, ())
        if isinstance(resolved, AskChannel):
            raise self._resolution.answer_needed(question)
        return resolved.answer

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Return the prefilled answers, or the defaults."""
        return tuple([await self.ask(question) for question in questions])


async def require_confirmation(call: Call, question: AskConfirmation) -> None:
    """Ask for confirmation and return only if it is given.

    Raises:
        Declined: the answer was no. AnswerNeeded: nobody can be asked.
    """
    if not await call.ask(question):
        raise declined_error(question, "the answer was no")


# Nonblocking functions (ADR 0002): the dispatcher first calls a function declared `nonblocking` on the event loop. The
# function calls `require_thread()` before it waits for anything. On the event loop that raises `WouldBlock`, and the
# dispatcher calls the same function again in a worker thread, where `require_thread()` does nothing.


_MAY_BLOCK: ContextVar[bool] = ContextVar("coretools_may_block", default=True)


class WouldBlock(Exception):  # named as in POSIX (EWOULDBLOCK); not a failure
    """The function would have to wait, but runs on the event loop."""


def may_block() -> bool:
    """Whether the current code may wait: true except in a nonblocking call on the event loop."""
    return _MAY_BLOCK.get()


def require_thread() -> None:
    """Continue only where waiting is allowed.

    Raises:
        WouldBlock: this is the nonblocking call on the event loop.
    """
    if not _MAY_BLOCK.get():
        raise WouldBlock


def run_nonblocking(function: Callable[..., T], arguments: Mapping[str, Any]) -> T:
    """Call a function on the event loop, where it must not wait.

    Raises:
        WouldBlock: the function would have to wait.
    """
    token = _MAY_BLOCK.set(False)
    try:
        return function(**arguments)
    finally:
        _MAY_BLOCK.reset(token)
