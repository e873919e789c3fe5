"""Ask questions of an MCP client while the call waits, and convert them to and from the protocol's requests.

In the handshake era the server sends requests while the call waits (this module). In the stateless era the call ends
with its questions and is repeated with the answers (`coretools.protocol.round_trip_questions`), in the same form.
`coretools.questions.answer_resolution` decides which way a question is asked.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.elicitation import render_elicitation_schema
from mcp.server.session import ServerSession
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from coretools.config.settings import Asking
from coretools.errors import InvalidArguments
from coretools.operations.content import escape_surrogates
from coretools.questions.answer_resolution import (
    AskChannel,
    ResolvedAnswer,
    answer_resolution,
    declined_error,
    require_distinct_keys,
)
from coretools.questions.kinds import AskChoices, AskForm, AskModel, Missing, Question

MAX_ATTEMPTS = 3
"""Times that a question is asked when its answers are invalid: a person may mistype, a program would never stop."""

REJECTED = -1
"""Error code for "user rejected" (client/sampling, "Error Handling")."""

MAX_SAMPLED_TOKENS = 1_000
"""Token limit for a model's answer to a question with a short answer."""

CHOICES_SINCE = "2025-11-25"
"""First revision whose forms have multiple choices and defaults of every type."""


class CallQuestions(Protocol):
    """The questions of one call."""

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Take the answers given in advance, and the declared keys."""
        ...

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Return the answers in the order of the questions.

        Raises:
            What `coretools.operations.call.Call.ask` does.
        """
        ...


class LiveQuestions:
    """Asks one question after the other while the call waits."""

    def __init__(self, context: ServerRequestContext[Any], asking: Asking) -> None:
        self._session = context.session
        self._request_id = context.request_id
        self._seconds = asking.seconds
        self._resolution = answer_resolution(asking)
        self._possible_channels = (
            supported_channels(context.session) if context.session.can_send_request else frozenset()
        )
        self._answers: dict[str, Any] = {}

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Keep these answers for the questions of this call."""
        self._resolution.prefill(answers, asks)

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Return the answers in order. Nothing is asked unless every question can be asked or has an answer."""
        require_distinct_keys(questions)
        # Every question is resolved before the first is sent: a person is not asked in vain.
        for question in questions:
            self._resolution.resolve(question, self._possible_channels)
        return tuple([await self._answer(question) for question in questions])

    async def _answer(self, question: Question[Any]) -> Any:
        digest = digest_of(question)
        if digest in self._answers:  # as in the stateless era: a repeated call does not ask the same question twice
            return self._answers[digest]
        with anyio.move_on_after(self._seconds):
            self._answers[digest] = await self._ask_until_answered(question)
            return self._answers[digest]
        raise declined_error(question, f"no answer within {self._seconds:g} s")

    async def _ask_until_answered(self, question: Question[Any]) -> Any:
        possible, problem, attempts = set(self._possible_channels), "", 0
        while True:
            resolved = self._resolution.resolve(question, possible)
            if isinstance(resolved, ResolvedAnswer):
                return resolved.answer
            try:
                return question.accept(answer_in(question, resolved, await self._send(question, resolved, problem)))
            except MCPError as error:
                if error.code == REJECTED:
                    raise declined_error(question, "it was rejected") from error
                possible.discard(resolved)  # the client can't do what it declared
            except (InvalidArguments, ValidationError) as error:
                attempts += 1
                if attempts == MAX_ATTEMPTS:
                    raise question.fault(f"no answer in {MAX_ATTEMPTS} attempts; the last: {_reason(error)}") from error
                problem = _reason(error)

    async def _send(self, question: Question[Any], channel: AskChannel, problem: str) -> types.InputResponse:
        request = request_of(question, channel, problem=problem, revision=self._session.protocol_version)
        # Without the id it would go to the GET stream, which a client need not open, and wait there for ever.
        metadata = ServerMessageMetadata(related_request_id=self._request_id)
        return await self._session.send_request(request, _RESULTS[channel], metadata=metadata)


_RESULTS: dict[AskChannel, type[types.ElicitResult | types.CreateMessageResult | types.ListRootsResult]] = {
    AskChannel.FORM: types.ElicitResult,
    AskChannel.MODEL: types.CreateMessageResult,
    AskChannel.ROOTS: types.ListRootsResult,
}


def supported_channels(session: ServerSession) -> frozenset[AskChannel]:
    """Return the channels that the client declared, in its handshake or with this request."""
    declared = session.client_capabilities
    if declared is None:
        return frozenset()
    channels = set()
    elicitation = declared.elicitation
    # Before 2025-11-25 there were only forms, declared by an empty object.
    if elicitation is not None and (elicitation.form is not None or elicitation.url is None):
        channels.add(AskChannel.FORM)
    if declared.sampling is not None:
        channels.add(AskChannel.MODEL)
    if declared.roots is not None:
        channels.add(AskChannel.ROOTS)
    return frozenset(channels)


def request_of(question: Question[Any], channel: AskChannel, *, problem: str, revision: str) -> types.InputRequest:
    """Return the protocol's request for a question; `problem` is what was wrong with the last answer."""
    message = escape_surrogates(f"{question.message}\n({problem})" if problem else question.message)
    if channel is AskChannel.ROOTS:
        return types.ListRootsRequest()
    if channel is AskChannel.FORM:
        form = types.ElicitRequestFormParams(message=message, requested_schema=form_of(question, revision))
        return types.ElicitRequest(params=form)
    if isinstance(question, AskModel):
        return _sampling(message, question.most_tokens, question.system_prompt)
    shape = json.dumps(form_of(question, CHOICES_SINCE))
    return _sampling(f"{message}\n\nAnswer with JSON of this schema only: {shape}", MAX_SAMPLED_TOKENS)


def _sampling(text: str, most_tokens: int, system_prompt: str | None = None) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    params = types.CreateMessageRequestParams(messages=[message], system_prompt=system_prompt, max_tokens=most_tokens)
    return types.CreateMessageRequest(params=params)


def form_of(question: Question[Any], revision: str) -> dict[str, Any]:
    """Return the form schema of a question. Before 2025-11-25, multiple choices are one line of text."""
    if isinstance(question, AskForm):
        return render_elicitation_schema(question.model)
    answer: dict[str, Any] = question.schema()["properties"]["answer"]
    if revision >= CHOICES_SINCE:
        if not isinstance(question.default, Missing):
            default: Any = question.default
            answer["default"] = list(default) if isinstance(default, tuple) else default
    elif isinstance(question, AskChoices):
        answer = {"type": "string", "description": f"Some of {', '.join(question.choices)}, with commas between"}
    form: dict[str, Any] = escape_surrogates(
        {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    )
    return form


def answer_in(question: Question[Any], channel: AskChannel, response: types.InputResponse) -> Any:
    """Return the answer in a response, for `Question.accept`.

    Raises:
        Declined: the question was declined or dismissed. InvalidArguments: the response does not fit the request.
    """
    match channel, response:
        case AskChannel.FORM, types.ElicitResult():
            return _form_answer(question, response)
        case AskChannel.MODEL, (
            types.CreateMessageResult(content=types.TextContent(text=text))
            | types.CreateMessageResultWithTools(content=types.TextContent(text=text))
        ):
            return text if isinstance(question, AskModel) else _parse_model_answer(text)
        case AskChannel.ROOTS, types.ListRootsResult(roots=roots):
            return [str(root.uri) for root in roots]
    raise question.fault("the response is of another kind than the request")


def _form_answer(question: Question[Any], form: types.ElicitResult) -> Any:
    if form.action != "accept":
        raise declined_error(question, "it was declined" if form.action == "decline" else "it was dismissed")
    content = form.content or {}
    return content if isinstance(question, AskForm) else content.get("answer")


def digest_of(question: Question[Any]) -> str:
    """Return a digest that identifies a question."""
    whole = json.dumps([type(question).__name__, question.key, question.message, question.schema()], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _parse_model_answer(text: str) -> Any:
    """Return the JSON that a model was asked for, or else its text."""
    stripped = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    try:
        value = json.loads(stripped)
    except ValueError:
        return stripped
    return value if isinstance(value, dict | list) else stripped


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, InvalidArguments) else "the response does not fit the request"
