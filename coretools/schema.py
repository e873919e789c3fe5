"""From a signature to JSON Schema and strict arguments.

The only place that turns Python types into JSON Schema (2020-12) and JSON into arguments. Arguments are taken as they
are: unknown names are refused by name, nothing is coerced, and text that looks like JSON stays text.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model

from coretools.call import Call
from coretools.errors import BadSetting, InvalidArguments

_STRICT = ConfigDict(extra="forbid", strict=True)

_MOST_FAULTS = 10
"""Faults that one error names. A list of 100,000 wrong items has as many, and made an error of 7 MB."""

_NAME_LENGTH = 100
"""Characters that are shown of where a fault is: the caller chose the name of an unknown argument."""

_EXPECTED = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "string_unicode": "must be valid Unicode text (no lone surrogates)",
}
"""pydantic's error types in our words; others keep pydantic's own sentence."""


class Arguments:
    """The parameters of one function: their schema, and the check of what a caller sends.

    A parameter annotated `Call` is no argument: its name is `call_parameter` and the dispatcher fills it.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        hints = get_type_hints(function, include_extras=True)
        self.call_parameter: str | None = None
        parameters: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            hint = hints.get(parameter.name, Any)
            if hint is Call:
                self.call_parameter = parameter.name
                continue
            default = ... if parameter.default is parameter.empty else parameter.default
            parameters[parameter.name] = (hint, default)
        self.names: tuple[str, ...] = tuple(parameters)
        self._model: type[BaseModel] = create_model(f"{name}_arguments", __config__=_STRICT, **parameters)

    def schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the arguments, without the words that say nothing to a model."""
        return compact(self._model.model_json_schema())

    def accept(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them.

        Raises:
            InvalidArguments: says the first faults by the name of their argument, what would be accepted, and how many
                more there are.
        """
        try:
            model = self._model.model_validate(dict(given))
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=True)
            said = [self._fault(fault) for fault in faults[:_MOST_FAULTS]]
            if len(faults) > _MOST_FAULTS:
                said.append(f"and {len(faults) - _MOST_FAULTS} more")
            raise InvalidArguments(f"{self._name}: " + "; ".join(said)) from None
        return {name: getattr(model, name) for name in self.names}

    def _fault(self, fault: Any) -> str:
        where = ".".join(str(part) for part in fault["loc"])[:_NAME_LENGTH] or "arguments"
        kind: str = fault["type"]
        if kind == "missing":
            return f"{where}: is required"
        if kind == "extra_forbidden" and len(fault["loc"]) > 1:
            return f"{where}: unknown name"
        if kind == "extra_forbidden":
            close = difflib.get_close_matches(where, self.names, n=1)
            meant = f", did you mean {close[0]}?" if close else ""
            return f"{where}: unknown argument{meant} (takes {', '.join(self.names) or 'none'})"
        said = _EXPECTED.get(kind)
        if said is None:
            message: str = fault["msg"]
            return f"{where}: {message[:1].lower()}{message[1:]}"
        return f"{where}: {said}, got {_shown(fault['input'])}"


def output_schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a structured result: the shape of what comes, not a check of it.

    Fields are always all there and no other ever is, so neither is said: half the bytes of a schema went into that.
    """
    schema = compact(TypeAdapter(model).json_schema(mode="serialization"))
    _drop(schema, ("required", "additionalProperties"))
    return schema


def compact(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without the words that say nothing to a model: half the size of a tool list.

    Titles, descriptions of whole models, null arms (an optional argument is left out; null is accepted all the same),
    lower bounds of 0 and 1, defaults that go without saying (null, false, 0, "", [], and "." for a path), and that no
    other name is taken. Models are written where they are used, not by reference. What is left out of the schema is
    checked all the same.

    Raises:
        BadSetting: a model that holds itself, which can't be written out.
    """
    whole: dict[str, Any] = _shortened(_inlined(schema, schema.get("$defs", {})))
    whole.pop("$defs", None)
    return whole


def _inlined(node: Any, models: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, models) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].removeprefix("#/$defs/")
        if name not in models:
            raise BadSetting(f"{name}: a model that holds itself can't be an argument or a result")
        others = {other: model for other, model in models.items() if other != name}
        return {**_inlined(models[name], others), **{key: value for key, value in node.items() if key != "$ref"}}
    return {key: value if key == "$defs" else _inlined(value, models) for key, value in node.items()}


def _shortened(node: Any) -> Any:
    if isinstance(node, list):
        return [_shortened(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = _without_null_arm(node)
    return {key: _shortened_value(key, value) for key, value in node.items() if not _says_nothing(key, value, node)}


def _shortened_value(key: str, value: Any) -> Any:
    # Below it the keys are names of arguments, not words of JSON Schema.
    if key == "properties":
        return {name: _shortened(item) for name, item in value.items()}
    return _shortened(value)


def _says_nothing(key: str, value: Any, node: dict[str, Any]) -> bool:
    if key == "title":
        return isinstance(value, str)
    if key == "default":
        return not value or value == "."
    if key in ("minimum", "minItems"):
        return value in (0, 1)
    if key == "additionalProperties":
        return value is False
    return key == "description" and "properties" in node


def _without_null_arm(node: dict[str, Any]) -> dict[str, Any]:
    arms = node.get("anyOf", ())
    others = [arm for arm in arms if arm != {"type": "null"}]
    if len(arms) != 2 or len(others) != 1:
        return node
    return {**others[0], **{key: value for key, value in node.items() if key != "anyOf"}}


def _drop(node: Any, words: tuple[str, ...]) -> None:
    """Take words out of a schema, except where they are the names of fields."""
    if isinstance(node, list):
        for item in node:
            _drop(item, words)
    if isinstance(node, dict):
        for word in words:
            if not isinstance(node.get(word), dict) or word == "required":
                node.pop(word, None)
        for key, value in node.items():
            for inner in value.values() if key == "properties" else (value,):
                _drop(inner, words)


def _shown(value: object) -> str:
    """A value as an error shows it: its JSON kind, and itself when it is short."""
    kinds = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
    kind = kinds.get(type(value), "null" if value is None else type(value).__name__)
    if isinstance(value, str | int | float) and len(repr(value)) <= 40:
        return f"{kind} {value!r}"
    return kind
