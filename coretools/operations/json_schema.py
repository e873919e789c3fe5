"""JSON Schemas that a command brings itself (`@raw_schema`): checked when it is declared, applied to its arguments.

pydantic describes every other command; `output_schema` has the schemas of results, `short_schema` shortens all of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from coretools.errors import BadSetting, InvalidArguments

MAX_FAULTS = 10
"""Faults that one error lists. A list of 100,000 wrong items has as many, and made an error of 7 MB."""

MAX_QUOTED = 200
"""Characters shown of one fault; its text quotes what the caller sent."""

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
        reference = node.get("$ref")
        if isinstance(reference, str):
            yield reference
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

    faults = []
    try:
        validator = limited_validator(Draft202012Validator, schema)
        for fault in validator.iter_errors(dict(given)):
            where = ".".join(map(str, fault.absolute_path)) or "arguments"
            faults.append(f"{where[:MAX_QUOTED]}: {fault.message[:MAX_QUOTED]}")
            if len(faults) == MAX_FAULTS:
                break
    except PATTERN_FAULTS as error:
        raise InvalidArguments(f"{name}: a regular expression of its schema can't be used: {error}") from error
    if faults:
        raise InvalidArguments(f"{name}: " + "; ".join(faults))
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
    known = {key: schema[key] for key in schema.keys() & kinds.keys() if isinstance(schema[key], kinds[key])}
    shown = partial(understood, bounds=bounds, depth=depth + 1)
    if isinstance(schema.get("properties"), dict):
        known["properties"] = {name: shown(shape) for name, shape in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        known["items"] = shown(schema["items"])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            known[key] = list(map(shown, schema[key]))
    return known


_HEADER_KEY = "x-mcp-header"
"""Annotation of a parameter that a header of the request repeats."""


def declares_header(schema: object) -> bool:
    """Whether a schema names a header anywhere. A parameter of that name also counts: the SDK checks it too."""
    if isinstance(schema, dict):
        return _HEADER_KEY in schema or any(declares_header(inner) for inner in schema.values())
    return isinstance(schema, list) and any(declares_header(inner) for inner in schema)
