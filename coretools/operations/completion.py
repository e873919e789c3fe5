"""Complete arguments from their first characters: for `completion/complete`, the command line and the REPL.

`Annotated[str, Completes(source)]` declares the source of a parameter's values. Choices (`Literal`, enumerations,
booleans) need no declaration. Independent of any protocol.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args, get_type_hints

import anyio.to_thread
from anyio import CapacityLimiter

from coretools.errors import BadSetting
from coretools.operations.command import Command

MAX_VALUES = 10_000
"""Values considered at most; with more, a longer prefix is needed."""

Given = Mapping[str, str]
"""The other arguments given so far, as text."""

Source = Callable[[str, Given], Iterable[str] | Awaitable[Iterable[str]]]
"""A function from the typed text and the other arguments to values. A plain function runs in a worker thread."""


@dataclass(frozen=True, slots=True)
class Completes:
    """The source of a parameter's values: a function, or the name of a method of the same object."""

    source: Source | str


async def complete_parameter(
    command: Command, parameter: str, text: str, given: Given, *, limiter: CapacityLimiter | None = None
) -> list[str]:
    """Values of a parameter that begin with `text`, ignoring case; empty for a parameter without a source or choices.

    Raises:
        Whatever the source raises.
    """
    source = _source(command, parameter)
    values = _choices(command, parameter) if source is None else await _values_from(source, text, given, limiter)
    return with_prefix(text, values)


def with_prefix(text: str, values: Iterable[str]) -> list[str]:
    """The values that begin with a text, ignoring case, each once and in their order."""
    start = text.casefold()
    kept: dict[str, None] = {}
    for value in values:
        if value.casefold().startswith(start):
            kept[value] = None
        if len(kept) == MAX_VALUES:
            break
    return list(kept)


async def _values_from(source: Source, text: str, given: Given, limiter: CapacityLimiter | None) -> Iterable[str]:
    if inspect.iscoroutinefunction(source):
        values: Iterable[str] = await source(text, given)
        return values
    listed = await anyio.to_thread.run_sync(partial(_listed, source, text, given), limiter=limiter)
    return await listed if isinstance(listed, Awaitable) else listed


def _listed(source: Source, text: str, given: Given) -> list[str] | Awaitable[Iterable[str]]:
    """The values of a source as a list, built in the thread: a generator does its work there."""
    values = source(text, given)
    return values if isinstance(values, Awaitable) else list(values)


def require_sources(commands: Iterable[Command]) -> None:
    """Refuse sources that do not exist.

    Raises:
        BadSetting: names the source and the command.
    """
    for command in commands:
        for parameter in command.arguments.names:
            _source(command, parameter)


def _source(command: Command, parameter: str) -> Source | None:
    hint = get_type_hints(command.function, include_extras=True).get(parameter)
    declared = next((one for one in _metadata(hint) if isinstance(one, Completes)), None)
    if declared is None:
        return None
    if callable(declared.source):
        return declared.source
    source: Source | None = getattr(getattr(command.function, "__self__", None), declared.source, None)
    if source is None:
        raise BadSetting(
            f"{command.source}: {parameter} completes with {declared.source!r}, which is not a method of its object"
        )
    return source


def _metadata(hint: Any) -> Iterator[Any]:
    """All metadata of `Annotated` within a type, such as `Annotated[str, X] | None`."""
    yield from getattr(hint, "__metadata__", ())
    for inner in get_args(hint):
        yield from _metadata(inner)


def _choices(command: Command, parameter: str) -> list[str]:
    shape = command.arguments.schema().get("properties", {}).get(parameter, {})
    return [_as_text(value) for value in _allowed(shape)]


def _allowed(shape: Mapping[str, Any]) -> list[Any]:
    """The values that a schema allows; for a list those of its items."""
    if "const" in shape:
        return [shape["const"]]
    if "enum" in shape:
        return list(shape["enum"])
    if shape.get("type") == "boolean":
        return [True, False]
    if shape.get("type") == "array":
        return _allowed(shape.get("items", {}))
    return [value for arm in shape.get("anyOf", ()) for value in _allowed(arm)]


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
