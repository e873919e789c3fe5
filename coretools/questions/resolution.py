"""In which order an answer to a question is looked for: the same on every surface. Pure.

What was given beforehand, then a person (at a terminal, or by a form of the client), then a model if the operator
allows it, then the declared default. What is left is an error that says which answer to send. A surface says which
channels it has, and sends the question itself.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from coretools.config.settings import ASK_MODES, Asking, AskMode
from coretools.errors import AnswerNeeded, Declined
from coretools.questions.kinds import AskConfirmation, AskForm, AskModel, AskRoots, Missing, Question

T = TypeVar("T")

NOBODY = "nobody can be asked here"


class AskChannel(Enum):
    """How a question reaches somebody."""

    TERMINAL = "terminal"
    """The person at this end; the only channel for a secret."""
    FORM = "form"
    """A person, by the client (elicitation)."""
    MODEL = "model"
    """The client's model (sampling)."""
    ROOTS = "roots"
    """The client's own list of directories."""


@dataclass(frozen=True, slots=True)
class ResolvedAnswer(Generic[T]):
    """An answer."""

    answer: T


class AnswerResolution:
    """The answers of one call that came beforehand, and how far it may look for others."""

    def __init__(self, mode: AskMode, *, trusts_answers: bool = False) -> None:
        """`trusts_answers`: a yes that the operator wants may be given beforehand. Only where no agent gives it."""
        self._mode = mode
        self._trusts_answers = trusts_answers
        self._answers: Mapping[str, Any] = {}
        self._asks: Sequence[str] | None = None

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None) -> None:
        """Keep what was given beforehand, and which keys the command declared; None: whatever it asks."""
        self._answers = answers
        self._asks = asks

    def resolve(self, question: Question[T], available: Collection[AskChannel]) -> ResolvedAnswer[T] | AskChannel:
        """The answer, or the channel on which to ask for it; `available` are those that the surface has.

        Raises:
            AnswerNeeded: there is neither. InvalidArguments: what was given beforehand is no answer.
            LookupError: the command did not declare the question, which is a bug of it.
        """
        if self._asks is not None and question.key not in self._asks:
            raise LookupError(f"the question {question.key!r} is not declared; add it to @asks(...)")
        if question.key in self._answers and self.accepts_prefilled(question):
            return ResolvedAnswer(question.accept(self._answers[question.key]))
        for channel in channels_for(question, self._mode):
            if channel in available:
                return channel
        if not isinstance(question.default, Missing) and self._mode != "prefilled":
            return ResolvedAnswer(question.default)
        raise self.answer_needed(question)

    def accepts_prefilled(self, question: Question[Any]) -> bool:
        """Whether an answer to this question may be given beforehand."""
        return self._trusts_answers or not (isinstance(question, AskConfirmation) and question.is_for_operator)

    def answer_needed(self, question: Question[Any], why: str = NOBODY) -> AnswerNeeded:
        """The error for a question that got no answer: says what to send with the next call."""
        said = (
            f"send {example(question)}" if self.accepts_prefilled(question) else "a yes sent beforehand does not count"
        )
        hint = f"{why}; {said}"
        return AnswerNeeded(f"{question.message}: {hint}", question=question.key, hint=hint)


def require_distinct_keys(questions: Sequence[Question[Any]]) -> None:
    """Refuse two questions of one key that are asked at once.

    Raises:
        LookupError: which is a bug of the command.
    """
    keys = [question.key for question in questions]
    if len(set(keys)) != len(keys):
        raise LookupError(f"questions asked at once need keys of their own: {', '.join(keys)}")


def answer_resolution(asking: Asking) -> AnswerResolution:
    """A resolution for one call, as the operator set it."""
    return AnswerResolution(asking.mode, trusts_answers=asking.trusts_answers)


def channels_for(question: Question[Any], mode: AskMode) -> tuple[AskChannel, ...]:
    """The channels on which this may be asked, best first."""
    if ASK_MODES.index(mode) < ASK_MODES.index("elicitation"):
        return ()
    if isinstance(question, AskRoots):
        return (AskChannel.ROOTS,)
    by_model = (AskChannel.MODEL,) if mode == "sampling" and question.can_be_sampled else ()
    if isinstance(question, AskModel):
        return by_model
    if question.is_secret:
        return (AskChannel.TERMINAL,)
    return (AskChannel.TERMINAL, AskChannel.FORM, *by_model)


def declined_error(question: Question[Any], how: str) -> Declined:
    """The error for a question to which somebody said no, or nothing."""
    return Declined(f"{question.message}: {how}; nothing was done", question=question.key)


def example(question: Question[Any]) -> str:
    """An argument `answers` that would do, and what else would."""
    schema = question.schema()
    properties: dict[str, Any] = schema.get("properties", {})
    if isinstance(question, AskForm):
        shown: Any = {name: _shown(properties[name]) for name in schema.get("required", properties)}
        words = ""
    else:
        shown, words = _shown(properties["answer"]), _words(properties["answer"])
    return f"answers={json.dumps({question.key: shown})}{words}"


def _shown(shape: Mapping[str, Any]) -> Any:
    """A value of a shape."""
    if "enum" in shape:
        return shape["enum"][0]
    if shape.get("type") == "array":
        return [_shown(shape.get("items", {}))] if shape.get("minItems") or shape.get("maxItems", 1) else []
    return {"boolean": True, "integer": 1, "number": 1}.get(shape.get("type", ""), "...")


def _words(shape: Mapping[str, Any]) -> str:
    """Which values there are, and how many of them are wanted."""
    if "enum" in shape:
        return f" (one of {', '.join(shape['enum'])})"
    choices = shape.get("items", {}).get("enum")
    if choices is None:
        return ""
    return f" ({shape['minItems']} to {shape['maxItems']} of {', '.join(choices)})"
