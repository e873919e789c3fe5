"""Arguments of a command that publishes a JSON Schema of its own: checked by that, with the `jsonschema` library.

For commands that come from elsewhere, with their schema. Imported late: no tool of ours needs it.
"""

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, WithJsonSchema

from coretools.errors import BadSetting, InvalidArguments

# JSON Schema of what pydantic writes, also where a type has a serializer or a schema of its own.
#
# An author's schema can be wrong, and pydantic takes it as it is. A client that validates a result would then refuse
# it although the command has run.


_SCHEMA_HOOKS = frozenset({"pydantic_js_functions", "pydantic_js_annotation_functions", "pydantic_js_extra"})
"""Where pydantic's core schema has the functions and values that change a JSON Schema."""

_UNRESTRICTIVE_KEYWORDS = frozenset({"title", "description", "examples", "deprecated", "readOnly"})
"""Of a JSON Schema: those that restrict no value."""


def serialization_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The schema of what is written; empty where that may be anything."""
    return adapter.json_schema(mode="serialization", schema_generator=_SerializationSchema)


def has_custom_serialization(adapter: TypeAdapter[Any]) -> bool:
    """Whether code that is not pydantic's decides what is written, or what the schema says of it."""
    return _is_customized(adapter.core_schema)


class _SerializationSchema(GenerateJsonSchema):
    """A serializer that does not say what it returns may write anything; pydantic takes the type of the field."""

    def ser_schema(self, schema: Any) -> JsonSchemaValue | None:
        found = super().ser_schema(schema)
        return {} if found is None and _is_authors_serializer(schema) else found


def _is_customized(node: Any) -> bool:
    if isinstance(node, list | tuple):
        return any(map(_is_customized, node))
    if not isinstance(node, dict):
        return False
    config = getattr(node.get("cls"), "model_config", {})
    if node.get("computed_fields") or "serialization_exclude_if" in node or config.get("json_schema_extra"):
        return True
    if _is_authors_serializer(node):
        return True
    metadata = node.get("metadata")
    if isinstance(metadata, dict) and _changes_schema(metadata):
        return True
    return any(_is_customized(value) for key, value in node.items() if key != "metadata")


def _changes_schema(metadata: dict[str, Any]) -> bool:
    updates = metadata.get("pydantic_js_updates") or {}
    changed = [one for key in _SCHEMA_HOOKS for one in _as_list(metadata.get(key))]
    return bool(updates.keys() - _UNRESTRICTIVE_KEYWORDS) or any(_is_authors(one) for one in changed)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_authors_serializer(node: dict[str, Any]) -> bool:
    return (
        node.get("type") in ("function-plain", "function-wrap") and "function" in node and _is_authors(node["function"])
    )


def _is_authors(code: Any) -> bool:
    """Whether it is not pydantic's."""
    function = code.get("function") if isinstance(code, dict) else code
    written = isinstance(getattr(function, "__self__", None), WithJsonSchema)  # its schema is the author's
    return written or not str(getattr(function, "__module__", "")).startswith("pydantic.")


MAX_FAULTS = 10
"""Faults that one error names. A list of 100,000 wrong items has as many, and made an error of 7 MB."""

MAX_QUOTED = 200
"""Characters of one fault: its text quotes what the caller sent."""


def check_input_schema(source: str, schema: Mapping[str, Any]) -> None:
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
        raise BadSetting(f"{said} is none: {error.message[:MAX_QUOTED]}") from None
    if schema.get("type") != "object":
        raise BadSetting(f'{said} must have "type": "object" at the top')
    own = DRAFT202012.create_resource(schema)
    resolver = Registry().with_resource("", own).resolver()
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise BadSetting(f"{said} refers to {reference[:MAX_QUOTED]!r}, which is not within it") from None


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        found = node.get("$ref")
        if isinstance(found, str):
            yield found
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for one in inside:
        yield from _references(one)


def validate_arguments(name: str, schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
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
        found.append(f"{where[:MAX_QUOTED]}: {fault.message[:MAX_QUOTED]}")
        if len(found) == MAX_FAULTS:
            break
    if found:
        raise InvalidArguments(f"{name}: " + "; ".join(found))
    return dict(given)


# JSON Schema as pydantic writes it, without the words that say nothing to a model. Pure.


def output_schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a structured result: the shape of what comes, not a check of it.

    Fields are always all there and no other ever is, so neither is said: half the bytes of a schema went into that.
    """
    schema = compact(serialization_schema(TypeAdapter(model)), keeps_null=True)
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
    whole: dict[str, Any] = _without_redundant(_inlined(schema, schema.get("$defs", {})), keeps_null)
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


def _without_redundant(node: Any, keeps_null: bool) -> Any:
    if isinstance(node, list):
        return [_without_redundant(item, keeps_null) for item in node]
    if not isinstance(node, dict):
        return node
    node = node if keeps_null else _without_null_arm(node)
    return {
        key: _value_without_redundant(key, value, keeps_null)
        for key, value in node.items()
        if not _is_redundant(key, value, node)
    }


def _value_without_redundant(key: str, value: Any, keeps_null: bool) -> Any:
    # Below it the keys are names of arguments, not words of JSON Schema.
    if key == "properties":
        return {name: _without_redundant(item, keeps_null) for name, item in value.items()}
    return _without_redundant(value, keeps_null)


def _is_redundant(key: str, value: Any, node: dict[str, Any]) -> bool:
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


MAX_NESTED = 8
"""Models within each other that are looked through; one that holds itself has no end."""

_JSON_TYPES = (str, int, float, bool, NoneType, Any, dict, list)


def is_json_type(hint: Any, within: int = 0) -> bool:
    """Whether what a JSON parser gives is of the type already."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        inside = [field.annotation for field in hint.model_fields.values()]
        return within < MAX_NESTED and _are_json_types(inside, within + 1)
    origin = get_origin(hint)
    if origin is Annotated:
        return is_json_type(get_args(hint)[0], within)
    if origin in (list, dict, Union, UnionType):
        return _are_json_types(get_args(hint), within)
    return origin is Literal or hint in _JSON_TYPES


def _are_json_types(hints: Any, within: int) -> bool:
    return all(is_json_type(hint, within) for hint in hints)
