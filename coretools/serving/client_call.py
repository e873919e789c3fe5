"""A call that came over MCP, as its command sees it: progress and messages go to the client that sent it."""

import time
from collections.abc import Mapping
from typing import Any, TypeVar

from mcp.server.context import ServerRequestContext

from coretools.asking import Question
from coretools.call import LOCAL, Level
from coretools.errors import AnswerNeeded

T = TypeVar("T")

MOST_PER_SECOND = 20
"""More would let a client that reads slowly hold up the tool: the SDK sends each notification before it goes on."""


class ClientCall:
    """One request. Without a progress token from the client no progress is sent."""

    def __init__(self, context: ServerRequestContext[Any], principal: str = LOCAL) -> None:
        self._session = context.session
        self._principal = principal
        self._next = 0.0
        self._done = -1.0
        self._answers: Mapping[str, Any] = {}

    @property
    def principal(self) -> str:
        """Who calls."""
        return self._principal

    def prefill(self, answers: Mapping[str, Any]) -> None:
        """Kept for the questions."""
        self._answers = answers

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Send how far the work is. Drops what comes too fast, unless it is the end, and what does not advance."""
        now = time.monotonic()
        if done <= self._done or (now < self._next and done != total):
            return
        self._done = done
        self._next = now + 1 / MOST_PER_SECOND
        await self._session.report_progress(done, total, message)

    async def log(self, level: Level, text: str) -> None:
        """Nobody looks yet."""

    async def ask(self, question: Question[T]) -> T:
        """What was given beforehand."""
        if question.key in self._answers:
            return question.accept(self._answers[question.key])
        raise AnswerNeeded(f"{question.message}: nobody can be asked here", question=question.key)

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """What was given beforehand."""
        return tuple([await self.ask(question) for question in questions])
