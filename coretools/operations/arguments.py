"""The arguments of a command: the JSON Schema (2020-12) of its parameters, and strict validation of what is sent.

Unknown names are refused by name. Nothing is coerced, except that a parameter may come under an alias, and a list or an
object as JSON text (`coretools.operations.argument_repair`).
"""

import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from coretools.errors import BadSetting, InvalidArguments
from coretools.operations import json_schema
from coretools.operations.annotations import (
    TYPE_FAULTS,
    describe_place,
    described,
    first_sentence,
    is_json_type,
    resolve_hints,
    type_text,
)
from coretools.operations.argument_faults import describe_value, fault_sentences
from coretools.operations.argument_repair import MANY_FAULTS, MAX_QUOTED_NAME, check_aliases, declared_aliases, repaired
from coretools.operations.call import Call, Principal
from coretools.operations.declare import Aliases, Channel, Declaration, source_of
from coretools.operations.docstring import docstring_of
from coretools.operations.session_state import SessionState
from coretools.operations.short_schema import compact
from coretools.services.interface import Services

ANSWERS = "answers"
"""The argument for prefilled answers, by the key of the question."""

_SCALARS = ("string", "integer", "number", "boolean")

_INJECTED: tuple[Any, ...] = (Call, Services, Principal, Channel, SessionState, SessionState | None)
"""Types of parameters that the dispatcher fills in, besides those of a lifespan."""

ANY_ANSWER = MappingProxyType({"type": ["string", "boolean", "array", "object"]})
"""Schema of an answer to a question of which only the key was declared: every type that any question accepts."""

_UNNAMED = {
    inspect.Parameter.VAR_POSITIONAL: "*{}",
    inspect.Parameter.VAR_KEYWORD: "**{}",
    inspect.Parameter.POSITIONAL_ONLY: "{}, /",
}
"""Parameters that can't be passed by name, as they are written."""

_STRICT = ConfigDict(extra="forbid", strict=True)

_MAX_REPAIRS = 4
"""Repairs of one set of arguments: an alias, JSON text, aliases within it, and one more."""


NOTHING_DECLARED = Declaration()
"""Of a function without decorators."""


class Arguments:
    """The parameters of one function: their schema, and the validation of what a caller sends.

    A parameter whose type is `Call`, `Services`, `Principal`, `Channel`, `SessionState` or one of the lifespan is no
    argument: it is in `injected`, and the dispatcher fills it in. A command that `asks` has the additional argument
    `answers`, which is not passed to the function.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        declared: Declaration = NOTHING_DECLARED,
        injected: Sequence[Any] = (),
    ) -> None:
        """`injected` are types that the dispatcher fills in, in addition to its own."""
        asks = declared.asks
        self._name = name
        self._source = source_of(function)
        self._asks = asks
        self._questions = declared.questions
        self._listed = tuple(key for key in asks if key not in declared.unlisted_asks)
        self._raw = declared.input_schema
        self._schema: dict[str, Any] | None = None
        hints = resolve_hints(function)
        texts = docstring_of(function).parameters
        self.injected: dict[str, Any] = {}
        parameters: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            hint = hints.get(parameter.name, Any)
            if hint in (*_INJECTED, *injected) or given_by(hint):
                self.injected[parameter.name] = hint
                continue
            default = ... if parameter.default is parameter.empty else parameter.default
            parameters[parameter.name] = (described(hint, texts.get(parameter.name)), default)
        self.names: tuple[str, ...] = tuple(parameters)
        self.required: tuple[str, ...] = tuple(name for name, (_, default) in parameters.items() if default is ...)
        if ANSWERS in parameters and asks:
            raise BadSetting(
                f"{self._source}: {ANSWERS!r} is taken by the answers to its questions; rename the parameter"
            )
        self._has_json_types_only = all(is_json_type(hint) for hint, _ in parameters.values())
        self._model = self._build_model(parameters)
        self._extra: Literal["forbid"] | None = None if any(map(_is_open, self._inner_models)) else "forbid"
        """Refuses unknown fields of models that do not say what they want; pydantic ignores those."""

    @cached_property
    def _inner_models(self) -> list[type[BaseModel]]:
        return list(dict.fromkeys(_models_in(self._model.__pydantic_core_schema__)))

    def _build_model(self, parameters: Mapping[str, Any]) -> type[BaseModel]:
        """The pydantic model of the parameters.

        Raises:
            BadSetting: a parameter has no schema; names it.
        """
        try:
            model = _model_of(f"{self._name}_arguments", parameters)
        except TYPE_FAULTS as error:
            raise self._schema_error(parameters, error) from error
        dropped = [name for name in parameters if name not in model.model_fields]
        if dropped:
            raise BadSetting(
                f"{self._source}: {describe_place(dropped[0])} has a name that pydantic keeps; "
                "choose another that begins with a letter"
            )
        check_aliases(self._source, model)
        return model

    def _schema_error(self, parameters: Mapping[str, Any], error: BaseException) -> BadSetting:
        """The error for the first parameter that has no schema by itself."""
        for name, parameter in parameters.items():
            try:
                _model_of("one", {name: parameter}).model_json_schema()
            except TYPE_FAULTS as one:
                where, reason = f"{describe_place(name)} ({type_text(parameter[0])})", first_sentence(one)
                break
        else:
            where, reason = "its signature", first_sentence(error)
        return BadSetting(
            f"{self._source}: {where} has no JSON Schema: {reason}. Use text, numbers, booleans, lists, dicts, "
            "dataclasses or pydantic models, or plain Call and Services"
        )

    def schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the arguments, without redundant keywords. Must not be modified.

        Raises:
            BadSetting: a parameter has no schema; names it.
        """
        if self._schema is None:
            self._schema = self._build_schema() if self._raw is None else dict(self._raw)
        return self._schema

    def _build_schema(self) -> dict[str, Any]:
        try:
            whole = self._model.model_json_schema()
            for model in self._inner_models if self._extra is None else ():
                if model.model_config.get("extra") != "forbid":
                    whole.get("$defs", {}).get(model.__name__, {}).setdefault("additionalProperties", True)
            schema = compact(whole)
            answers = self.answers
        except TYPE_FAULTS as error:
            fields = self._model.model_fields
            raise self._schema_error({name: (one.annotation, one) for name, one in fields.items()}, error) from error
        if answers:
            schema["properties"][ANSWERS] = {
                "type": "object",
                "description": "Answers given beforehand to what it may ask",
                "properties": answers,
            }
        return schema

    @cached_property
    def answers(self) -> dict[str, dict[str, Any]]:
        """The schema of each answer that can be prefilled and is listed."""
        return {key: self._answer_schema(key) for key in self._listed}

    def _answer_schema(self, key: str) -> dict[str, Any]:
        question = self._questions.get(key)
        return dict(ANY_ANSWER) if question is None else compact(question.answer_schema())

    @property
    def aliases(self) -> Mapping[str, Aliases]:
        """The unlisted names of the parameters that have some."""
        return dict(declared_aliases(self._model))

    @property
    def fits_uri(self) -> bool:
        """Whether every argument can be part of a URI: text, a number, a boolean, or a type written as text."""
        properties = self.schema().get("properties", {})
        return all(shape.get("type") in _SCALARS for shape in properties.values())

    def from_text(self, given: Mapping[str, str | Sequence[str]]) -> dict[str, Any]:
        """JSON values for arguments written as text (in a URI, or as arguments of a prompt).

        Text stays text; a number, true or false is parsed where the schema has that type. Text that does not parse is
        left as it is, and `accept` refuses it.
        """
        properties = self.schema().get("properties", {})
        return {name: _parse_text(value, properties.get(name, {})) for name, value in given.items()}

    def split_answers(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments of the function, and the prefilled answers.

        Raises:
            InvalidArguments: the answers are not an object, or answer a question that the command does not ask.
        """
        arguments = dict(given)
        if not self._asks:
            return arguments, {}
        answers = arguments.pop(ANSWERS, None) or {}
        answers = _parsed_object(answers) if isinstance(answers, str) else answers
        if not isinstance(answers, dict):
            raise InvalidArguments(f"{self._name}: {ANSWERS}: must be an object, got {describe_value(answers)}")
        unknown = [key for key in answers if key not in self._asks]
        if unknown:
            asked = ", ".join(self._asks)
            raise InvalidArguments(f"{self._name}: {ANSWERS}.{unknown[0][:MAX_QUOTED_NAME]}: it asks for {asked}")
        return arguments, answers

    def accept(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The validated arguments, with the types of the function's parameters.

        Raises:
            InvalidArguments: lists the first faults with the names of their arguments and what is accepted, and how
                many more there are.
        """
        return self.accept_named(given)[1]

    def accept_named(self, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """What was given, under the parameters' own names and without JSON text, and the validated arguments.

        Raises:
            InvalidArguments: as `accept`.
        """
        if self._raw is not None:
            return given, {self.names[0]: json_schema.validate_arguments(self._name, self._raw, given)}
        try:
            model = self._validated(given)
        except ValidationError as error:
            given, model = self._validated_after_repair(given, error)
        values = vars(model)  # not by attribute: a parameter may be named as one of pydantic's (`model_extra`)
        return given, {name: values[name] for name in self.names}

    def _validated_after_repair(
        self, given: Mapping[str, Any], error: ValidationError
    ) -> tuple[Mapping[str, Any], BaseModel]:
        """Rename aliases and parse JSON text until the arguments are valid or nothing is left to repair.

        Not where a header repeats a parameter: it was compared with the arguments as they were sent.
        """
        for _ in range(0 if json_schema.declares_header(self.schema()) else _MAX_REPAIRS):
            try:
                better = repaired(self._model, given, error)
                if better is None:
                    break
                given = better
                return given, self._validated(given)
            except ValidationError as following:
                error = following
            except InvalidArguments as conflict:
                raise InvalidArguments(f"{self._name}: {conflict}") from None
        raise self._refusal(given, error) from None

    def _validated(self, given: Mapping[str, Any]) -> BaseModel:
        if self._has_json_types_only:
            return self._model.model_validate(dict(given), strict=True, extra=self._extra)
        # Dates, UUIDs and the like are text in JSON, which only pydantic's JSON mode accepts strictly.
        return self._model.model_validate_json(_json(self._name, given), strict=True, extra=self._extra)

    def _refusal(self, given: Mapping[str, Any], error: ValidationError) -> InvalidArguments:
        total = error.error_count()
        if total > MANY_FAULTS:
            # Listing all faults of a line of 16 MiB takes ten seconds, in which no other call is answered.
            try:
                self._validated(
                    {name: value[:1000] if isinstance(value, list) else value for name, value in given.items()}
                )
            except ValidationError as first:
                error = first
        sentences = fault_sentences(self._model, self.schema(), given, error, total=total)
        return InvalidArguments(f"{self._name}: " + "; ".join(sentences))


def given_by(hint: Any) -> str:
    """Where values of a type that is never an argument come from; empty for other types."""
    text: str = getattr(hint, "__coretools_given__", "")
    return text


def parameters_of(
    function: Callable[..., Any], injected: Sequence[Any] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the arguments, and of the required ones, without building a model. `injected` as for `Arguments`.

    Raises:
        BadSetting: an annotation can't be resolved.
    """
    hints = resolve_hints(function)
    given = [
        one
        for one in inspect.signature(function).parameters.values()
        if hints.get(one.name) not in (*_INJECTED, *injected) and not given_by(hints.get(one.name))
    ]
    return tuple(one.name for one in given), tuple(one.name for one in given if one.default is one.empty)


def require_named(function: Callable[..., Any]) -> None:
    """Refuse parameters that can't be passed by name.

    Raises:
        BadSetting: names the parameter.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except NameError:  # Python 3.14 evaluates annotations here; a name may be defined below the function
        return
    for parameter in parameters:
        if parameter.kind in _UNNAMED:
            written = _UNNAMED[parameter.kind].format(parameter.name)
            raise BadSetting(
                f"{source_of(function)}: parameter {written} can't be given by name; name each parameter, "
                "or take one list or dict"
            )


def _model_of(name: str, parameters: Mapping[str, Any]) -> type[BaseModel]:
    with warnings.catch_warnings():
        # Of names such as `json`, `schema` and `copy`. Only values of the parameters are read from the model.
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute")
        model: type[BaseModel] = create_model(name, __config__=_STRICT, **parameters)
    return model


def _models_in(schema: object) -> Iterator[type[BaseModel]]:
    """The models within pydantic's core schema of a model."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "model" and isinstance(schema.get("cls"), type):
            yield schema["cls"]
        for part in schema.values():
            yield from _models_in(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _models_in(part)


def _is_open(model: type[BaseModel]) -> bool:
    """Whether the author of a model wants unknown fields to be accepted."""
    return model.model_config.get("extra") in ("allow", "ignore")


def _parse_text(value: str | Sequence[str], shape: Mapping[str, Any]) -> Any:
    kind = shape.get("type")
    if kind == "array":
        if isinstance(value, str) and isinstance(_json_or_text(value), list):
            return value  # `accept` parses it
        items = [value] if isinstance(value, str) else list(value)
        return [_parse_text(item, shape.get("items", {})) for item in items]
    return _json_or_text(value) if kind in ("integer", "number", "boolean") and isinstance(value, str) else value


def _json_or_text(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return text


def _parsed_object(text: str) -> Any:
    value = _json_or_text(text)
    return value if isinstance(value, dict) else text


def _json(name: str, given: Mapping[str, Any]) -> str:
    try:
        return json.dumps(given)
    except (TypeError, ValueError) as error:
        raise InvalidArguments(f"{name}: the arguments can't be written as JSON: {error}") from None
