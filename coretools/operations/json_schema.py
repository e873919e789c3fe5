"""JSON Schema: written for pydantic types, shortened for models, and applied where a command brings its own.

pydantic writes a schema (`serialization_schema` for results); `compact` removes what is redundant for a model. A
command with `@raw_schema` has its schema checked by `check_input_schema` and its arguments by `validate_arguments`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, WithJsonSchema

from coretools.errors import BadSetting, InvalidArguments

MAX_FAULTS = 10
"""Faults that one error lists. A list of 100,000 wrong items has as many, and made an error of 7 MB."""

MAX_QUOTED = 200
"""Characters shown of one fault; its text quotes what the caller sent."""

_SCHEMA_HOOKS = frozenset({"pydantic_js_functions", "pydantic_js_annotation_functions", "pydantic_js_extra"})
"""Metadata keys of pydantic's core schema that hold functions and values which change a JSON Schema."""

_UNRESTRICTIVE_KEYWORDS = frozenset({"title", "description", "examples", "deprecated", "readOnly"})
"""Keywords of JSON Schema that restrict no value."""


# A command's own schema (`@raw_schema`). `jsonschema` is imported late: it takes 60 ms, and no built-in tool uses it.


def check_input_schema(source: str, schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is invalid, does not describe an object, or has references outside itself.

    Raises:
        BadSetting: names the problem.
    """
    from jsonschema import Draft202012Validator, SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    subject = f"{source}: its input schema (@raw_schema)"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise BadSetting(f"{subject} is invalid: {error.message[:MAX_QUOTED]}") from None
    if schema.get("type") != "object":
        raise BadSetting(f'{subject} must have "type": "object" at the top')
    own = DRAFT202012.create_resource(schema)
    resolver = Registry().with_resource("", own).resolver()
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise BadSetting(f"{subject} refers to {reference[:MAX_QUOTED]!r}, which is not within it") from None


def _references(node: Any) -> Iterator[str]:
    """Every `$ref` in a schema."""
    if isinstance(node, dict):
        found = node.get("$ref")
        if isinstance(found, str):
            yield found
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from _references(child)


def validate_arguments(name: str, schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, if they match the schema. References are resolved within the schema; nothing is fetched.

    Raises:
        InvalidArguments: lists the first faults with their places.
    """
    from jsonschema import Draft202012Validator

    from coretools.operations.schema_patterns import PATTERN_FAULTS, limited_validator

    found = []
    try:
        validator = limited_validator(Draft202012Validator, schema)
        for fault in validator.iter_errors(dict(given)):
            where = ".".join(map(str, fault.absolute_path)) or "arguments"
            found.append(f"{where[:MAX_QUOTED]}: {fault.message[:MAX_QUOTED]}")
            if len(found) == MAX_FAULTS:
                break
    except PATTERN_FAULTS as error:
        raise InvalidArguments(f"{name}: a regular expression of its schema can't be used: {error}") from error
    if found:
        raise InvalidArguments(f"{name}: " + "; ".join(found))
    return dict(given)


MAX_NESTED = 8
"""Levels of a schema of somebody else that are shown."""

_KEYWORD_TYPES: dict[str, tuple[type, ...]] = {
    "description": (str,),
    "title": (str,),
    "type": (str, list),
    "enum": (list,),
    "required": (list,),
    "default": (object,),
}


def understood(schema: Any, bounds: Iterable[str], depth: int = 0) -> dict[str, Any]:
    """Return the part of any schema that pages and command lines understand; `bounds` are keywords with a number."""
    if not isinstance(schema, dict) or depth > MAX_NESTED:
        return {}
    kinds = {**_KEYWORD_TYPES, **dict.fromkeys(bounds, (int, float))}
    found = {key: schema[key] for key in schema.keys() & kinds.keys() if isinstance(schema[key], kinds[key])}
    shown = partial(understood, bounds=bounds, depth=depth + 1)
    if isinstance(schema.get("properties"), dict):
        found["properties"] = {name: shown(shape) for name, shape in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        found["items"] = shown(schema["items"])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            found[key] = list(map(shown, schema[key]))
    return found


_HEADER_KEY = "x-mcp-header"
"""Annotation of a parameter that a header of the request repeats."""


def declares_header(schema: object) -> bool:
    """Whether a schema names a header anywhere. A parameter of that name also counts: the SDK checks it too."""
    if isinstance(schema, dict):
        return _HEADER_KEY in schema or any(declares_header(inner) for inner in schema.values())
    return isinstance(schema, list) and any(declares_header(inner) for inner in schema)


# Schemas of results


def output_schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a structured result: describes its shape, and does not restrict it.

    `required` and `additionalProperties` are left out: all fields are always present and there are no others. They
    took half the bytes of a schema. So is the type of the values of a mapping.
    """
    schema = compact(serialization_schema(TypeAdapter(model)), keeps_null=True)
    _drop(schema, ("required", "additionalProperties"))
    return schema


def serialization_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The schema of what pydantic writes for a type; empty where that may be anything."""
    return adapter.json_schema(mode="serialization", schema_generator=_SerializationSchema)


def has_custom_serialization(adapter: TypeAdapter[Any]) -> bool:
    """Whether an author's code decides what is written or what the schema states.

    pydantic believes such code even where its schema is wrong. A client that validates results would then refuse one
    although the command has run, so the server validates these results itself.
    """
    return _is_customized(adapter.core_schema)


class _SerializationSchema(GenerateJsonSchema):
    """A serializer without a return annotation may write anything; pydantic would state the type of the field."""

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
    hooks = [hook for key in _SCHEMA_HOOKS for hook in _as_list(metadata.get(key))]
    return bool(updates.keys() - _UNRESTRICTIVE_KEYWORDS) or any(_is_authors(hook) for hook in hooks)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_authors_serializer(node: dict[str, Any]) -> bool:
    is_function = node.get("type") in ("function-plain", "function-wrap") and "function" in node
    return is_function and _is_authors(node["function"])


def _is_authors(code: Any) -> bool:
    """Whether a function or schema comes from outside pydantic."""
    function = code.get("function") if isinstance(code, dict) else code
    has_own_schema = isinstance(getattr(function, "__self__", None), WithJsonSchema)  # the author wrote its schema
    return has_own_schema or not str(getattr(function, "__module__", "")).startswith("pydantic.")


# Shortening


def compact(schema: dict[str, Any], *, keeps_null: bool = False) -> dict[str, Any]:
    """A schema without what is redundant for a model, which halves the size of a tool list.

    Left out: titles, descriptions of whole models, null arms (an optional argument is left out instead; null is still
    accepted), lower bounds of 0 and 1, default values null, false, 0, "", [] and "." for a path, and
    `additionalProperties: false`. Models are inlined. Everything left out is still validated. `keeps_null` is for
    results, where null is a value.

    Raises:
        BadSetting: a model contains itself, so it can't be inlined.
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
            raise BadSetting(f"{name}: a model that contains itself can't be an argument or a result")
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
    # Below `properties` the keys are names of arguments, not keywords of JSON Schema.
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
    if len(others) == len(arms):
        return node
    if len(others) == 1:
        return {**others[0], **{key: value for key, value in node.items() if key != "anyOf"}}
    return {**node, "anyOf": others}


def _drop(node: Any, keywords: tuple[str, ...]) -> None:
    """Remove keywords from a schema, except where they are names of fields."""
    if isinstance(node, list):
        for item in node:
            _drop(item, keywords)
    if isinstance(node, dict):
        for keyword in keywords:
            node.pop(keyword, None)
        for key, value in node.items():
            for inner in value.values() if key == "properties" else (value,):
                _drop(inner, keywords)
