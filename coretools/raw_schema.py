"""Arguments of a command that publishes a JSON Schema of its own: checked by that, with the `jsonschema` library.

For commands that come from elsewhere, with their schema. Imported late: no tool of ours needs it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from coretools.errors import BadSetting, InvalidArguments

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
