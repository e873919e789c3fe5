"""JSON Schemas of results, where pydantic's description of the result is true."""

from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, WithJsonSchema

from coretools.operations.short_schema import compact, drop_keywords

_SCHEMA_HOOKS = frozenset({"pydantic_js_functions", "pydantic_js_annotation_functions", "pydantic_js_extra"})
"""Metadata keys of pydantic's core schema that hold functions and values which change a JSON Schema."""

_UNRESTRICTIVE_KEYWORDS = frozenset({"title", "description", "examples", "deprecated", "readOnly"})
"""Keywords of JSON Schema that restrict no value."""


def output_schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a structured result: describes its shape, and does not restrict it.

    `required` and `additionalProperties` are left out: all fields are always present and there are no others. They
    took half the bytes of a schema. So is the type of the values of a mapping.
    """
    schema = compact(serialization_schema(TypeAdapter(model)), keeps_null=True)
    drop_keywords(schema, ("required", "additionalProperties"))
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
        stated = super().ser_schema(schema)
        return {} if stated is None and _is_authors_serializer(schema) else stated


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
