"""How a question reaches an MCP client and its answer comes back, in each of the two eras.

Handshake era: requests of the server while the call waits (here). Stateless era: the call ends with the questions and
is made again with the answers (`coretools.protocol.round_trip_questions`). Which way a question takes is
`coretools.questions.resolution`'s.
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
from coretools.questions.kinds import AskChoices, AskForm, AskModel, Missing, Question
from coretools.questions.resolution import (
    AskChannel,
    ResolvedAnswer,
    answer_resolution,
    declined_error,
    require_distinct_keys,
)

MOST_ATTEMPTS = 3
"""A client that answers beside the question is asked so often; a person may mistype, a program does it for ever."""

REJECTED = -1
"""Code of the protocol for "the user rejected it" (client/sampling, "Error Handling")."""

SAMPLED_TOKENS = 1_000
"""Most that a model may say to a question that has a short answer."""

CHOICES_SINCE = "2025-11-25"
"""Revision that brought forms with several choices at once, and with defaults of any kind."""


class Interview(Protocol):
    """The questions of one call."""

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Take the answers that came beforehand, and the declared keys."""
        ...

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Answers, in the order of the questions.

        Raises:
            What `coretools.operations.call.Call.ask` does.
        """
        ...


class LiveInterview:
    """Asks while the call waits, one question after the other: a person reads one at a time."""

    def __init__(self, context: ServerRequestContext[Any], asking: Asking) -> None:
        self._session = context.session
        self._request_id = context.request_id
        self._seconds = asking.seconds
        self._resolution = answer_resolution(asking)
        self._able = ways_of(context.session) if context.session.can_send_request else frozenset()
        self._known: dict[str, Any] = {}

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Kept for the questions."""
        self._resolution.prefill(answers, asks)

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Answers, in the order of the questions. Nobody is asked before each question has a way or an answer."""
        require_distinct_keys(questions)
        for question in questions:
            self._resolution.resolve(question, self._able)
        return tuple([await self._answer(question) for question in questions])

    async def _answer(self, question: Question[Any]) -> Any:
        digest = digest_of(question)
        if digest in self._known:  # as in the other era, where a call asks the same again each time it is made
            return self._known[digest]
        with anyio.move_on_after(self._seconds):
            self._known[digest] = await self._climb(question)
            return self._known[digest]
        raise declined_error(question, f"no answer within {self._seconds:g} s")

    async def _climb(self, question: Question[Any]) -> Any:
        able, said, attempts = set(self._able), "", 0
        while True:
            found = self._resolution.resolve(question, able)
            if isinstance(found, ResolvedAnswer):
                return found.answer
            try:
                return question.accept(answer_in(question, found, await self._send(question, found, said)))
            except MCPError as error:
                if error.code == REJECTED:
                    raise declined_error(question, "it was rejected") from error
                able.discard(found)  # this client can't after all
            except (InvalidArguments, ValidationError) as error:
                attempts += 1
                if attempts == MOST_ATTEMPTS:
                    raise question.fault(f"no answer in {MOST_ATTEMPTS} attempts; the last: {_said(error)}") from error
                said = _said(error)

    async def _send(self, question: Question[Any], way: AskChannel, said: str) -> types.InputResponse:
        request = request_of(question, way, said=said, revision=self._session.protocol_version)
        # Without the id it would ride the stream of a GET that a client need not have opened, and wait there for ever.
        metadata = ServerMessageMetadata(related_request_id=self._request_id)
        return await self._session.send_request(request, _RESULTS[way], metadata=metadata)


_RESULTS: dict[AskChannel, type[types.ElicitResult | types.CreateMessageResult | types.ListRootsResult]] = {
    AskChannel.FORM: types.ElicitResult,
    AskChannel.MODEL: types.CreateMessageResult,
    AskChannel.ROOTS: types.ListRootsResult,
}


def ways_of(session: ServerSession) -> frozenset[AskChannel]:
    """What the client declared: in its handshake, or with this request."""
    declared = session.client_capabilities
    if declared is None:
        return frozenset()
    found = set()
    elicitation = declared.elicitation
    # Before 2025-11-25 there were only forms, and an empty object said so.
    if elicitation is not None and (elicitation.form is not None or elicitation.url is None):
        found.add(AskChannel.FORM)
    if declared.sampling is not None:
        found.add(AskChannel.MODEL)
    if declared.roots is not None:
        found.add(AskChannel.ROOTS)
    return frozenset(found)


def request_of(question: Question[Any], way: AskChannel, *, said: str, revision: str) -> types.InputRequest:
    """The protocol's request for a question; `said` is what was wrong with the answer before."""
    message = escape_surrogates(f"{question.message}\n({said})" if said else question.message)
    if way is AskChannel.ROOTS:
        return types.ListRootsRequest()
    if way is AskChannel.FORM:
        form = types.ElicitRequestFormParams(message=message, requested_schema=form_of(question, revision))
        return types.ElicitRequest(params=form)
    if isinstance(question, AskModel):
        return _sampling(message, question.most_tokens, question.system_prompt)
    shape = json.dumps(form_of(question, CHOICES_SINCE))
    return _sampling(f"{message}\n\nAnswer with JSON of this schema only: {shape}", SAMPLED_TOKENS)


def _sampling(text: str, most_tokens: int, system_prompt: str | None = None) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    params = types.CreateMessageRequestParams(messages=[message], system_prompt=system_prompt, max_tokens=most_tokens)
    return types.CreateMessageRequest(params=params)


def form_of(question: Question[Any], revision: str) -> dict[str, Any]:
    """The schema of a form for a question. Clients before 2025-11-25 get a line of text for several choices."""
    if isinstance(question, AskForm):
        return render_elicitation_schema(question.model)
    answer: dict[str, Any] = question.schema()["properties"]["answer"]
    if revision >= CHOICES_SINCE:
        if not isinstance(question.default, Missing):
            usual: Any = question.default
            answer["default"] = list(usual) if isinstance(usual, tuple) else usual
    elif isinstance(question, AskChoices):
        answer = {"type": "string", "description": f"Some of {', '.join(question.choices)}, with commas between"}
    form: dict[str, Any] = escape_surrogates(
        {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    )
    return form


def answer_in(question: Question[Any], way: AskChannel, response: types.InputResponse) -> Any:
    """What a response says, for `Question.accept`.

    Raises:
        Declined: somebody declined or dismissed the question. InvalidArguments: it is no response to this request.
    """
    match way, response:
        case AskChannel.FORM, types.ElicitResult():
            return _filled_in(question, response)
        case AskChannel.MODEL, (
            types.CreateMessageResult(content=types.TextContent(text=text))
            | types.CreateMessageResultWithTools(content=types.TextContent(text=text))
        ):
            return text if isinstance(question, AskModel) else _parsed(text)
        case AskChannel.ROOTS, types.ListRootsResult(roots=roots):
            return [str(root.uri) for root in roots]
    raise question.fault("the response is of another kind than the request")


def _filled_in(question: Question[Any], form: types.ElicitResult) -> Any:
    if form.action != "accept":
        raise declined_error(question, "it was declined" if form.action == "decline" else "it was dismissed")
    content = form.content or {}
    return content if isinstance(question, AskForm) else content.get("answer")


def digest_of(question: Question[Any]) -> str:
    """Tells a question from every other."""
    whole = json.dumps([type(question).__name__, question.key, question.message, question.schema()], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _parsed(text: str) -> Any:
    """The JSON that a model was told to write, or else its words."""
    bare = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    try:
        found = json.loads(bare)
    except ValueError:
        return bare
    return found if isinstance(found, dict | list) else bare


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, InvalidArguments) else "the response does not fit the request"
