"""Edit TOML as text: add or remove one table, and leave every other byte as it is. Pure.

A table is added at the end of the file and removed with its own sub-tables. Each edit is checked by the standard
library's parser: without our table the document means the same as before.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coretools.client.installation.json_text import line_end
from coretools.errors import WrongType

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"[ \t]*\[")


def entries(text: str, path: Sequence[str]) -> dict[str, Any]:
    """Return the tables in the table at a path; none where it is missing.

    Raises:
        ValueError: the text is not TOML. WrongType: something else is there.
    """
    table: Any = _parse(text)
    for at, key in enumerate(path, 1):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise WrongType(f"{'.'.join(path[:at])}: must be a table")
    return dict(table)


def insert(text: str, path: Sequence[str], name: str, value: Mapping[str, Any]) -> str:
    """Return the text with a table more in the table at a path.

    Raises:
        ValueError, WrongType: as for `entries`; or the table at the path can't have more tables.
    """
    before, end = _parse(text), line_end(text)
    if name in entries(text, path):
        raise ValueError(f"the key {name!r} is there already")
    gap = "" if not text else (end if text.endswith("\n") else end * 2)
    changed = f"{text}{gap}{end.join(_table([*path, name], value))}{end}"
    _require_same(before, changed, path, name, value)
    return changed


def remove(text: str, path: Sequence[str], name: str) -> str:
    """Return the text without a table of the table at a path.

    Raises:
        ValueError, WrongType: as for `entries`; or it is not written as a table of its own.
    """
    value = entries(text, path)[name]
    before = _parse(text)
    for start, end in _spans(text, [*path, name]):
        # The line between our table and what was before it came with our table.
        changed = text[:start] + text[end:]
        blank = line_end(text)
        if changed[:start].endswith(blank * 2):
            changed = changed[: start - len(blank)] + changed[start:]
        try:
            _require_same(_parse(changed), None, path, name, value, other=before)
        except ValueError:
            continue
        return changed
    raise ValueError(f"[{'.'.join([*path, name])}] is not written as one table; remove it by hand")


def _spans(text: str, path: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield spans of lines that may be the table at a path with its sub-tables, short ones first."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    header = [number for number, line in enumerate(lines) if _path_of(line) == list(path)]
    for first in header:
        for last in range(first + 1, len(lines) + 1):
            is_end = last == len(lines) or not lines[last].strip() or lines[last].lstrip().startswith(("#", "["))
            if is_end and not (last < len(lines) and _path_of(lines[last])[: len(path)] == list(path)):
                yield starts[first], starts[last]


def _path_of(line: str) -> list[str]:
    """Return the key of a line that may be the header of a table."""
    if not _HEADER.match(line):
        return []
    try:
        table: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return []
    path = []
    while isinstance(table, dict) and table:
        key, table = next(iter(table.items()))
        path.append(key)
    return path


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"invalid TOML: {error}") from error


def _require_same(
    smaller: dict[str, Any],
    changed: str | None,
    path: Sequence[str],
    name: str,
    value: Any,
    *,
    other: dict[str, Any] | None = None,
) -> None:
    """Check that a document differs from a smaller one by an entry, and by nothing else."""
    try:
        larger = _parse(changed) if changed is not None else (other or {})
    except ValueError as error:
        raise ValueError(
            f"{'.'.join(path)} is written as an inline table, to which none can be added; write it as "
            f"[{'.'.join(path)}.NAME]"
        ) from error
    if _with(smaller, path, name, value) != larger:
        raise ValueError("the file can't be edited without changing something else")


def _with(document: Mapping[str, Any], path: Sequence[str], name: str, value: Any) -> dict[str, Any]:
    if not path:
        return {**document, name: value}
    return {**document, path[0]: _with(document.get(path[0], {}), path[1:], name, value)}


def _table(path: Sequence[str], value: Mapping[str, Any]) -> Iterator[str]:
    yield f"[{'.'.join(map(_key, path))}]"
    for key, inner in value.items():
        # A JSON text or list of texts is one in TOML too, but for DEL, which TOML wants escaped.
        yield f"{_key(key)} = {json.dumps(inner, ensure_ascii=False)}".replace("\x7f", "\\u007F")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
