"""A call that may go on as a task, as its command sees it: progress is the task's message.

Its questions are the answer to the request as long as the client has no task, and wait in the task from then on
(SEP-2663, "Task Creation").
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from pydantic import TypeAdapter, ValidationError

from coretools.asking import Question
from coretools.author import Author
from coretools.call import Capability, Level
from coretools.errors import InvalidArguments
from coretools.ladder import Settled, Way
from coretools.serving.asking import MOST_ATTEMPTS, answer_in, request_of
from coretools.serving.client_call import address_of, author_in
from coretools.serving.extending import offered
from coretools.serving.rounds import Known, RoundInterview
from coretools.serving.tasks import Asked, Task

T = TypeVar("T")


@cache
def _responses() -> TypeAdapter[types.InputResponse]:
    """Built when a response comes: a start does not wait for it."""
    return TypeAdapter(types.InputResponse)


class Asker:
    """What is known of the client that started a task, after its request is over."""

    def __init__(self, context: ServerRequestContext[Any], interview: RoundInterview) -> None:
        """`interview` has the answers that came with the request."""
        self.revision = context.protocol_version
        self.capabilities = context.session.client_capabilities
        self.author = author_in(context)
        self.address = address_of(context)
        self.interview = interview


class TaskCall:
    """One task's call. The client that started it is never asked on a stream."""

    def __init__(self, task: Task, asker: Asker) -> None:
        self._task = task
        self._asker = asker

    @property
    def principal(self) -> str:
        """Who calls."""
        return self._task.principal

    @property
    def address(self) -> str:
        """Where the request came from that started the task."""
        return self._asker.address

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
        self._asker.interview.prefill(answers, asks)

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
        """All at once; a task goes on when each has its answer.

        Raises:
            InputNeeded: the client has no task yet; the call is made again with the answers.
        """
        known = await self._asker.interview.known(*questions)
        if all(isinstance(found, Settled) for found, _ in known):
            return tuple(found.answer for found, _ in known if isinstance(found, Settled))
        if self._task.ask_in_result():
            raise self._asker.interview.needed(questions, known)
        return await self._asked_in_task(questions, known)

    async def _asked_in_task(self, questions: Sequence[Question[Any]], known: Sequence[Known]) -> tuple[Any, ...]:
        asked: list[Asked | None] = []
        try:
            for question, (way, said) in zip(questions, known, strict=True):
                asked.append(None if isinstance(way, Settled) else self._asked(question, way, said))
            return tuple(
                [
                    way.answer if isinstance(way, Settled) else await self._answer(question, way, first)
                    for question, (way, _), first in zip(questions, known, asked, strict=True)
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
