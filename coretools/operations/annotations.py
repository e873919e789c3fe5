"""The annotations of somebody's function: resolved, or refused with the parameter that can't be."""

import inspect
import sys
from collections.abc import Callable
from functools import reduce
from operator import or_
from types import SimpleNamespace, UnionType
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
from pydantic_core import SchemaError

from coretools.errors import AUTHOR_FAULTS, BadSetting
from coretools.operations.declare import source_of

RETURN = "return"

TYPE_FAULTS = (*AUTHOR_FAULTS, SchemaError)
"""What pydantic and the types themselves raise where a type has no schema."""


def resolve_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters, and of the result as `return`.

    Raises:
        BadSetting: an annotation can't be resolved; says which.
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


def describe_place(name: str) -> str:
    """What an annotation belongs to, for messages."""
    return "its result" if name == RETURN else f"parameter {name!r}"


def type_text(hint: Any) -> str:
    """A type as an error shows it."""
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return text.replace("typing.", "")[:80]


def first_sentence(error: BaseException) -> str:
    """The first sentence of what an exception says, without its advice."""
    lines = str(error).splitlines() or [""]
    line = lines[-1 if isinstance(error, SchemaError) else 0].strip()
    return line.partition(". ")[0].rstrip(".")[:200] or type(error).__name__


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
    """The type with every `typing.TypedDict` as one of `typing_extensions`: pydantic needs those below Python 3.12."""
    if sys.version_info >= (3, 12):
        return hint
    if is_typeddict(hint):
        return _as_extensions_typeddict(hint) if type(hint).__module__ == "typing" else hint
    arguments, origin = get_args(hint), get_origin(hint)
    if origin in (None, Literal):
        return hint
    if origin is Annotated:
        return Annotated[(_for_pydantic(arguments[0]), *arguments[1:])]
    read = tuple(map(_for_pydantic, arguments))
    if read == arguments:
        return hint
    return reduce(or_, read) if origin in (Union, UnionType) else origin[read]


def _as_extensions_typeddict(hint: Any) -> Any:
    """The same dictionary by `typing_extensions`."""
    fields = {
        name: _with_required(one, is_required=name in hint.__required_keys__)
        for name, one in get_type_hints(hint, include_extras=True).items()
    }
    made = typing_extensions.TypedDict(hint.__name__, fields)  # type: ignore[misc]  # a type made at run time
    made.__doc__ = hint.__doc__
    return made


def _with_required(hint: Any, *, is_required: bool) -> Any:
    """The type of a key with whether it must be there."""
    # The annotation counts first: `__required_keys__` is wrong below `from __future__ import annotations`.
    origin = get_origin(hint)
    if origin in (Required, NotRequired):
        return origin[_for_pydantic(get_args(hint)[0])]
    return Required[_for_pydantic(hint)] if is_required else NotRequired[_for_pydantic(hint)]
