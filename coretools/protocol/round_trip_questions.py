"""Questions in the stateless era: a call ends with them, and is made again, from its start, with the answers.

What was answered before comes back in `requestState`, which the SDK's `RequestStateBoundary` seals and binds to the
method, the name, the arguments and the principal. An answer counts for the very question that it was given to.
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
from coretools.protocol.live_questions import Interview, LiveInterview, answer_in, digest_of, request_of, ways_of
from coretools.questions.kinds import AskConfirmation, Question
from coretools.questions.resolution import (
    AskChannel,
    ResolvedAnswer,
    answer_resolution,
    channels_for,
    require_distinct_keys,
)

MOST_ROUNDS = 10
"""Times that one call may ask, as clients have it (`input_required_max_rounds` of the SDK's)."""

STATE_SECONDS = 600.0
"""How long a state is good. What was used is remembered as long."""

MOST_USED = 10_000
"""States with a used confirmation that are remembered; beyond it older states are refused unseen."""

_RESPONSE: TypeAdapter[types.InputResponse] = TypeAdapter(types.InputResponse)


class UsedStates(Protocol):
    """Which states had their confirmation used already."""

    async def take(self, nonce: str, minted: float) -> bool:
        """Use a state, minted at that time; False when it was used before, or may have been."""
        ...


class Once:
    """Used states in the memory of the process. Bounded; when in doubt a state counts as used."""

    def __init__(self, *, most: int = MOST_USED, clock: Callable[[], float] = time.time) -> None:
        self._most = most
        self._clock = clock
        self._used: OrderedDict[str, float] = OrderedDict()
        self._floor = 0.0

    async def take(self, nonce: str, minted: float) -> bool:
        """Use a state, minted at that time; False when it was used before, or may have been."""
        self._forget()
        if nonce in self._used or minted <= self._floor:
            return False
        self._used[nonce] = minted
        if len(self._used) > self._most:
            self._floor = max(self._floor, self._used.popitem(last=False)[1])
        return True

    def _forget(self) -> None:
        too_old = self._clock() - STATE_SECONDS
        while self._used and next(iter(self._used.values())) < too_old:
            self._used.popitem(last=False)


@dataclass(slots=True)
class State:
    """What a call remembers between its rounds."""

    round: int = 0
    """Times that it asked."""
    nonce: str = ""
    minted: float = 0.0
    asked: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By key: the digest of the question of this round, and its way."""
    answers: dict[str, Any] = field(default_factory=dict)
    """By digest: way and response, as it came."""

    @classmethod
    def read(cls, text: str | None) -> "State":
        """The state in the opened text; a new one without.

        Raises:
            MCPError: it is none of ours.
        """
        if text is None:
            return cls()
        try:
            found = json.loads(text)
            asked = {key: (str(digest), str(way)) for key, (digest, way) in found["asked"].items()}
            return cls(int(found["round"]), str(found["nonce"]), float(found["minted"]), asked, dict(found["answers"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MCPError(code=types.INVALID_PARAMS, message="Invalid or expired requestState") from error

    def written(self) -> str:
        """The text to be sealed."""
        values = {name: getattr(self, name) for name in ("round", "nonce", "minted", "asked", "answers")}
        return json.dumps(values, separators=(",", ":"))


Known = tuple[ResolvedAnswer[Any] | AskChannel, str]
"""The answer to a question, or the way to ask on; and what was wrong with the answer that came."""

_CAPABILITIES: dict[AskChannel, Capability] = {
    AskChannel.FORM: "elicitation",
    AskChannel.MODEL: "sampling",
    AskChannel.ROOTS: "roots",
}
"""What a client declares so that it can be asked on a way."""


class RoundInterview:
    """Answers from the rounds before; what is missing ends the call with the questions."""

    def __init__(
        self,
        context: ServerRequestContext[Any],
        params: types.InputResponseRequestParams,
        asking: Asking,
        once: UsedStates,
    ) -> None:
        self._able = ways_of(context.session)
        self._revision = context.session.protocol_version
        self._asking = asking
        self._resolution = answer_resolution(asking)
        self._once = once
        self._state = State.read(params.request_state)
        self._is_used = False
        self._answers = dict(self._state.answers)
        self._unasked: dict[str, Any] = {}
        for key, response in (params.input_responses or {}).items():
            said = response.model_dump(mode="json", by_alias=True, exclude_none=True)
            if key in self._state.asked:
                digest, way = self._state.asked[key]
                self._answers[digest] = [way, said]
            elif params.request_state is None:
                self._unasked[key] = said

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Kept for the questions."""
        self._resolution.prefill(answers, asks)

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Answers, in the order of the questions.

        Raises:
            InputNeeded: the rest must come first. CapabilityMissing: the client can't be asked.
        """
        known = await self.known(*questions)
        answers = tuple(found.answer for found, _ in known if isinstance(found, ResolvedAnswer))
        if len(answers) < len(questions):
            raise self.needed(questions, known)
        return answers

    async def known(self, *questions: Question[Any]) -> list[Known]:
        """The answer to each, or the way to ask on, and what was wrong with the answer that came.

        Raises:
            CapabilityMissing: the client can't be asked, and declared too little for it.
        """
        require_distinct_keys(questions)
        return [await self._found(question) for question in questions]

    def needed(self, questions: Sequence[Question[Any]], known: Sequence[Known]) -> InputNeeded:
        """What ends the call with those questions that have no answer.

        Raises:
            AnswerNeeded: it has asked too often.
        """
        requests, asked = {}, {}
        for question, (found, said) in zip(questions, known, strict=True):
            if isinstance(found, ResolvedAnswer):
                continue
            if self._state.round >= MOST_ROUNDS:
                raise self._resolution.answer_needed(question, f"asked {MOST_ROUNDS} times without an answer")
            requests[question.key] = request_of(question, found, said=said, revision=self._revision)
            asked[question.key] = (digest_of(question), found.value)
        following = State(self._state.round + 1, secrets.token_hex(16), time.time(), asked, self._answers)
        return InputNeeded(requests, following.written())

    async def _found(self, question: Question[Any]) -> Known:
        """The answer, or the way to ask on, and what was wrong with the answer that came."""
        digest = digest_of(question)
        # What was answered comes first: a client that can do less by now must not turn a no into the default.
        if digest not in self._answers:
            found = self._settled(question)
            if (
                isinstance(found, ResolvedAnswer)
                or question.key not in self._unasked
                or isinstance(question, AskConfirmation)
            ):
                return found, ""
            # Without a state nothing says which question it was for: as good as one given beforehand, but no yes.
            self._answers[digest] = [found.value, self._unasked.pop(question.key)]
        way, response = self._answers[digest]
        try:
            return ResolvedAnswer(question.accept(await self._said(question, AskChannel(way), response))), ""
        except (InvalidArguments, ValidationError) as error:
            del self._answers[digest]
            said = str(error) if isinstance(error, InvalidArguments) else "no response to this request"
            return self._settled(question), said

    def _settled(self, question: Question[Any]) -> ResolvedAnswer[Any] | AskChannel:
        try:
            return self._resolution.resolve(question, self._able)
        except AnswerNeeded as error:
            missing = [_CAPABILITIES[way] for way in channels_for(question, self._asking.mode) if way in _CAPABILITIES]
            if not missing:  # nothing that the client could declare would help
                raise
            # basic/index, "_meta": an answer for a model would be worth more, and the revision has it as an error.
            needed = self._resolution.answer_needed(question, f"the client does not offer {missing[0]}")
            raise CapabilityMissing(missing[0], str(needed), hint=needed.hint) from error

    async def _said(self, question: Question[Any], way: AskChannel, response: Any) -> Any:
        if isinstance(question, AskConfirmation):
            await self._use()
        return answer_in(question, way, _RESPONSE.validate_python(response, by_name=False))

    async def _use(self) -> None:
        """A state with a confirmation leads on once.

        Raises:
            Conflict: it did already.
        """
        if not self._is_used and not await self._once.take(self._state.nonce, self._state.minted):
            raise Conflict("this confirmation was used already; call again without requestState, to be asked anew")
        self._is_used = True


class Interviews:
    """Makes the interview of each call; one for a server, because it remembers what was used."""

    def __init__(self, asking: Asking, once: UsedStates | None = None) -> None:
        """`once` is what several servers share; by default the memory of this one."""
        self._asking = asking
        self._once = once or Once()

    def use(self, asking: Asking) -> None:
        """Ask so from now on; questions that are open stay as they are."""
        self._asking = asking

    def of(self, context: ServerRequestContext[Any], params: types.InputResponseRequestParams) -> Interview:
        """The interview of a call, as its era has it.

        Raises:
            MCPError: a request state that is none of ours.
        """
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return self.in_rounds(context, params)
        return LiveInterview(context, self._asking)

    def in_rounds(self, context: ServerRequestContext[Any], params: types.InputResponseRequestParams) -> RoundInterview:
        """That of a call of the stateless era.

        Raises:
            MCPError: a request state that is none of ours.
        """
        return RoundInterview(context, params, self._asking, self._once)


def as_questions(needed: InputNeeded) -> types.InputRequiredResult:
    """The questions as the result of a request."""
    requests: types.InputRequests = dict(needed.requests)
    return types.InputRequiredResult(input_requests=requests, request_state=needed.state)
