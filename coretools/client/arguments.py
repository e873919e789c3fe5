"""Arguments of a tool as they are written on a command line, turned into what the schema asks for.

- `path=README.md`: text as it is; a number, true or false where the schema says so.
- `files=a.py files=b.py`: a list, one item each.
- `edits:='[{"old": "a", "new": "b"}]'`: JSON, for whatever text can't say.
- `content@=notes.txt`: the text of a file; `content@=-` is standard input.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coretools.errors import InvalidArguments


def parse_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the words give. `schema` is the input schema of the tool.

    Raises:
        InvalidArguments: a word that is no `name=value`, a value that does not fit, a name given twice.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    arguments: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise InvalidArguments(f"{word!r}: write name=value, name:=JSON or name@=FILE")
        if name.endswith(":"):
            name, value = name[:-1], _json(word, text)
        else:
            if name.endswith("@"):
                name, text = name[:-1], content_of(word, text, sys.stdin.read)
            value = _value(name, text, properties.get(name, {}))
        if name not in arguments:
            arguments[name] = value
        elif isinstance(arguments[name], list) and isinstance(value, list):
            arguments[name] += value
        else:
            raise InvalidArguments(f"{name}: given twice, and it takes one value")
    return arguments


def _value(name: str, text: str, schema: Mapping[str, Any]) -> object:
    kind = schema.get("type", "string")
    if kind == "array":
        items = schema.get("items", {})
        return [_scalar(name, text, items.get("type", "object"))]
    return _scalar(name, text, kind)


def _scalar(name: str, text: str, kind: object) -> object:
    if kind == "string":
        return text
    if kind == "boolean":
        if text not in ("true", "false"):
            raise InvalidArguments(f"{name}={text}: write true or false")
        return text == "true"
    return _json(f"{name}={text}", text)


def _json(word: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"{word[:100]}: the value must be JSON: {error}") from None


def content_of(said: str, source: str, stdin: Callable[[], str] | None) -> str:
    """The text of a file, or of standard input for `-`.

    Raises:
        InvalidArguments: it can't be read, or standard input is not to be read here.
    """
    if source == "-" and stdin is None:
        raise InvalidArguments(f"{said[:100]}: standard input holds the commands here; name a file")
    try:
        return stdin() if source == "-" and stdin else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArguments(f"{said[:100]}: {error}") from None
