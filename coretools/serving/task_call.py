"""A call that goes on as a task, as its command sees it: progress is the task's message, questions wait in the task."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from pydantic import TypeAdapter, ValidationError

from coretools.asking import Question
from coretools.author import Author
from coretools.call import Capability, Level
from coretools.errors import InvalidArguments
from coretools.ladder import Settled, Way, ladder_of
from coretools.serving.asking import MOST_ATTEMPTS, answer_in, request_of, ways_of
from coretools.serving.client_call import author_in
from coretools.serving.extending import offered
from coretools.serving.tasks import Asked, Task
from coretools.settings import Asking

T = TypeVar("T")


@cache
def _responses() -> TypeAdapter[types.InputResponse]:
    """Built when a response comes: a start does not wait for it."""
    return TypeAdapter(types.InputResponse)


class Asker:
    """What is known of the client that started a task, after its request is over."""

    def __init__(self, context: ServerRequestContext[Any], asking: Asking) -> None:
        self.ways: Collection[Way] = ways_of(context.session)
        self.revision = context.protocol_version
        self.capabilities = context.session.client_capabilities
        self.asking = asking
        self.author = author_in(context)


class TaskCall:
    """One task's call. The client that started it is asked through the task, not on a stream."""

    def __init__(self, task: Task, asker: Asker) -> None:
        self._task = task
        self._asker = asker
        self._ladder = ladder_of(asker.asking)

    @property
    def principal(self) -> str:
        """Who calls."""
        return self._task.principal

    @property
    def author(self) -> Author | None:
        """As whom whoever started the task commits."""
        return self._asker.author

    @property
    def session(self) -> str:
        """None."""
        return ""

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Kept for the questions."""
        self._ladder.take(answers, asks)

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """The task says it when it is asked for."""
        self._task.tell(message or (f"{done:g}" if total is None else f"{done:g} of {total:g}"))

    async def log(self, level: Level, text: str) -> None:
        """As progress; the protocol has no log messages of tasks."""
        if level != "debug":
            self._task.tell(text)

    def offers(self, capability: Capability) -> bool:
        """As the client declared with the request."""
        return offered(self._asker.capabilities, capability)

    async def close_stream(self) -> None:
        """There is none."""

    async def ask(self, question: Question[T]) -> T:
        """What was given beforehand, or what the client answers to the task."""
        answer: T
        (answer,) = await self.ask_all(question)
        return answer

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """All at once; the task goes on when each has its answer."""
        found = [self._ladder.settle(question, self._asker.ways) for question in questions]
        asked: list[Asked | None] = []
        try:
            for question, way in zip(questions, found, strict=True):
                asked.append(None if isinstance(way, Settled) else self._asked(question, way))
            return tuple(
                [
                    one.answer if isinstance(one, Settled) else await self._answer(question, one, first)
                    for question, one, first in zip(questions, found, asked, strict=True)
                ]
            )
        finally:
            for one in asked:
                if one is not None:
                    self._task.withdraw(one)

    async def _answer(self, question: Question[Any], way: Way, first: Asked | None) -> Any:
        """The answer to a question that was asked; asked again where it is none."""
        asked, said = first, ""
        for _ in range(MOST_ATTEMPTS):
            asked = asked or self._asked(question, way, said)
            try:
                return question.accept(answer_in(question, way, await asked.answered()))
            except InvalidArguments as error:
                said = str(error)
            finally:
                self._task.withdraw(asked)
            asked = None
        raise question.fault(f"no answer in {MOST_ATTEMPTS} attempts; the last: {said}")

    def _asked(self, question: Question[Any], way: Way, said: str = "") -> Asked:
        request = request_of(question, way, said=said, revision=self._asker.revision)
        wire = request.model_dump(by_alias=True, mode="json", exclude_none=True)
        return self._task.ask(question.key, wire, lambda response: _read(question, response))


def _read(question: Question[Any], response: Any) -> types.InputResponse:
    try:
        return _responses().validate_python(response, by_name=False)
    except ValidationError as error:
        raise InvalidArguments(f"inputResponses.{question.key}: no response to this request") from error
