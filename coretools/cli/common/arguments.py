"""Parse the words and options after a command into arguments, according to its schema.

- Required arguments are positional, in order; a list takes several words.
- `--name value` or `--name=value`, with `-` for `_`; repeat the option for a list.
- `--flag` and `--no-flag` for true and false.
- Objects, and lists of objects, are JSON, or `@FILE` (`@-`: standard input) that contains it.
- `--name:=JSON` for values of other types; `--name@=FILE` for the text of a file (`-`: standard input).
- After `coretools call TOOL` the dashes may be omitted: `name=value`, `name:=JSON`, `name@=FILE`.

After `--` every word is a value.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coretools.cli.common.routes import normalize
from coretools.errors import InvalidArguments
from coretools.operations.argument_words import split_word
from coretools.operations.arguments import ANSWERS
from coretools.operations.documentation import CommandPage, ParameterPage, usage

NAMED = re.compile(r"[^\W\d][\w-]*[:@]?=", re.ASCII)
"""Start of a word that is an option without dashes."""

NUMBER = re.compile(r"-[0-9.][0-9.eE+-]*")

_TYPE_NAMES = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null"}
_SCALARS = ("string", "integer", "number", "boolean")


def parse_arguments(
    page: CommandPage,
    route_values: Mapping[str, str],
    words: Sequence[str],
    *,
    stdin: Callable[[], str] | None,
    has_names: bool = False,
) -> dict[str, Any]:
    """Return the arguments given by the words after a command and by its route. `stdin` reads standard input.

    With `has_names`, `name=value` is an option; otherwise it is a value like any other word.

    Raises:
        InvalidArguments: names the wrong word and what would be valid.
    """
    reader = _ArgumentParser(page, stdin, has_names=has_names)
    for name, text in route_values.items():
        reader.add(reader.parameter(name), text, label=name)
    reader.read(words)
    reader.finish()
    return reader.arguments


class _ArgumentParser:
    """Parses the words in one pass."""

    def __init__(self, page: CommandPage, stdin: Callable[[], str] | None, *, has_names: bool) -> None:
        self._page = page
        self._has_names = has_names
        self._stdin = stdin
        self._parameters = {normalize(parameter.name): parameter for parameter in page.parameters}
        self._positional: list[str] = []
        self.arguments: dict[str, Any] = {}

    def read(self, words: Sequence[str]) -> None:
        """Parse the options and collect the positional words."""
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word == "--":
                self._positional += words[at:]
                return
            if word.startswith("--"):
                at += self._parse_option(word, words[at] if at < len(words) else None)
            elif word.startswith("-") and word != "-" and not NUMBER.fullmatch(word):
                raise self._error(f"{word}: options are written --name; put a value that begins with - after --")
            elif self._has_names and NAMED.match(word):
                self._parse_option(f"--{word}", None)
            else:
                self._positional.append(word)

    def finish(self) -> None:
        """Assign the positional words to the required parameters, in order."""
        missing_parameters = [
            one for one in self._page.parameters if one.is_required and one.name not in self.arguments
        ]
        words = self._positional
        for at, parameter in enumerate(missing_parameters):
            left = len(missing_parameters) - at - 1
            count = max(len(words) - left, 1) if is_list(parameter) else 1
            for word in words[:count]:
                self.add(parameter, word, label=parameter.name.upper())
            words = words[count:]
        missing = [one.name.upper() for one in missing_parameters if one.name not in self.arguments]
        if missing:
            raise self._error(f"{' and '.join(missing)} must be given; usage: {usage(self._page)}")
        if words:
            raise self._error(f"{words[0][:80]!r} is one word too many; usage: {usage(self._page)}")

    def add(self, parameter: ParameterPage, text: str, *, label: str) -> None:
        """Add one value of a parameter, given as text."""
        self._set(parameter, self._parse_value(parameter.schema, text, label))

    def parameter(self, name: str) -> ParameterPage:
        """Return the parameter of this name.

        Raises:
            InvalidArguments: there is none.
        """
        parameter = self._parameters.get(normalize(name))
        if parameter is not None:
            return parameter
        if name == ANSWERS and self._page.asks:
            raise self._error("answers are given by --answer KEY=VALUE, or --answer KEY:=JSON")
        close = difflib.get_close_matches(normalize(name), self._parameters, n=1)
        meant = f"; did you mean {option_of(self._parameters[close[0]])}?" if close else ""
        options = ", ".join(map(option_of, self._page.parameters)) or "none"
        raise self._error(f"--{name}: no such option{meant} (there are {options})")

    def _parse_option(self, word: str, following: str | None) -> int:
        """Parse an option; return how many further words it used."""
        name, form, given = split_word(word[2:])
        flag = None if given is not None or form else self._find_flag(name)
        if flag is not None:
            self._set(*flag)
            return 0
        parameter = self.parameter(name)
        text = following if given is None else given
        if text is None:
            raise self._error(f"{word}: a value must follow")
        if form == ":":
            self._set(parameter, _json(text, f"{self._page.words}: {word}"))
        elif form == "@":
            self.add(parameter, read_source(f"{self._page.words}: {word}", text, self._stdin), label=f"--{name}")
        else:
            self.add(parameter, text, label=f"--{name}")
        return 1 if given is None else 0

    def _find_flag(self, name: str) -> tuple[ParameterPage, bool] | None:
        parameter = self._parameters.get(normalize(name))
        if parameter is not None:
            return (parameter, True) if is_flag(parameter) else None
        parameter = self._parameters.get(normalize(name).removeprefix("no_"))
        return (parameter, False) if parameter is not None and is_flag(parameter) else None

    def _set(self, parameter: ParameterPage, value: Any) -> None:
        name = parameter.name
        if name not in self.arguments:
            self.arguments[name] = value
        elif is_list(parameter) and isinstance(value, list):
            self.arguments[name] = [*self.arguments[name], *value]
        else:
            raise self._error(f"{option_of(parameter)}: given twice, and it takes one value")

    def _parse_value(self, schema: Mapping[str, Any], text: str, label: str) -> Any:
        alternatives = _alternatives(schema)
        if alternatives:
            return self._parse_alternatives(alternatives, text, label)
        kind = schema.get("type")
        if kind == "array":
            items = schema.get("items", {})
            if items.get("type") in _SCALARS or "enum" in items:
                return [self._parse_value(items, text, label)]
            value = self._json_or_file(text, label)
            return value if isinstance(value, list) else [value]
        if kind == "string" or "enum" in schema:
            return next((choice for choice in schema.get("enum", ()) if str(choice) == text), text)
        if kind == "object":
            return self._json_or_file(text, label)
        if kind in _TYPE_NAMES:
            return _scalar(text, str(kind), f"{self._page.words}: {label}")
        return _json_or_text(text)

    def _parse_alternatives(self, alternatives: Sequence[Mapping[str, Any]], text: str, label: str) -> Any:
        """Return the value for the first alternative that the text fits; the text itself comes last."""
        can_be_text = any(arm.get("type") == "string" for arm in alternatives)
        for arm in alternatives:
            if arm.get("type") in ("integer", "number", "boolean", "null"):
                try:
                    value = _scalar(text, arm["type"], label)
                except InvalidArguments:
                    continue
                # A float would lose digits of a `Decimal`: 1.50, or more than 17 of them.
                return text if can_be_text and isinstance(value, float) and str(value) != text else value
        if can_be_text:
            return text
        structured = [arm for arm in alternatives if arm.get("type") in ("array", "object")]
        return self._parse_value(structured[0], text, label) if structured else _json_or_text(text)

    def _json_or_file(self, text: str, label: str) -> Any:
        if text.startswith("@"):
            text = read_source(f"{self._page.words}: {label}", text[1:], self._stdin)
        return _json(text, f"{self._page.words}: {label}")

    def _error(self, text: str) -> InvalidArguments:
        return InvalidArguments(f"{self._page.words}: {text}")


def option_of(parameter: ParameterPage) -> str:
    """Return the option of a parameter."""
    return "--" + parameter.name.replace("_", "-")


def is_flag(parameter: ParameterPage) -> bool:
    """Whether the option of a parameter takes no value."""
    return parameter.schema.get("type") == "boolean"


def is_list(parameter: ParameterPage) -> bool:
    """Whether a parameter may be given several times."""
    return parameter.schema.get("type") == "array"


def _alternatives(schema: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    kind = schema.get("type")
    if isinstance(kind, list):
        return [{**schema, "type": one} for one in kind]
    alternatives: Sequence[Mapping[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or ()
    return alternatives


def _scalar(text: str, kind: str, label: str) -> Any:
    types: dict[str, tuple[type, ...]] = {
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
        "null": (type(None),),
    }
    value = _json_or_text(text)
    if not isinstance(value, types[kind]) or (isinstance(value, bool) and kind != "boolean"):
        raise InvalidArguments(f"{label}: must be {_TYPE_NAMES[kind]}, got {text[:40]!r}")
    return value


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _json(text: str, label: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"{label[:100]}: must be JSON, or @FILE that contains it: {error}") from None


def read_source(label: str, source: str, stdin: Callable[[], str] | None) -> str:
    """Read a file, or standard input for `-`.

    Raises:
        InvalidArguments: it can't be read, or standard input is not available.
    """
    if source == "-" and stdin is None:
        raise InvalidArguments(f"{label[:100]}: standard input contains the commands here; name a file")
    try:
        return stdin() if source == "-" and stdin else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArguments(f"{label[:100]}: {error}") from None
