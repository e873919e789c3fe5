"""A form that another server asks for, as a model: so that every surface can ask it, and its answer is validated."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema, create_model

from coretools.errors import Unsupported

_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}
_BOUNDS = {"minLength": "min_length", "maxLength": "max_length", "minimum": "ge", "maximum": "le"}
_ITEMS = {"minItems": "min_length", "maxItems": "max_length"}


def form_model(schema: Mapping[str, Any]) -> type[BaseModel]:
    """Return the model of a form: a flat object of text, numbers, booleans and choices (elicitation).

    Raises:
        Unsupported: a field is something else.
    """
    required = schema.get("required", ())
    fields: dict[str, Any] = {}
    for name, shape in schema.get("properties", {}).items():
        hint = _type_of(name, shape)
        bounds = _ITEMS if shape.get("type") == "array" else _BOUNDS
        limits = {ours: shape[theirs] for theirs, ours in bounds.items() if theirs in shape}
        described = {"title": shape.get("title"), "description": shape.get("description")}
        default = ... if name in required else shape.get("default")
        optional = hint if name in required or default is not None else hint | None
        fields[name] = (optional, Field(default=default, **described, **limits))
    return create_model("Form", **fields)


def _type_of(name: str, shape: Mapping[str, Any]) -> Any:
    kind = shape.get("type")
    if kind == "array":
        return list[_choice(shape.get("items", {}))]  # type: ignore[misc]  # a type made at run time
    if choices := _choices(shape):
        return Literal[choices]
    if kind not in _TYPES:
        raise Unsupported(f"the server asks for {name[:80]!r}, which no form can have")
    hint = _TYPES[str(kind)]
    return Annotated[hint, WithJsonSchema(dict(shape))] if "format" in shape else hint


def _choice(shape: Mapping[str, Any]) -> Any:
    choices = _choices(shape)
    return Literal[choices] if choices else str


def _choices(shape: Mapping[str, Any]) -> tuple[str, ...]:
    titled = shape.get("oneOf") or shape.get("anyOf") or ()
    return tuple(shape.get("enum") or (one["const"] for one in titled if isinstance(one, dict) and "const" in one))
