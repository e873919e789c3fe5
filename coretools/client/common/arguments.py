"""Arguments of a foreign tool: from words (`operations.argument_words`), checked against its schema."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import mcp_types as types

from coretools.client.common.errors import SchemaMismatch
from coretools.errors import InvalidArguments
from coretools.operations.argument_words import split_word
from coretools.truncation import and_more

MAX_FAULTS = 5
"""Faults that one message lists."""


def parse_arguments(
    words: Iterable[str], schema: Mapping[str, Any], read: Callable[[str], str] | None
) -> dict[str, Any]:
    """Turn words into arguments; `read` returns the text of a file. Text becomes the type that the schema wants.

    Where no text is wanted, `@FILE` is a file with JSON. Without `read` it is text.

    Raises:
        InvalidArguments: a word has none of the forms, a value is not JSON, or one that is not a list is given twice.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        name, is_json, text = _split(word, schema, read)
        shape = _shape(schema, name)
        value = _json(name, text) if is_json else _typed(text, shape)
        before = arguments.get(name)
        if "array" in schema_types(shape) and not isinstance(value, list) and isinstance(before, list | None):
            item = value if is_json else _typed(text, shape.get("items", {}))
            arguments[name] = [*(before or ()), item]
        elif name in arguments:
            raise InvalidArguments(f"{name}: is given twice")
        else:
            arguments[name] = value
    return arguments


def _split(word: str, schema: Mapping[str, Any], read: Callable[[str], str] | None) -> tuple[str, bool, str]:
    """Return name, whether the value is JSON, and the value, from its file if it is in one."""
    name, form, text = split_word(word)
    if text is None or not name or (form == "@" and read is None):
        raise InvalidArguments(f"{word[:80]!r}: write name=value, name:=JSON or name@=FILE")
    if read is not None and form == "@":
        text = read(text)
    elif read is not None and text.startswith("@") and (form == ":" or not _takes_text(_shape(schema, name))):
        text = read(text[1:])
    return name, form == ":", text


def parse_object(text: str, read: Callable[[str], str]) -> dict[str, Any]:
    """Return all arguments from a JSON object, or from a file with one (`@FILE`).

    Raises:
        InvalidArguments: the text is not a JSON object.
    """
    value = _json("--args", read(text[1:]) if text.startswith("@") else text)
    if not isinstance(value, dict):
        raise InvalidArguments('--args: must be a JSON object, such as \'{"text": "hello"}\', or @FILE')
    return value


def check_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Check arguments against the schema of a tool. References to other documents are not followed.

    Raises:
        SchemaMismatch: they do not fit, or the schema is invalid.
    """
    faults = sorted(_faults(dict(arguments), schema), key=lambda fault: list(map(str, fault.absolute_path)))
    if faults:
        texts = [text for fault in faults[:MAX_FAULTS] for text in _sentences(fault, schema)]
        rest = max(0, len(faults) - MAX_FAULTS)
        raise SchemaMismatch(and_more(texts, len(texts) + rest, separator="; "))


def check_result(result: types.CallToolResult, schema: Mapping[str, Any]) -> None:
    """Check the structured content of a result against the output schema of its tool.

    Raises:
        SchemaMismatch: it does not fit, or is missing, or the schema is invalid.
    """
    if result.structured_content is None and "structured_content" not in result.model_fields_set:
        raise SchemaMismatch("its result has no structured content, although the tool declares an output schema")
    faults = _faults(result.structured_content, schema)
    if faults:
        where = ".".join(map(str, faults[0].absolute_path)) or "the top level"
        raise SchemaMismatch(f"its result does not fit the output schema at {where[:200]}: {faults[0].message[:300]}")


def _faults(value: Any, schema: Mapping[str, Any]) -> list[Any]:
    # Imported late: it takes 60 ms.
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for
    from referencing.exceptions import Unresolvable

    from coretools.operations.schema_patterns import PATTERN_FAULTS, limited_validator

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
        return list(limited_validator(kind, schema).iter_errors(value))
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path))
        raise SchemaMismatch(f"declares an invalid schema: {where}: {error.message[:200]}") from error
    except (Unresolvable, *PATTERN_FAULTS, RecursionError, ValueError) as error:
        raise SchemaMismatch(f"declares a schema that can't be used: {str(error)[:200]}") from error


def _sentences(fault: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    where = ".".join(map(str, fault.absolute_path))
    prefix = f"{where}: " if where else ""
    wanted = fault.validator_value
    if fault.validator == "required":
        missing = [name for name in wanted if name not in fault.instance]
        yield from (f"{prefix}{name}: is missing{_described(schema, name)}" for name in missing[:1])
    elif fault.validator == "additionalProperties":
        yield from (prefix + text for text in _unknown(fault.instance, fault.schema))
    elif fault.validator == "type":
        yield f"{prefix}must be {' or '.join(wanted) if isinstance(wanted, list) else wanted}"
    elif fault.validator == "enum":
        yield f"{prefix}must be one of {', '.join(map(str, wanted))[:200]}"
    else:
        yield f"{prefix}{fault.message[:200]}"


def _unknown(given: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    known = list(schema.get("properties", {}))
    for name in [name for name in given if name not in known][:MAX_FAULTS]:
        near = get_close_matches(name, known, n=1)
        yield f"{name}: unknown argument" + (
            f"; did you mean {near[0]}?" if near else f" (there are: {', '.join(known[:20]) or 'none'})"
        )


def _described(schema: Mapping[str, Any], name: str) -> str:
    description = _shape(schema, name).get("description")
    return f" ({description.splitlines()[0][:100]})" if isinstance(description, str) and description else ""


def _shape(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    properties = schema.get("properties")
    shape = properties.get(name) if isinstance(properties, dict) else None
    return shape if isinstance(shape, dict) else {}


def schema_types(shape: Any) -> set[str]:
    """Return the types that a schema permits; references are not resolved."""
    if not isinstance(shape, dict):
        return set()
    own = shape.get("type")
    names = {own} if isinstance(own, str) else {one for one in own or () if isinstance(one, str)}
    for key in ("anyOf", "oneOf"):
        for inner in shape.get(key) or () if isinstance(shape.get(key), list) else ():
            names |= schema_types(inner)
    return names


def _may_be_text(shape: Any) -> bool:
    types = schema_types(shape)
    return not types or "string" in types


def _takes_text(shape: Mapping[str, Any]) -> bool:
    """Whether a word may be text as it is: also as an item of a list."""
    return _may_be_text(shape) or "string" in schema_types(shape.get("items"))


def _typed(text: str, shape: Any) -> Any:
    """Return the text as the type that the schema wants; unchanged if that is text, or if it does not fit."""
    if _may_be_text(shape):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"{name}: no JSON: {error}" + ("" if name == "--args" else f"; for text, write {name}=...")
        ) from error
