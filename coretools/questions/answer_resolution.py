"""Answer resolution: where the answer to a question comes from, in the same order on every surface.

The order is: the prefilled answer, a person (at a terminal, or by elicitation), a model if the operator allows it, the
declared default. Without any of them the error names the answer to send. A surface states which channels it has, and
sends the question itself.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from coretools.config.settings import ASK_MODES, Asking, AskMode
from coretools.errors import AnswerNeeded, Declined
from coretools.questions.kinds import AskForm, AskModel, AskRoots, Missing, Question

T = TypeVar("T")

NOBODY = "nobody can be asked here"


class AskChannel(Enum):
    """How a question reaches a person or a client."""

    TERMINAL = "terminal"
    """The person at the terminal; the only channel for a secret."""
    FORM = "form"
    """A form of the client (elicitation)."""
    MODEL = "model"
    """The client's model (sampling)."""
    ROOTS = "roots"
    """The client's own list of directories."""


@dataclass(frozen=True, slots=True)
class ResolvedAnswer(Generic[T]):
    """A resolved answer."""

    answer: T


class AnswerResolution:
    """Resolves the questions of one call, from its prefilled answers and the allowed channels."""

    def __init__(self, mode: AskMode, *, trusts_answers: bool = False) -> None:
        """`trusts_answers`: a confirmation for the operator may be prefilled. Only safe where no agent fills it in."""
        self._mode = mode
        self._trusts_answers = trusts_answers
        self._answers: Mapping[str, Any] = {}
        self._asks: Sequence[str] | None = None

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None) -> None:
        """Store the prefilled answers and the keys that the command declared; None allows any."""
        self._answers = answers
        self._asks = asks

    def resolve(self, question: Question[T], available: Collection[AskChannel]) -> ResolvedAnswer[T] | AskChannel:
        """The answer, or the channel on which to ask for it; `available` are those of the surface.

        Raises:
            AnswerNeeded: there is neither. InvalidArguments: the prefilled answer is invalid.
            LookupError: the command did not declare the question, which is a bug in it.
        """
        if self._asks is not None and question.key not in self._asks:
            raise LookupError(f"the question {question.key!r} is not declared; add it to @asks(...)")
        # What the caller sent comes first, then somebody who can be asked, then the default.
        if question.key in self._answers and self.accepts_prefilled(question):
            return ResolvedAnswer(question.accept(self._answers[question.key]))
        for channel in channels_for(question, self._mode):
            if channel in available:
                return channel
        # In mode `prefilled` even a default has to be sent by the caller.
        if not isinstance(question.default, Missing) and self._mode != "prefilled":
            return ResolvedAnswer(question.default)
        raise self.answer_needed(question)

    def accepts_prefilled(self, question: Question[Any]) -> bool:
        """Whether this question may be answered by a prefilled answer."""
        return self._trusts_answers or not question.needs_person

    def answer_needed(self, question: Question[Any], why: str = NOBODY) -> AnswerNeeded:
        """The error for a question without an answer; it names what to send with the next call."""
        advice = f"send {example(question)}" if self.accepts_prefilled(question) else "a prefilled yes does not count"
        hint = f"{why}; {advice}"
        return AnswerNeeded(f"{question.message}: {hint}", question=question.key, hint=hint)


def require_distinct_keys(questions: Sequence[Question[Any]]) -> None:
    """Refuse questions asked at once that share a key.

    Raises:
        LookupError: two keys are equal, which is a bug in the command.
    """
    keys = [question.key for question in questions]
    if len(set(keys)) != len(keys):
        raise LookupError(f"questions asked at once need different keys: {', '.join(keys)}")


def answer_resolution(asking: Asking) -> AnswerResolution:
    """Answer resolution for one call, with the operator's settings."""
    return AnswerResolution(asking.mode, trusts_answers=asking.trusts_answers)


def channels_for(question: Question[Any], mode: AskMode) -> tuple[AskChannel, ...]:
    """The channels on which this may be asked, best first."""
    # Modes are ordered: each allows everything that the ones before it allow.
    if ASK_MODES.index(mode) < ASK_MODES.index("elicitation"):
        return ()
    if isinstance(question, AskRoots):
        return (AskChannel.ROOTS,)
    by_model = (AskChannel.MODEL,) if mode == "sampling" and question.can_be_sampled else ()
    if isinstance(question, AskModel):
        return by_model
    # questions-6: what passes through a form or a model is seen by the client.
    if question.is_secret:
        return (AskChannel.TERMINAL,)
    return (AskChannel.TERMINAL, AskChannel.FORM, *by_model)


def declined_error(question: Question[Any], how: str) -> Declined:
    """The error for a question that was declined or not answered."""
    return Declined(f"{question.message}: {how}; nothing was done", question=question.key)


def example(question: Question[Any], write: Callable[[Any], str] = json.dumps) -> str:
    """An example of a valid argument `answers`, as JSON unless written otherwise, and the other valid choices."""
    schema = question.schema()
    properties: dict[str, Any] = schema.get("properties", {})
    if isinstance(question, AskForm):
        shown: Any = {name: _example_value(properties[name]) for name in schema.get("required", properties)}
        choices = ""
    else:
        shown, choices = _example_value(properties["answer"]), _choices(properties["answer"])
    return f"answers={write({question.key: shown})}{choices}"


def _example_value(shape: Mapping[str, Any]) -> Any:
    """An example value of a schema."""
    if "enum" in shape:
        return shape["enum"][0]
    if shape.get("type") == "array":
        return [_example_value(shape.get("items", {}))] if shape.get("minItems") or shape.get("maxItems", 1) else []
    return {"boolean": True, "integer": 1, "number": 1}.get(shape.get("type", ""), "...")


def _choices(shape: Mapping[str, Any]) -> str:
    """The valid choices, and how many are needed."""
    if "enum" in shape:
        return f" (one of {', '.join(shape['enum'])})"
    choices = shape.get("items", {}).get("enum")
    if choices is None:
        return ""
    return f" ({shape['minItems']} to {shape['maxItems']} of {', '.join(choices)})"
