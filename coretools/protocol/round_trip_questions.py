"""Multi-round-trip questions of the stateless era: a call ends with its questions and is repeated with the answers.

Earlier answers come back in `requestState`, which the SDK's `RequestStateBoundary` seals and binds to the method, the
name, the arguments and the principal. An answer counts only for the exact question that it was given to.
"""

import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from coretools.config.settings import Asking
from coretools.errors import AnswerNeeded, CapabilityMissing, Conflict, InputNeeded, InvalidArguments
from coretools.operations.call import Capability
from coretools.protocol.live_questions import (
    CallQuestions,
    LiveQuestions,
    answer_in,
    digest_of,
    request_of,
    supported_channels,
)
from coretools.questions.answer_resolution import (
    AskChannel,
    ResolvedAnswer,
    answer_resolution,
    channels_for,
    require_distinct_keys,
)
from coretools.questions.kinds import Question

MAX_ROUND_TRIPS = 10
"""Times that one call may ask; the SDK's client has the same limit (`input_required_max_rounds`)."""

STATE_TTL_SECONDS = 600.0
"""How long a request state is valid. Used states are remembered as long."""

MAX_USED_STATES = 10_000
"""Used confirmations that are remembered; when there are more, all states older than the forgotten are refused."""

_RESPONSE: TypeAdapter[types.InputResponse] = TypeAdapter(types.InputResponse)


class UsedStates(Protocol):
    """The request states whose confirmation was used."""

    async def take(self, nonce: str, minted: float) -> bool:
        """Mark a state, created at time `minted`, as used; False if it was used before, or may have been."""
        ...


class InMemoryUsedStates:
    """Used states in the memory of the process. Bounded: in case of doubt a state counts as used."""

    def __init__(self, *, most: int = MAX_USED_STATES, clock: Callable[[], float] = time.time) -> None:
        self._most = most
        self._clock = clock
        self._used: OrderedDict[str, float] = OrderedDict()
        self._floor = 0.0

    async def take(self, nonce: str, minted: float) -> bool:
        """Mark a state, created at time `minted`, as used; False if it was used before, or may have been."""
        self._forget()
        if nonce in self._used or minted <= self._floor:
            return False
        self._used[nonce] = minted
        if len(self._used) > self._most:
            self._floor = max(self._floor, self._used.popitem(last=False)[1])
        return True

    def _forget(self) -> None:
        too_old = self._clock() - STATE_TTL_SECONDS
        while self._used and next(iter(self._used.values())) < too_old:
            self._used.popitem(last=False)


@dataclass(slots=True)
class RequestState:
    """What a call carries over to its repetition."""

    round: int = 0
    """Times that the call has asked."""
    nonce: str = ""
    minted: float = 0.0
    asked: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The questions of the last round trip: key to (digest, channel)."""
    answers: dict[str, Any] = field(default_factory=dict)
    """Digest to channel and response, as received."""

    @classmethod
    def read(cls, text: str | None) -> "RequestState":
        """Parse the unsealed text; without text, return a new state.

        Raises:
            MCPError: the text is not a state of this server.
        """
        if text is None:
            return cls()
        try:
            state = json.loads(text)
            asked = {key: (str(digest), str(channel)) for key, (digest, channel) in state["asked"].items()}
            return cls(int(state["round"]), str(state["nonce"]), float(state["minted"]), asked, dict(state["answers"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MCPError(code=types.INVALID_PARAMS, message="Invalid or expired requestState") from error

    def to_text(self) -> str:
        """Return the text to be sealed."""
        values = {name: getattr(self, name) for name in ("round", "nonce", "minted", "asked", "answers")}
        return json.dumps(values, separators=(",", ":"))


AnswerOrChannel = tuple[ResolvedAnswer[Any] | AskChannel, str]
"""The answer to a question, or the channel to ask it on; and what was wrong with the answer received, if one was."""

_CAPABILITIES: dict[AskChannel, Capability] = {
    AskChannel.FORM: "elicitation",
    AskChannel.MODEL: "sampling",
    AskChannel.ROOTS: "roots",
}
"""The client capability that each channel needs."""


class RoundTripQuestions:
    """The questions of one stateless call: earlier answers are used, missing ones end the call."""

    def __init__(
        self,
        context: ServerRequestContext[Any],
        params: types.InputResponseRequestParams,
        asking: Asking,
        used_states: UsedStates,
    ) -> None:
        self._session = context.session
        self._asking = asking
        self._resolution = answer_resolution(asking)
        self._used_states = used_states
        self._state = RequestState.read(params.request_state)
        self._is_used = False
        self._answers = dict(self._state.answers)
        self._unsolicited: dict[str, Any] = {}
        for key, response in (params.input_responses or {}).items():
            answer = response.model_dump(mode="json", by_alias=True, exclude_none=True)
            if key in self._state.asked:
                digest, channel = self._state.asked[key]
                self._answers[digest] = [channel, answer]
            elif params.request_state is None:
                self._unsolicited[key] = answer

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Keep these answers for the questions of this call."""
        self._resolution.prefill(answers, asks)

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Return the answers in the order of the questions.

        Raises:
            InputNeeded: answers are missing. CapabilityMissing: the client can't be asked.
        """
        known = await self.known(*questions)
        answers = tuple(resolved.answer for resolved, _ in known if isinstance(resolved, ResolvedAnswer))
        if len(answers) < len(questions):
            raise self.needed(questions, known)
        return answers

    async def known(self, *questions: Question[Any]) -> list[AnswerOrChannel]:
        """Return, for each question, its answer or the way to ask it, and what was wrong with the answer received.

        Raises:
            CapabilityMissing: the client lacks a capability that every way to ask needs.
        """
        require_distinct_keys(questions)
        return [await self._resolve(question) for question in questions]

    def needed(self, questions: Sequence[Question[Any]], known: Sequence[AnswerOrChannel]) -> InputNeeded:
        """Return the error that ends the call with its unanswered questions.

        Raises:
            AnswerNeeded: the call has asked too often.
        """
        requests, asked = {}, {}
        for question, (resolved, problem) in zip(questions, known, strict=True):
            if isinstance(resolved, ResolvedAnswer):
                continue
            if self._state.round >= MAX_ROUND_TRIPS:
                raise self._resolution.answer_needed(question, f"asked {MAX_ROUND_TRIPS} times without an answer")
            requests[question.key] = request_of(
                question, resolved, problem=problem, revision=self._session.protocol_version
            )
            asked[question.key] = (digest_of(question), resolved.value)
        next_state = RequestState(self._state.round + 1, secrets.token_hex(16), time.time(), asked, self._answers)
        return InputNeeded(requests, next_state.to_text())

    async def _resolve(self, question: Question[Any]) -> AnswerOrChannel:
        """Return the answer or the way to ask, and what was wrong with the answer received."""
        digest = digest_of(question)
        # Earlier answers come first: a client with fewer capabilities now must not turn a no into the default.
        if digest not in self._answers:
            resolved = self._settle(question)
            if isinstance(resolved, ResolvedAnswer) or question.key not in self._unsolicited or question.is_permission:
                return resolved, ""
            # Without a state the response is not tied to a question: it counts like an answer given in advance, but
            # not as a confirmation.
            self._answers[digest] = [resolved.value, self._unsolicited.pop(question.key)]
        channel, response = self._answers[digest]
        try:
            return ResolvedAnswer(
                question.accept(await self._read_response(question, AskChannel(channel), response))
            ), ""
        except (InvalidArguments, ValidationError) as error:
            del self._answers[digest]
            reason = str(error) if isinstance(error, InvalidArguments) else "no response to this request"
            return self._settle(question), reason

    def _settle(self, question: Question[Any]) -> ResolvedAnswer[Any] | AskChannel:
        try:
            return self._resolution.resolve(question, supported_channels(self._session))
        except AnswerNeeded as error:
            missing = [
                _CAPABILITIES[channel]
                for channel in channels_for(question, self._asking.mode)
                if channel in _CAPABILITIES
            ]
            if not missing:  # no capability would help
                raise
            # A tool result would help a model more, but the revision requires an error (basic/index, "_meta").
            needed = self._resolution.answer_needed(question, f"the client does not offer {missing[0]}")
            raise CapabilityMissing(missing[0], str(needed), hint=needed.hint) from error

    async def _read_response(self, question: Question[Any], channel: AskChannel, response: Any) -> Any:
        """Return the answer in a response.

        Raises:
            Conflict: the confirmation in this state, which is valid once, was used before.
        """
        if question.is_permission and not self._is_used:
            if not await self._used_states.take(self._state.nonce, self._state.minted):
                raise Conflict("this confirmation was already used; call again without requestState to be asked again")
            self._is_used = True
        return answer_in(question, channel, _RESPONSE.validate_python(response, by_name=False))


class QuestionFactory:
    """Creates the questions of each call. A server has one, because it remembers used confirmations."""

    def __init__(self, asking: Asking, used_states: UsedStates | None = None) -> None:
        """`used_states` may be shared by several servers; by default they are in this one's memory."""
        self._asking = asking
        self._used_states = used_states or InMemoryUsedStates()

    def use(self, asking: Asking) -> None:
        """Apply other settings from now on; open questions are not affected."""
        self._asking = asking

    def of(self, context: ServerRequestContext[Any], params: types.InputResponseRequestParams) -> CallQuestions:
        """Return the questions of a call, in the form of its protocol era.

        Raises:
            MCPError: the request state is not one of this server.
        """
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return self.for_stateless_call(context, params)
        return LiveQuestions(context, self._asking)

    def for_stateless_call(
        self, context: ServerRequestContext[Any], params: types.InputResponseRequestParams
    ) -> RoundTripQuestions:
        """Return the questions of a call of the stateless era.

        Raises:
            MCPError: the request state is not one of this server.
        """
        return RoundTripQuestions(context, params, self._asking, self._used_states)


def as_input_required(needed: InputNeeded) -> types.InputRequiredResult:
    """Return the questions as the result of a request."""
    requests: types.InputRequests = dict(needed.requests)
    return types.InputRequiredResult(input_requests=requests, request_state=needed.state)
