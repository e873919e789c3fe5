"""Parse TOML configuration, and explain an invalid key in one sentence. Used for every configuration file.

The tables are pydantic models or dataclasses; an unknown key and a value of the wrong type are errors.
"""

import dataclasses
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from coretools.errors import BadSetting
from coretools.truncation import and_more

LONGEST = 1024 * 1024
"""Largest configuration file accepted, in bytes."""

LARGEST_INTEGER = 2**63 - 1
"""TOML 1.0 requires 64 bits; Python accepts more."""

MAX_LEVELS = 32
"""Nesting depth of tables and lists; pydantic's own limit has no clear message."""

MAX_FAULTS = 10
"""Errors of a file that one message lists: a suggestion for an unknown key takes milliseconds."""

FEW_KEYS = 10
"""Besides a suggestion, the known keys of a table are listed if there are at most this many."""

UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
"""Types of pydantic errors for an unknown key: of a model, of a dataclass."""

_WANTED = {
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
    "tuple_type": 'must be a list, such as ["a", "b"]',
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "dataclass_type": "must be a table",
}
"""What the operator should write, in TOML terms, by type of pydantic error."""


def parse_toml(data: bytes, path: str) -> dict[str, Any]:
    """Parse the bytes of a file; `path` names it in errors. Callers read at most `LONGEST + 1` bytes.

    Raises:
        BadSetting: too large, not UTF-8, not TOML, nested too deeply, or with a NUL character in a string.
    """
    if len(data) > LONGEST:
        raise BadSetting(f"{path}: larger than {LONGEST} bytes, the most that a configuration file may have")
    try:
        tables = tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadSetting(f"{path}: not UTF-8 text, at byte {error.start}") from error
    except (ValueError, RecursionError) as error:  # a plain ValueError for a number with thousands of digits
        raise BadSetting(f"{path}: not valid TOML: {error or 'nested too deeply'}") from error
    _require_plain(tables, (), path)
    return tables


def problems_of(error: ValidationError, sentence: Callable[[ErrorDetails], str]) -> str:
    """The errors of a file; those beyond `MAX_FAULTS` are counted. `sentence` formats one."""
    faults = error.errors()
    return and_more(map(sentence, faults[:MAX_FAULTS]), len(faults), separator="; ")


def key_of(keys: Sequence[int | str]) -> str:
    """A key as shown in messages, such as `server.port`; `commands.rule #2` is the second [[commands.rule]]."""
    return "".join(f" #{key + 1}" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def problem_of(error: ErrorDetails, table: type) -> str:
    """What is wrong with a key, and what would be valid. `table` is the type of the whole file.

    The value may be a password: it is shown only if there is a fixed list of choices.
    """
    if error["type"] in UNKNOWN:
        return _unknown_key(error["loc"], table)
    if error["type"] == "literal_error":
        return f"{str(error['input'])[:40]!r} is not valid; choose {error['ctx']['expected']}"
    if error["type"] == "missing":
        kind = _type_at(table, error["loc"])
        choices = ", ".join(map(repr, get_args(kind))) if get_origin(kind) is Literal else ""
        return f"is missing; choose {choices}" if choices else "is missing"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return _WANTED.get(error["type"], error["msg"][:200])


def _unknown_key(keys: Sequence[int | str], table: type) -> str:
    meant, known = meant_key(keys, table), _keys(_type_at(table, keys[:-1]))
    listed = f" (known here: {', '.join(known)})" if known and (not meant or len(known) <= FEW_KEYS) else ""
    return f"unknown key{f'; did you mean {meant}?' if meant else ''}{listed}"


def meant_key(keys: Sequence[int | str], table: type) -> str:
    """The known key that an unknown one is a misspelling of (a letter, a missing section); empty if none is close."""
    typed, known = ".".join(map(str, keys)), list(_paths(table, ""))
    sections = [one for one in known if one.endswith(f".{typed}")]
    if len(sections) == 1:
        return sections[0]
    if near := get_close_matches(typed, known, n=1, cutoff=0.8):
        return near[0]
    beside = get_close_matches(str(keys[-1]), _keys(_type_at(table, keys[:-1])), n=1)
    return key_of((*keys[:-1], *beside)) if beside else ""


def value_type(table: Any, key: int | str) -> Any:
    """The type of a key of a table, an item of a list, or any key of a mapping; None if there is none."""
    if get_origin(table) in (dict, tuple):
        return get_args(table)[-1 if get_origin(table) is dict else 0]
    kind = _keys(table).get(str(key))
    inner = [one for one in get_args(kind) if _keys(one)]
    return inner[0] if inner and get_origin(kind) not in (dict, tuple) else kind


def _type_at(table: Any, keys: Sequence[int | str]) -> Any:
    for key in keys:
        table = value_type(table, key)
    return table


def _keys(table: Any) -> Mapping[str, Any]:
    """The keys of a table with their types; empty for anything else."""
    if isinstance(table, type) and issubclass(table, BaseModel):
        return {field.alias or name: field.annotation for name, field in table.model_fields.items()}
    return get_type_hints(table) if isinstance(table, type) and dataclasses.is_dataclass(table) else {}


def _paths(table: Any, prefix: str) -> Iterator[str]:
    for name in _keys(table):
        inner = value_type(table, name)
        if _keys(inner):
            yield from _paths(inner, f"{prefix}{name}.")
        elif get_origin(inner) is not dict:
            yield f"{prefix}{name}"


def _require_plain(value: Any, keys: tuple[int | str, ...], path: str) -> None:
    """Refuse values that no table accepts and that later code could not handle."""
    if isinstance(value, str) and "\0" in value:
        raise BadSetting(f"{path}: {key_of(keys)}: text must not contain a NUL character")
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise BadSetting(f"{path}: {key_of(keys)}: integers of TOML have 64 bits")
    if isinstance(value, dict | list):
        if len(keys) > MAX_LEVELS:
            raise BadSetting(
                f"{path}: {key_of(keys[:3])}: tables and lists are nested more than {MAX_LEVELS} levels deep"
            )
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _require_plain(inner, (*keys, key), path)
