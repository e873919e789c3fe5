"""JSON Schema of what pydantic writes, also where a type has a serializer or a schema of its own. Pure.

What such code says of itself can be wrong, and pydantic believes it: a client that checks a result by its schema would
refuse one whose command has run.
"""

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, WithJsonSchema

_OWN_SCHEMA = frozenset({"pydantic_js_functions", "pydantic_js_annotation_functions", "pydantic_js_extra"})
"""Where pydantic's core schema has the functions and values that change a JSON Schema."""

_WORDS = frozenset({"title", "description", "examples", "deprecated", "readOnly"})
"""Of a JSON Schema: those that restrict no value."""


def written_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The schema of what is written; empty where that may be anything."""
    return adapter.json_schema(mode="serialization", schema_generator=_AsWritten)


def may_differ(adapter: TypeAdapter[Any]) -> bool:
    """Whether code that is not pydantic's decides what is written, or what the schema says of it."""
    return _differs(adapter.core_schema)


class _AsWritten(GenerateJsonSchema):
    """A serializer that does not say what it returns may write anything; pydantic takes the type of the field."""

    def ser_schema(self, schema: Any) -> JsonSchemaValue | None:
        found = super().ser_schema(schema)
        return {} if found is None and _is_own_serializer(schema) else found


def _differs(node: Any) -> bool:
    if isinstance(node, list | tuple):
        return any(map(_differs, node))
    if not isinstance(node, dict):
        return False
    config = getattr(node.get("cls"), "model_config", {})
    if node.get("computed_fields") or "serialization_exclude_if" in node or config.get("json_schema_extra"):
        return True
    if _is_own_serializer(node):
        return True
    metadata = node.get("metadata")
    if isinstance(metadata, dict) and _changes_schema(metadata):
        return True
    return any(_differs(value) for key, value in node.items() if key != "metadata")


def _changes_schema(metadata: dict[str, Any]) -> bool:
    updates = metadata.get("pydantic_js_updates") or {}
    changed = [one for key in _OWN_SCHEMA for one in _listed(metadata.get(key))]
    return bool(updates.keys() - _WORDS) or any(_is_own(one) for one in changed)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_own_serializer(node: dict[str, Any]) -> bool:
    return node.get("type") in ("function-plain", "function-wrap") and "function" in node and _is_own(node["function"])


def _is_own(code: Any) -> bool:
    """Whether it is not pydantic's."""
    function = code.get("function") if isinstance(code, dict) else code
    written = isinstance(getattr(function, "__self__", None), WithJsonSchema)  # its schema is the author's
    return written or not str(getattr(function, "__module__", "")).startswith("pydantic.")
