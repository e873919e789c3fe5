"""The kinds of questions that a command may ask, and the validation of their answers, equal on every surface.

A command declares its questions with `@asks(...)` and calls `await call.ask(...)`. The surface delivers the question
(`coretools.questions.answer_resolution` has the order of the channels). A command must not have effects before its last
question: in the stateless era it runs again from its start with the answers.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from coretools.errors import BadSetting, InvalidArguments

T_co = TypeVar("T_co", covariant=True)
ModelT = TypeVar("ModelT", bound=BaseModel)

YES = ("yes", "y", "true")
NO = ("no", "n", "false")


class Missing:
    """The type of `MISSING`: the question has no default."""


MISSING = Missing()


@dataclass(frozen=True, kw_only=True)
class Question(ABC, Generic[T_co]):
    """One question. `key` is its name in `answers`, in the protocol's requests and on the command line."""

    key: str
    message: str
    default: T_co | Missing = MISSING
    is_for_operator: bool = False
    """Whether the operator requires the answer of a person. A prefilled one counts only if the operator allows it."""

    @property
    def needs_person(self) -> bool:
        """Whether a prefilled answer counts only if the operator allows it."""
        return self.is_for_operator

    @property
    def is_permission(self) -> bool:
        """Whether the answer permits one action: valid once, and only in response to the question."""
        return self.is_for_operator

    @property
    def is_secret(self) -> bool:
        """Whether the answer must not pass through a form or a model."""
        return False

    @property
    def can_be_sampled(self) -> bool:
        """Whether a model may answer (sampling). Never for permissions, which need a person."""
        return not self.is_permission

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the answer for a form: one property named `answer`, or the fields of a model."""

    def answer_schema(self) -> dict[str, Any]:
        """JSON Schema of a prefilled answer, for the argument `answers`."""
        shape: dict[str, Any] = self.schema()["properties"]["answer"]
        return {**shape, "description": self.message}

    @abstractmethod
    def accept(self, raw: Any) -> T_co:
        """Validate an answer that was prefilled, typed or returned by a form.

        Raises:
            InvalidArguments: the answer is invalid; names a valid one.
        """

    def fault(self, problem: str) -> InvalidArguments:
        """The error for an invalid answer."""
        return InvalidArguments(f"answers.{self.key}: {problem}")


@dataclass(frozen=True, kw_only=True)
class AskText(Question[str]):
    """A line of text."""

    most_characters: int = 10_000

    def schema(self) -> dict[str, Any]:
        """A string."""
        return _form({"type": "string", "maxLength": self.most_characters})

    def accept(self, raw: Any) -> str:
        """Text within the length limit."""
        raw = _answer(raw)
        if not isinstance(raw, str):
            raise self.fault(f"must be text, got {type(raw).__name__}")
        if len(raw) > self.most_characters:
            raise self.fault(f"at most {self.most_characters} characters, got {len(raw)}")
        return raw


@dataclass(frozen=True, kw_only=True)
class AskSecret(Question[str]):
    """A secret: prefilled, or typed at a terminal without echo. Never sent to a form or a model."""

    @property
    def is_secret(self) -> bool:
        """Always."""
        return True

    @property
    def can_be_sampled(self) -> bool:
        """Never."""
        return False

    def schema(self) -> dict[str, Any]:
        """A string."""
        return _form({"type": "string"})

    def accept(self, raw: Any) -> str:
        """Text that is not empty; the error does not show it."""
        if not isinstance(raw, str) or not raw:
            raise self.fault("must be text that is not empty")
        return raw


@dataclass(frozen=True, kw_only=True)
class AskChoice(Question[str]):
    """One of several choices."""

    choices: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.choices:
            raise BadSetting(f"AskChoice {self.key!r}: there is nothing to choose from; pass choices=(...)")
        if not isinstance(self.default, Missing) and self.default not in self.choices:
            raise BadSetting(f"AskChoice {self.key!r}: its default {self.default!r} is not one of its choices")

    def schema(self) -> dict[str, Any]:
        """An enumeration."""
        return _form({"type": "string", "enum": list(self.choices)})

    def accept(self, raw: Any) -> str:
        """A choice, else one that differs in case only, else an unambiguous prefix of one, ignoring case."""
        return _chosen(self, _answer(raw), self.choices)


@dataclass(frozen=True, kw_only=True)
class AskChoices(Question[tuple[str, ...]]):
    """Some of several choices, in the order of the choices."""

    choices: tuple[str, ...]
    at_least: int = 0
    at_most: int | None = None

    def schema(self) -> dict[str, Any]:
        """An array of an enumeration."""
        bounds = {"minItems": self.at_least, "maxItems": len(self.choices) if self.at_most is None else self.at_most}
        return _form({"type": "array", "items": {"type": "string", "enum": list(self.choices)}, **bounds})

    def accept(self, raw: Any) -> tuple[str, ...]:
        """A list, or text separated by commas; each item as in `AskChoice`."""
        raw = _answer(raw)
        parts = [part.strip() for part in raw.split(",") if part.strip()] if isinstance(raw, str) else raw
        if not isinstance(parts, list | tuple):
            raise self.fault("must be a list of choices")
        picked = {_chosen(self, part, self.choices) for part in parts}
        most = len(self.choices) if self.at_most is None else self.at_most
        if not self.at_least <= len(picked) <= most:
            raise self.fault(f"choose {self.at_least} to {most} of {', '.join(self.choices)}; got {len(picked)}")
        return tuple(choice for choice in self.choices if choice in picked)


@dataclass(frozen=True, kw_only=True)
class AskConfirmation(Question[bool]):
    """A yes or no of a person for one action. Valid once, for the call that asks."""

    is_prefillable: bool = False
    """Whether the argument `answers` may contain the answer: then the agent that calls can confirm by itself."""

    @property
    def needs_person(self) -> bool:
        """True unless its author lets agents confirm, and always if the operator requires it."""
        return self.is_for_operator or not self.is_prefillable

    @property
    def is_permission(self) -> bool:
        """Always."""
        return True

    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return _form({"type": "boolean"})

    def accept(self, raw: Any) -> bool:
        """True or false, or yes, y, no, n, ignoring case; nothing else."""
        raw = _answer(raw)
        if isinstance(raw, bool):
            return raw
        word = raw.strip().lower() if isinstance(raw, str) else ""
        if word in YES or word in NO:
            return word in YES
        raise self.fault("must be true or false, or yes or no")


@dataclass(frozen=True, kw_only=True)
class AskForm(Question[ModelT]):
    """Several values at once: a flat model of text, numbers, booleans and choices."""

    model: type[ModelT]

    def __post_init__(self) -> None:
        if not (isinstance(self.model, type) and issubclass(self.model, BaseModel)):
            raise BadSetting(
                f"AskForm {self.key!r}: model must be a pydantic model (class ...(BaseModel)), not {self.model!r:.80}"
            )

    def schema(self) -> dict[str, Any]:
        """The schema of the model."""
        return self.model.model_json_schema()

    def answer_schema(self) -> dict[str, Any]:
        """The schema of the model: a form is answered by an object.

        Raises:
            BadSetting: a field is not possible in a form of the protocol.
        """
        schema = self.schema()
        for name, field in schema.get("properties", {}).items():
            if not _fits_a_form(field):
                raise BadSetting(
                    f"AskForm {self.key!r}: field {name!r} is not possible in a form; use text, numbers, booleans, "
                    "dates, Literal[...] or list[Literal[...]]"
                )
        return {**schema, "description": self.message}

    def accept(self, raw: Any) -> ModelT:
        """The model."""
        try:
            return self.model.model_validate(raw)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            if not fault["loc"]:
                raise self.fault(f"must be an object with {', '.join(self.model.model_fields)}") from None
            raise self.fault(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


@dataclass(frozen=True, kw_only=True)
class AskModel(Question[str]):
    """A question for the client's model (sampling) only."""

    most_tokens: int = 1_000
    system_prompt: str | None = None

    def schema(self) -> dict[str, Any]:
        """Text."""
        return _form({"type": "string"})

    def accept(self, raw: Any) -> str:
        """Text."""
        raw = _answer(raw)
        if not isinstance(raw, str):
            raise self.fault("must be text")
        return raw


@dataclass(frozen=True, kw_only=True)
class AskRoots(Question[tuple[str, ...]]):
    """The client's roots, as file URIs. They are advice, and never extend the roots of the operator."""

    message: str = "which directories are worked on"

    @property
    def can_be_sampled(self) -> bool:
        """Never: the client answers with its own list."""
        return False

    def schema(self) -> dict[str, Any]:
        """A list of strings."""
        return _form({"type": "array", "items": {"type": "string"}})

    def accept(self, raw: Any) -> tuple[str, ...]:
        """A list of URIs."""
        raw = _answer(raw)
        if not isinstance(raw, list) or not all(isinstance(uri, str) for uri in raw):
            raise self.fault("must be a list of URIs")
        return tuple(raw)


def _fits_a_form(field: dict[str, Any]) -> bool:
    """Whether a form can have the field: not a model, `Enum` (a reference), union, or list of anything but choices."""
    arms = [arm for arm in field.get("anyOf", [field]) if arm.get("type") != "null"]
    if len(arms) != 1:
        return False
    if arms[0].get("type") == "array":
        return bool({"enum", "anyOf", "oneOf"} & set(arms[0].get("items", {})))
    return arms[0].get("type") in ("string", "integer", "number", "boolean")


def _form(answer: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}


def _answer(raw: Any) -> Any:
    """The value of a form with one property, or the value itself."""
    return raw["answer"] if isinstance(raw, dict) and set(raw) == {"answer"} else raw


def _chosen(question: Question[Any], raw: Any, choices: Sequence[str]) -> str:
    if raw in choices:
        return str(raw)
    typed = raw.lower() if isinstance(raw, str) else ""
    whole = [choice for choice in choices if typed and choice.lower() == typed]
    meant = whole or [choice for choice in choices if typed and choice.lower().startswith(typed)]
    if len(meant) == 1:
        return meant[0]
    problem = f"{raw!r:.60} fits {', '.join(meant)}" if meant else f"{raw!r:.60} is not one of them"
    raise question.fault(f"choose one of {', '.join(choices)}; {problem}")
