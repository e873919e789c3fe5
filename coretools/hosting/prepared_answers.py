"""Answers to the questions of commands that a test gives in advance.

The questions and answers are sent between client and server as those of a person are, in the form of the protocol era.
The server's side notes what it asks, so that the client's side knows which question a request is.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.client import ClientRequestContext
from mcp.server.context import ServerRequestContext
from pydantic import BaseModel

from coretools.config.settings import Asking
from coretools.errors import AUTHOR_FAULTS, InvalidArguments, RequestRefused
from coretools.operations.content import escape_surrogates
from coretools.protocol.live_questions import CallQuestions
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.questions.answer_resolution import example
from coretools.questions.kinds import AskRoots, Question

Answers = Mapping[str, Any] | Callable[[Question[Any]], Any]
"""Answers by the key of the question, or a function of the question. None declines a question to a person."""

_ROOTS = ""
"""Stands for the text of a question for roots, whose request has none."""


class PreparedAnswers(QuestionFactory):
    """The questions of a server, and the callbacks of a client that answers them."""

    def __init__(self, asking: Asking, answers: Answers) -> None:
        super().__init__(asking)
        self._answers = answers
        self._unused = set(answers) if isinstance(answers, Mapping) else set()
        self._asked: dict[str, Question[Any]] = {}
        """The last question of each text."""
        self._failures: dict[str, str] = {}
        """Why a question was not answered, by its key."""

    @property
    def callbacks(self) -> dict[str, Any]:
        """Arguments for the SDK's client."""
        return {
            "elicitation_callback": self._fill_form,
            "sampling_callback": self._sample,
            "list_roots_callback": self._list_roots,
        }

    def of(self, context: ServerRequestContext[Any], params: types.InputResponseRequestParams) -> CallQuestions:
        """Return the questions of a call, which are noted here."""
        return _NotedQuestions(self, super().of(context, params))

    def note(self, questions: Sequence[Question[Any]]) -> None:
        """Note what is about to be asked."""
        for question in questions:
            self._failures.pop(question.key, None)
            text = _ROOTS if isinstance(question, AskRoots) else escape_surrogates(question.message)
            self._asked[text] = question

    def require_answered(self, questions: Sequence[Question[Any]]) -> None:
        """Fail the call in the handshake era too, where a server goes on without an answer.

        Raises:
            RequestRefused: one of the questions had no valid answer.
        """
        for question in questions:
            if question.key in self._failures:
                raise RequestRefused(self._failures[question.key], code=types.INVALID_PARAMS)

    def warn_of_unused(self) -> None:
        """Warn of answers to questions that were never asked, unless a call failed and so asked no further."""
        if self._unused and not self._failures:
            warnings.warn(f"test_client(answers=...): never asked: {', '.join(sorted(self._unused))}", stacklevel=2)

    async def _fill_form(
        self, _: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        question = self._asked[params.message]
        try:
            answer = self._answer(question)
        except InvalidArguments as error:
            return self._failed(question, error)
        if answer is None:
            return types.ElicitResult(action="decline")
        if isinstance(answer, BaseModel):
            return types.ElicitResult(action="accept", content=answer.model_dump(mode="json"))
        return types.ElicitResult(
            action="accept", content={"answer": [*answer] if isinstance(answer, tuple) else answer}
        )

    async def _sample(
        self, _: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        content = params.messages[-1].content
        question = self._asked.get(content.text if isinstance(content, types.TextContent) else "")
        if question is None:  # a question to a person that failed, and that the operator lets a model answer
            return types.ErrorData(code=types.INVALID_PARAMS, message="no answer")
        try:
            text = types.TextContent(type="text", text=self._answer(question) or "")
        except InvalidArguments as error:
            return self._failed(question, error)
        return types.CreateMessageResult(role="assistant", content=text, model="test")

    async def _list_roots(self, _: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        question = self._asked[_ROOTS]
        try:
            return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in self._answer(question) or ()])
        except InvalidArguments as error:
            return self._failed(question, error)

    def _answer(self, question: Question[Any]) -> Any:
        """Return the valid answer to a question; None declines it.

        Raises:
            InvalidArguments: there is none, or it is invalid.
        """
        self._unused.discard(question.key)
        if not isinstance(self._answers, Mapping):
            try:
                answer = self._answers(question)
            except AUTHOR_FAULTS as error:
                raise question.fault(f"the function for answers raised {type(error).__name__}: {error}") from error
        elif question.key in self._answers:
            answer = self._answers[question.key]
        else:
            raise InvalidArguments(
                f"the question {question.key!r} ({question.message}) has no answer; "
                f"pass test_client({example(question, write=repr)})"
            )
        return None if answer is None else question.accept(answer)

    def _failed(self, question: Question[Any], error: InvalidArguments) -> types.ErrorData:
        self._failures[question.key] = str(error)
        return types.ErrorData(code=types.INVALID_PARAMS, message=str(error))


class _NotedQuestions:
    """The questions of one call."""

    def __init__(self, prepared: PreparedAnswers, questions: CallQuestions) -> None:
        self._prepared = prepared
        self._questions = questions

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Keep these answers for the questions of this call."""
        self._questions.prefill(answers, asks)

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Note the questions and ask them.

        Raises:
            RequestRefused: the test has no valid answer. What asking raises.
        """
        self._prepared.note(questions)
        try:
            return await self._questions.ask_all(*questions)
        finally:
            self._prepared.require_answered(questions)
