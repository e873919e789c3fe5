"""Faults of arguments, in the caller's words: the names of the arguments, JSON types, and what would be accepted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from coretools.operations.argument_repair import MAX_QUOTED_NAME, Path, has_step, suggestion
from coretools.operations.json_schema import MAX_FAULTS

_EXAMINED = 1_000
"""Faults that are examined; the others are only counted."""

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
"""What is expected, by pydantic's error types. A union has one fault for each of its members."""

_BOUNDS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
}

_MESSAGES = {
    "missing": "is required",
    "string_unicode": "must be valid Unicode text (no lone surrogates)",
    "too_short": "must have at least {min_length} item(s), got {actual_length}",
    "too_long": "must have at most {max_length} item(s), got {actual_length}",
}
"""Messages for other error types; the rest keep pydantic's own."""


def fault_sentences(
    model: type[BaseModel], schema: Mapping[str, Any], given: Mapping[str, Any], error: ValidationError, *, total: int
) -> list[str]:
    """Sentences for the first values that are wrong, missing or unknown, and how many more there are.

    `total` counts the faults, of which `error` may have only the first.
    """
    faults: dict[Path, list[Any]] = {}
    parts: set[Path] = set()
    for fault in error.errors(include_url=False, include_context=True)[:_EXAMINED]:
        place = _place(given, fault)
        faults.setdefault(place, []).append(fault)
        if len(place) < len(fault["loc"]):
            parts.update(place[:length] for length in range(1, len(place)))
    # Of a list that a union accepts, a wrong item is named, and not that it is no text.
    named = [
        (place, at_place)
        for place, at_place in faults.items()
        if place not in parts or any(fault["type"] not in _TYPES for fault in at_place)
    ]
    sentences = [_sentence(model, schema, place, at_place) for place, at_place in named[:MAX_FAULTS]]
    more = len(named) - len(sentences) + max(0, total - min(error.error_count(), _EXAMINED))
    return [*sentences, f"and {more} more"] if more else sentences


def describe_value(value: object) -> str:
    """A value for an error message: its JSON type, and the value when it is short."""
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    kind = kinds.get(type(value), "null" if value is None else type(value).__name__)
    if isinstance(value, str | int | float) and len(repr(value)) <= 40:
        return f"{kind} {value!r}"
    return kind


def _place(given: Any, fault: Any) -> Path:
    """The names and numbers that lead to a fault, without those of the members of unions."""
    location: Sequence[str | int] = fault["loc"]
    rest: Path = ()
    if fault["type"] in ("missing", "extra_forbidden"):
        location, rest = location[:-1], (location[-1],)
    node, path = given, list[str | int]()
    for step in location:
        if has_step(node, step):
            node = node[step]
            path.append(step)
    return (*path, *rest)


def _sentence(model: type[BaseModel], schema: Mapping[str, Any], place: Path, faults: Sequence[Any]) -> str:
    where = ".".join(map(str, place))[:MAX_QUOTED_NAME] or "arguments"
    fault = next((one for one in faults if one["type"] not in _TYPES), None)
    if fault is None:
        expected = " or ".join(dict.fromkeys(_TYPES[one["type"]] for one in faults))
        return f"{where}: must be {expected}, got {describe_value(faults[0]['input'])}"
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_name(model, schema, place[:-1], str(place[-1]))
    if kind in _BOUNDS:
        return f"{where}: {_BOUNDS[kind].format_map(context)}, got {describe_value(fault['input'])}"
    message: str = fault["msg"]
    if kind in _MESSAGES:
        return f"{where}: {_MESSAGES[kind].format_map(context)}"
    return f"{where}: {message[:1].lower() + message[1:]}"  # it can have braces itself, of a pattern


def _unknown_name(model: type[BaseModel], schema: Mapping[str, Any], above: Path, name: str) -> str:
    names = tuple(_known_names(schema, above))
    hint = suggestion(model, above, name, names)
    where = ".".join(map(str, above))[:MAX_QUOTED_NAME]
    subject = f"{where}: unknown name" if where else "unknown argument"
    return f"{subject} {name[:MAX_QUOTED_NAME]!r}{hint} (takes {', '.join(names) or 'none'})"


def _known_names(schema: Mapping[str, Any], path: Path) -> Iterator[str]:
    """The names that the schema defines at a place in the arguments."""
    node: Any = schema
    for step in path:
        node = node.get("items", {}) if isinstance(step, int) else node.get("properties", {}).get(step, {})
        node = schema["$defs"][node["$ref"].removeprefix("#/$defs/")] if "$ref" in node else node
    yield from node.get("properties", {})
