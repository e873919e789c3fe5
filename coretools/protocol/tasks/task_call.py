"""The `Call` of a task: its progress is the status of the task, and its questions wait there for the client."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from pydantic import TypeAdapter, ValidationError

from coretools.errors import InvalidArguments
from coretools.operations.call import Capability, Level
from coretools.operations.declare import Channel
from coretools.operations.session_state import SessionState
from coretools.protocol.call_adapter import address_of, author_in
from coretools.protocol.extensions import has_capability
from coretools.protocol.live_questions import MAX_ATTEMPTS, answer_in, request_of
from coretools.protocol.round_trip_questions import AnswerOrChannel, RoundTripQuestions
from coretools.protocol.tasks.store import InputRequest, Task
from coretools.questions.answer_resolution import AskChannel, ResolvedAnswer
from coretools.questions.kinds import Question

T = TypeVar("T")


@cache
def _responses() -> TypeAdapter[types.InputResponse]:
    """Return the adapter, built on first use to keep it out of the start-up time."""
    return TypeAdapter(types.InputResponse)


class TaskClient:
    """The client that started a task, as known after its request has ended."""

    def __init__(self, context: ServerRequestContext[Any], questions: RoundTripQuestions) -> None:
        """`questions` hold the answers that came with the request."""
        self.revision = context.protocol_version
        self.capabilities = context.session.client_capabilities
        self.author = author_in(context)
        self.address = address_of(context)
        self.questions = questions


class TaskCall:
    """The `Call` of a task. Progress becomes the task's message; questions never use a stream."""

    channel: Channel = "mcp"
    session = ""
    """A task outlives the session."""
    state: SessionState | None = None

    def __init__(self, task: Task, client: TaskClient) -> None:
        self.principal = task.principal
        """The caller."""
        self.author = client.author
        """Author of the commits of the principal that started the task."""
        self.address = client.address
        """Client address of the request that started the task."""
        self._task = task
        self._client = client

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Keep these answers for the questions of this call."""
        self._client.questions.prefill(answers, asks)

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Set the status message of the task."""
        self._task.set_message(message or (f"{done:g}" if total is None else f"{done:g} of {total:g}"))

    async def log(self, level: Level, text: str) -> None:
        """Set the status message: the protocol has no log messages of tasks."""
        if level != "debug":
            self._task.set_message(text)

    def has_capability(self, capability: Capability) -> bool:
        """Whether the client declared a capability with its request."""
        return has_capability(self._client.capabilities, capability)

    async def close_stream(self) -> None:
        """Do nothing: a task has no stream."""

    async def ask(self, question: Question[T]) -> T:
        """Return the answer given in advance, or the client's answer to the task."""
        answer: T
        (answer,) = await self.ask_all(question)
        return answer

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Ask all questions at once; the task continues when each has its answer.

        Raises:
            InputNeeded: the client has no task yet; it repeats the call with the answers.
        """
        known = await self._client.questions.known(*questions)
        if all(isinstance(resolved, ResolvedAnswer) for resolved, _ in known):
            return tuple(resolved.answer for resolved, _ in known if isinstance(resolved, ResolvedAnswer))
        if self._task.claim_result():
            # The client has no task id yet: the questions are the result of its call, and it repeats the call with the
            # answers.
            raise self._client.questions.needed(questions, known)
        return await self._ask_in_task(questions, known)

    async def _ask_in_task(
        self, questions: Sequence[Question[Any]], known: Sequence[AnswerOrChannel]
    ) -> tuple[Any, ...]:
        asked: list[InputRequest | None] = []
        try:
            # All are requested before the first is awaited, so a client can show them together.
            for question, (channel, problem) in zip(questions, known, strict=True):
                asked.append(
                    None if isinstance(channel, ResolvedAnswer) else self._request_input(question, channel, problem)
                )
            return tuple(
                [
                    channel.answer
                    if isinstance(channel, ResolvedAnswer)
                    else await self._answer(question, channel, first)
                    for question, (channel, _), first in zip(questions, known, asked, strict=True)
                ]
            )
        finally:
            for one in asked:
                if one is not None:
                    self._task.withdraw(one)

    async def _answer(self, question: Question[Any], channel: AskChannel, first: InputRequest | None) -> Any:
        """Wait for the answer to a question; ask again if it is invalid."""
        asked, problem = first, ""
        for _ in range(MAX_ATTEMPTS):
            asked = asked or self._request_input(question, channel, problem)
            try:
                return question.accept(answer_in(question, channel, await asked.wait()))
            except InvalidArguments as error:
                problem = str(error)
            finally:
                self._task.withdraw(asked)
            asked = None
        raise question.fault(f"no answer in {MAX_ATTEMPTS} attempts; the last: {problem}")

    def _request_input(self, question: Question[Any], channel: AskChannel, problem: str = "") -> InputRequest:
        request = request_of(question, channel, problem=problem, revision=self._client.revision)
        request_json = request.model_dump(by_alias=True, mode="json", exclude_none=True)
        return self._task.request_input(
            question.key, request_json, lambda response: _parse_response(question, response)
        )


def _parse_response(question: Question[Any], response: Any) -> types.InputResponse:
    try:
        return _responses().validate_python(response, by_name=False)
    except ValidationError as error:
        raise InvalidArguments(f"inputResponses.{question.key}: no response to this request") from error
