"""Arguments of a command that publishes a JSON Schema of its own: checked by that, with the `jsonschema` library.

For commands that come from elsewhere, with their schema. Imported late: no tool of ours needs it.
"""

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from coretools.errors import BadSetting, InvalidArguments
from coretools.operations.written_schema import written_schema

MOST_FAULTS = 10
"""Faults that one error names. A list of 100,000 wrong items has as many, and made an error of 7 MB."""

SHOWN = 200
"""Characters of one fault: its text quotes what the caller sent."""


def require_schema(source: str, schema: Mapping[str, Any]) -> None:
    """Refuse what is no JSON Schema of an object whose references lead to places within it.

    Raises:
        BadSetting: says what is wrong.
    """
    from jsonschema import Draft202012Validator, SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    said = f"{source}: its input schema (@raw_schema)"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise BadSetting(f"{said} is none: {error.message[:SHOWN]}") from None
    if schema.get("type") != "object":
        raise BadSetting(f'{said} must have "type": "object" at the top')
    own = DRAFT202012.create_resource(schema)
    resolver = Registry().with_resource("", own).resolver()
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise BadSetting(f"{said} refers to {reference[:SHOWN]!r}, which is not within it") from None


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        found = node.get("$ref")
        if isinstance(found, str):
            yield found
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for one in inside:
        yield from _references(one)


def accepted(name: str, schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, when the schema takes them. References are resolved within the schema only: nothing is fetched.

    Raises:
        InvalidArguments: the first faults, each with where it is.
    """
    # Imported late: 60 ms that a start of the server should not cost.
    from jsonschema import Draft202012Validator
    from referencing import Registry

    found = []
    for fault in Draft202012Validator(schema, registry=Registry()).iter_errors(dict(given)):
        where = ".".join(map(str, fault.absolute_path)) or "arguments"
        found.append(f"{where[:SHOWN]}: {fault.message[:SHOWN]}")
        if len(found) == MOST_FAULTS:
            break
    if found:
        raise InvalidArguments(f"{name}: " + "; ".join(found))
    return dict(given)


# JSON Schema as pydantic writes it, without the words that say nothing to a model. Pure.


def output_schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a structured result: the shape of what comes, not a check of it.

    Fields are always all there and no other ever is, so neither is said: half the bytes of a schema went into that.
    """
    schema = compact(written_schema(TypeAdapter(model)), keeps_null=True)
    _drop(schema, ("required", "additionalProperties"))
    return schema


def compact(schema: dict[str, Any], *, keeps_null: bool = False) -> dict[str, Any]:
    """A schema without the words that say nothing to a model: half the size of a tool list.

    Titles, descriptions of whole models, null arms (an optional argument is left out; null is accepted all the same),
    lower bounds of 0 and 1, defaults that go without saying (null, false, 0, "", [], and "." for a path), and that no
    other name is taken. Models are written where they are used, not by reference. What is left out of the schema is
    checked all the same. `keeps_null` is for results: null is one of their values.

    Raises:
        BadSetting: a model that holds itself, which can't be written out.
    """
    whole: dict[str, Any] = _shortened(_inlined(schema, schema.get("$defs", {})), keeps_null)
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


def _shortened(node: Any, keeps_null: bool) -> Any:
    if isinstance(node, list):
        return [_shortened(item, keeps_null) for item in node]
    if not isinstance(node, dict):
        return node
    node = node if keeps_null else _without_null_arm(node)
    return {
        key: _shortened_value(key, value, keeps_null)
        for key, value in node.items()
        if not _says_nothing(key, value, node)
    }


def _shortened_value(key: str, value: Any, keeps_null: bool) -> Any:
    # Below it the keys are names of arguments, not words of JSON Schema.
    if key == "properties":
        return {name: _shortened(item, keeps_null) for name, item in value.items()}
    return _shortened(value, keeps_null)


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


# Which types JSON has itself. Dates, identifiers, addresses, paths and enumerations are text there.


MOST_NESTED = 8
"""Models within each other that are looked through; one that holds itself has no end."""

_NATIVE = (str, int, float, bool, NoneType, Any, dict, list)


def is_native(hint: Any, within: int = 0) -> bool:
    """Whether what a JSON parser gives is of the type already."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        inside = [field.annotation for field in hint.model_fields.values()]
        return within < MOST_NESTED and _are_native(inside, within + 1)
    origin = get_origin(hint)
    if origin is Annotated:
        return is_native(get_args(hint)[0], within)
    if origin in (list, dict, Union, UnionType):
        return _are_native(get_args(hint), within)
    return origin is Literal or hint in _NATIVE


def _are_native(hints: Any, within: int) -> bool:
    return all(is_native(hint, within) for hint in hints)
