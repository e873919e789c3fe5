"""The annotations of an author's function: resolved to types, or refused with the parameter at fault."""

import inspect
import sys
from collections.abc import Callable
from functools import reduce
from operator import or_
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import typing_extensions
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError

from coretools.errors import AUTHOR_FAULTS, BadSetting
from coretools.operations.declare import source_of

RETURN = "return"

TYPE_FAULTS = (*AUTHOR_FAULTS, SchemaError)
"""Exceptions that pydantic and the types themselves raise where a type has no schema."""

MAX_NESTED = 8
"""Levels of nested models that `is_json_type` follows; a model that contains itself would have no end."""

_JSON_TYPES = (str, int, float, bool, NoneType, Any, dict, list)


def resolve_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters by name, and of the result as `return`.

    Raises:
        BadSetting: an annotation can't be resolved; names the parameter.
    """
    try:
        hints = get_type_hints(function, include_extras=True)
    except AUTHOR_FAULTS as error:
        where, reason = _unresolved(function, error)
        raise BadSetting(
            f"{source_of(function)}: the annotation of {where} can't be resolved: {reason}; "
            "import or define that name in the module of the function, not under TYPE_CHECKING"
        ) from error
    return {name: _for_pydantic(hint) for name, hint in hints.items()}


def described(hint: Any, documented: str | None) -> Any:
    """The type of a parameter with its description.

    That is the text in `Annotated[T, "text"]` or `Annotated[T, Doc("text")]`, or else in the docstring; a `Field` with
    a description takes precedence.
    """
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    texts = [one.documentation if isinstance(one, typing_extensions.Doc) else one for one in metadata]
    text = next((one for one in texts if isinstance(one, str)), documented)
    has_own = any(isinstance(one, FieldInfo) and one.description for one in metadata)
    return hint if text is None or has_own else Annotated[hint, Field(description=text)]


def describe_place(name: str) -> str:
    """The parameter or result that an annotation belongs to, for messages."""
    return "its result" if name == RETURN else f"parameter {name!r}"


def type_text(hint: Any) -> str:
    """A type as messages show it."""
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return text.replace("typing.", "")[:80]


def first_sentence(error: BaseException) -> str:
    """The first sentence of an exception's message, without its advice."""
    lines = str(error).splitlines() or [""]
    line = lines[-1 if isinstance(error, SchemaError) else 0].strip()
    return line.partition(". ")[0].rstrip(".")[:200] or type(error).__name__


def is_json_type(hint: Any, depth: int = 0) -> bool:
    """Whether a JSON parser already returns values of this type.

    Dates, UUIDs, addresses, paths and enumerations are not: JSON writes them as text.
    """
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        fields = [field.annotation for field in hint.model_fields.values()]
        return depth < MAX_NESTED and _are_json_types(fields, depth + 1)
    origin = get_origin(hint)
    if origin is Annotated:
        return is_json_type(get_args(hint)[0], depth)
    if origin in (list, dict, Union, UnionType):
        return _are_json_types(get_args(hint), depth)
    return origin is Literal or hint in _JSON_TYPES


def _are_json_types(hints: Any, depth: int) -> bool:
    return all(is_json_type(hint, depth) for hint in hints)


def _unresolved(function: Callable[..., Any], error: BaseException) -> tuple[str, str]:
    """The first annotation that can't be resolved by itself, and why."""
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        annotations = dict(getattr(function, "__annotations__", {}))
    except AUTHOR_FAULTS:  # Python 3.14 resolves them all here
        annotations = {}
    for name, annotation in annotations.items():
        try:
            get_type_hints(SimpleNamespace(__annotations__={name: annotation}), globalns=names, include_extras=True)
        except AUTHOR_FAULTS as one:
            return describe_place(name), first_sentence(one)
    return "a parameter", first_sentence(error)


def _for_pydantic(hint: Any) -> Any:
    """The type with every `typing.TypedDict` replaced: below Python 3.12 pydantic needs that of `typing_extensions`."""
    if sys.version_info >= (3, 12):
        return hint
    if is_typeddict(hint):
        return _as_extensions_typeddict(hint) if type(hint).__module__ == "typing" else hint
    arguments, origin = get_args(hint), get_origin(hint)
    if origin in (None, Literal):
        return hint
    if origin is Annotated:
        return Annotated[(_for_pydantic(arguments[0]), *arguments[1:])]
    converted = tuple(map(_for_pydantic, arguments))
    if converted == arguments:
        return hint
    return reduce(or_, converted) if origin in (Union, UnionType) else origin[converted]


def _as_extensions_typeddict(hint: Any) -> Any:
    """The same dictionary type, made by `typing_extensions`."""
    fields = {
        name: _with_required(field, is_required=name in hint.__required_keys__)
        for name, field in get_type_hints(hint, include_extras=True).items()
    }
    replacement = typing_extensions.TypedDict(hint.__name__, fields)  # type: ignore[misc]  # a type made at run time
    replacement.__doc__ = hint.__doc__
    return replacement


def _with_required(hint: Any, *, is_required: bool) -> Any:
    """The type of a key, marked as required or not."""
    # The annotation takes precedence: `__required_keys__` is wrong under `from __future__ import annotations`.
    origin = get_origin(hint)
    if origin in (Required, NotRequired):
        return origin[_for_pydantic(get_args(hint)[0])]
    return Required[_for_pydantic(hint)] if is_required else NotRequired[_for_pydantic(hint)]
