"""Apply a JSON Schema of somebody else: its regular expressions have a time limit, and no reference is fetched.

`jsonschema` searches with `re`, which can't be interrupted, for `pattern`, `patternProperties` and the keywords that
depend on the latter. Imported late by its users: `jsonschema` takes 60 ms.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import regex  # with a timeout, unlike `re`
from jsonschema import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry

PATTERN_SECONDS = 0.5
"""For all regular expressions of one check together: those of a hostile server may never end."""

PATTERN_FAULTS = (regex.error, TimeoutError)
"""What a check raises if a regular expression can't be used, or the time is up."""


def limited_validator(kind: type[Validator], schema: Mapping[str, Any]) -> Validator:
    """Return a validator of a kind (such as `Draft202012Validator`) for one check against `schema`.

    Raises:
        regex.error: it has both `unevaluatedProperties` and `patternProperties`, which can't be limited together.
    """
    if {"unevaluatedProperties", "patternProperties"} <= _keys(schema):
        raise regex.error("`unevaluatedProperties` together with `patternProperties` is not supported")
    keywords = _Keywords(kind)
    limited: Any = extend(
        kind,
        {
            "pattern": keywords.pattern,
            "patternProperties": keywords.pattern_properties,
            "additionalProperties": keywords.additional_properties,
        },
    )
    limited.evolve = attrs.evolve  # its own would follow `$schema` within the schema to a validator without limits
    validator: Validator = limited(schema, registry=Registry())
    return validator


def _keys(schema: Any) -> set[str]:
    """Return all keys in a schema, names of properties included."""
    keys: set[str] = set()
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            keys.update(node)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return keys


class _Keywords:
    """Keywords with regular expressions, for one check; they share the time."""

    def __init__(self, kind: type[Validator]) -> None:
        self._additional = kind.VALIDATORS["additionalProperties"]
        self._seconds = PATTERN_SECONDS

    def pattern(self, validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "string") and not self._matches(pattern, value):
            yield ValidationError(f"does not match {pattern!r}")

    def pattern_properties(self, validator: Any, patterns: Any, value: Any, _schema: Any) -> Iterator[Any]:
        if not validator.is_type(value, "object"):
            return
        for pattern, schema in patterns.items():
            for name, inner in value.items():
                if self._matches(pattern, name):
                    yield from validator.descend(inner, schema, path=name, schema_path=pattern)

    def additional_properties(self, validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        patterns = schema.get("patternProperties")
        if patterns and validator.is_type(value, "object"):
            own = schema.get("properties", {})
            others = [name for name in value if name not in own]
            matching = [name for name in others if any(self._matches(one, name) for one in patterns)]
            plain = {key: inner for key, inner in schema.items() if key != "patternProperties"}
            schema = {**plain, "properties": {**own, **dict.fromkeys(matching, True)}}
        yield from self._additional(validator, wanted, value, schema)

    def _matches(self, pattern: str, text: str) -> bool:
        if self._seconds <= 0:
            raise TimeoutError("its regular expressions took too long")
        begun = time.monotonic()
        try:
            return regex.search(pattern, text, timeout=self._seconds) is not None
        finally:
            self._seconds -= time.monotonic() - begun
