"""Which types JSON has itself. Dates, identifiers, addresses, paths and enumerations are text there."""

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

MOST_NESTED = 8
"""Models within each other that are looked through; one that holds itself has no end."""

_NATIVE = (str, int, float, bool, NoneType, Any, dict, list)


def is_native(hint: Any, within: int = 0) -> bool:
    """Whether what a JSON parser gives is of the type already."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        inside = [field.annotation for field in hint.model_fields.values()]
        return within < MOST_NESTED and _are_native(inside, within + 1)
    origin = get_origin(hint)
    if origin is Annotated:
        return is_native(get_args(hint)[0], within)
    if origin in (list, dict, Union, UnionType):
        return _are_native(get_args(hint), within)
    return origin is Literal or hint in _NATIVE


def _are_native(hints: Any, within: int) -> bool:
    return all(is_native(hint, within) for hint in hints)
