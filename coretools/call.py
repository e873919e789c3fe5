"""One call as a command sees it. Each surface (MCP, command line, REPL, test) supplies its own."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeVar

import anyio.from_thread
from anyio import NoEventLoopError

from coretools.asking import Question
from coretools.errors import AnswerNeeded

T = TypeVar("T")

LOCAL = "local"
"""The principal of a server that one person started for himself."""

Level = Literal["debug", "info", "warning", "error"]


class Call(Protocol):
    """What a command may ask of its surface. A command gets one by naming a parameter of this type."""

    @property
    def principal(self) -> str:
        """Who calls."""
        ...

    def prefill(self, answers: Mapping[str, Any]) -> None:
        """Take the answers that the caller gave beforehand, by the key of the question."""
        ...

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work is. Never blocks for long: a surface drops what comes too fast."""
        ...

    async def log(self, level: Level, text: str) -> None:
        """Say what happens, to whoever looks on. Never blocks for long."""
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

    def __init__(self, principal: str = LOCAL) -> None:
        self._principal = principal
        self._answers: Mapping[str, Any] = {}

    @property
    def principal(self) -> str:
        """Who calls."""
        return self._principal

    def prefill(self, answers: Mapping[str, Any]) -> None:
        """Kept for the questions."""
        self._answers = answers

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Nobody looks."""

    async def log(self, level: Level, text: str) -> None:
        """Nobody looks."""

    async def ask(self, question: Question[T]) -> T:
        """What was given beforehand."""
        if question.key in self._answers:
            return question.accept(self._answers[question.key])
        raise AnswerNeeded(f"{question.message}: nobody can be asked here", question=question.key)

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """What was given beforehand."""
        return tuple([await self.ask(question) for question in questions])


def check_cancelled() -> None:
    """Stop here if the call was cancelled. For the loops of plain `def` tools, which run in a worker thread.

    Outside a worker thread (a tool called directly) nothing can be cancelled and nothing happens.
    """
    try:
        anyio.from_thread.check_cancelled()
    except NoEventLoopError:
        return
