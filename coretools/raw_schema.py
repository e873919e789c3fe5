"""Arguments of a command that publishes a JSON Schema of its own: checked by that, with the `jsonschema` library.

For commands that come from elsewhere, with their schema. Imported late: no tool of ours needs it.
"""

from collections.abc import Mapping
from typing import Any

from coretools.errors import BadSetting, InvalidArguments

MOST_FAULTS = 10
"""Faults that one error names."""

SHOWN = 200
"""Characters of one fault: its text quotes what the caller sent."""


def accepted(name: str, schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, when the schema takes them. References are resolved within the schema only: nothing is fetched.

    Raises:
        InvalidArguments: the first faults, each with where it is. BadSetting: the schema is none.
    """
    # Imported late: 60 ms that a start of the server should not cost.
    from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]  # has no stubs of its own
    from referencing import Registry

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise BadSetting(f"{name}: its input schema is none: {error.message[:SHOWN]}") from None
    found = []
    for fault in Draft202012Validator(schema, registry=Registry()).iter_errors(dict(given)):
        where = ".".join(map(str, fault.absolute_path)) or "arguments"
        found.append(f"{where[:SHOWN]}: {fault.message[:SHOWN]}")
        if len(found) == MOST_FAULTS:
            break
    if found:
        raise InvalidArguments(f"{name}: " + "; ".join(found))
    return dict(given)
