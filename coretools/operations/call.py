"""One call as a command sees it. Each surface (MCP, command line, REPL, test) supplies its own."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, Protocol, TypeVar

from coretools.config.author import Author
from coretools.questions.kinds import AskConfirmation, Question
from coretools.questions.resolution import AnswerResolution, AskChannel, declined_error

T = TypeVar("T")

LOCAL = "local"
"""The principal of a server that one person started for himself."""

Level = Literal["debug", "info", "warning", "error"]

Capability = str
"""What a client may offer: `elicitation` (to ask the person before it), `sampling` (to ask its model), `roots` (to name
the directories it works on), or an extension by its identifier, which has a slash in it."""


class Call(Protocol):
    """What a command may ask of its surface. A command gets one by naming a parameter of this type."""

    @property
    def principal(self) -> str:
        """Who calls."""
        ...

    @property
    def author(self) -> Author | None:
        """As whom the caller commits, where his token says it; None: as the role or the server does."""
        ...

    @property
    def session(self) -> str:
        """The session that it came in, whose end is that of what it leaves behind; empty where there is none."""
        ...

    @property
    def address(self) -> str:
        """The network address that it came from; empty where it came over no network."""
        ...

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Take the answers that the caller gave beforehand, by the key of the question.

        `asks` are the keys that the command declared; another is a bug of it. None: whatever it asks.
        """
        ...

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work is. Never blocks for long: a surface drops what comes too fast."""
        ...

    async def log(self, level: Level, text: str) -> None:
        """Say what happens, to whoever looks on. Never blocks for long."""
        ...

    def offers(self, capability: Capability) -> bool:
        """Whether the client said that it can do this. `ask` looks by itself; this is for a command that must know."""
        ...

    async def close_stream(self) -> None:
        """Have the client come back later for the rest of the answer, where it can; elsewhere nothing happens."""
        ...

    async def ask(self, question: Question[T]) -> T:
        """Ask one question, and have its answer. Nothing may be changed before the last question.

        Raises:
            AnswerNeeded: nobody can be asked; says which answer to send beforehand.
            Declined: somebody was asked and said no.
            InvalidArguments: what came is no answer.
        """
        ...

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Ask several questions at once; their answers in the same order.

        Raises:
            What `ask` raises.
        """
        ...


class SilentCall:
    """A call on a surface that shows nothing and where nobody can be asked: answers are given beforehand, or none."""

    def __init__(self, principal: str = LOCAL, *, trusts_answers: bool = True) -> None:
        """`trusts_answers` as in `AnswerResolution`."""
        self._principal = principal
        self._resolution = AnswerResolution("defaults", trusts_answers=trusts_answers)

    @property
    def principal(self) -> str:
        """Who calls."""
        return self._principal

    @property
    def author(self) -> Author | None:
        """None of his own."""
        return None

    @property
    def session(self) -> str:
        """None."""
        return ""

    @property
    def address(self) -> str:
        """None."""
        return ""

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Kept for the questions."""
        self._resolution.prefill(answers, asks)

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Nobody looks."""

    async def log(self, level: Level, text: str) -> None:
        """Nobody looks."""

    def offers(self, _: Capability) -> bool:
        """Nothing."""
        return False

    async def close_stream(self) -> None:
        """There is none."""

    async def ask(self, question: Question[T]) -> T:
        """What was given beforehand, or the default."""
        found = self._resolution.resolve(question, ())
        if isinstance(found, AskChannel):
            raise self._resolution.answer_needed(question)
        return found.answer

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """What was given beforehand, or the defaults."""
        return tuple([await self.ask(question) for question in questions])


async def require_confirmation(call: Call, question: AskConfirmation) -> None:
    """Go on only with a yes.

    Raises:
        Declined: the answer was no. AnswerNeeded: nobody can be asked.
    """
    if not await call.ask(question):
        raise declined_error(question, "the answer was no")


# Plain functions on the event loop, where that takes no waiting: one function, tried there first (ADR 0002).
#
# A function that is declared `nonblocking` calls `require_thread()` before it waits for anything. On the event loop
# that ends the attempt, and the dispatcher calls the function again in a worker thread, where nothing happens.


_MAY_BLOCK: ContextVar[bool] = ContextVar("coretools_may_block", default=True)


class WouldBlock(Exception):  # the field's name for it; no failure
    """The call has to wait for something, and stands on the event loop."""


def may_block() -> bool:
    """Whether the code that runs here may wait: everywhere but in the attempt on the event loop."""
    return _MAY_BLOCK.get()


def require_thread() -> None:
    """Go on in a worker thread only.

    Raises:
        WouldBlock: this is the attempt on the event loop.
    """
    if not _MAY_BLOCK.get():
        raise WouldBlock


def run_nonblocking(function: Callable[..., T], arguments: Mapping[str, Any]) -> T:
    """The result of a function that may not wait.

    Raises:
        WouldBlock: it would have to.
    """
    token = _MAY_BLOCK.set(False)
    try:
        return function(**arguments)
    finally:
        _MAY_BLOCK.reset(token)
