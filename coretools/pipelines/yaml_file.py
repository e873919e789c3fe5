"""YAML as plain JSON values with their lines: YAML 1.2 without tags, directives and merge keys, bounded in every way.

The library only splits the text into events; the values are made here, so that nothing of it constructs objects.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from coretools.errors import BadSetting

MAX_BYTES = 128 * 1024
"""The parser reads about 100 KB in a second."""

MAX_DEPTH = 32

MAX_OPEN = 500
"""Brackets on one line: the time that the parser takes grows with their square."""

MAX_VALUES = 20_000
"""Values of a file, each alias counted with all that it stands for."""

Path = tuple[str | int, ...]

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]{1,4000}")
_BASED = re.compile(r"0o[0-7]{1,1000}|0x[0-9a-fA-F]{1,1000}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,100}|[0-9]{1,300}(?:\.[0-9]{0,300})?)(?:[eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """The value of a file, and the line on which each part begins."""

    value: Any
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int:
        """Return the line of a part, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


@dataclass(slots=True)
class _Open:
    """A list or mapping that is not complete."""

    value: Any
    path: Path
    anchor: str | None
    key: str | None = None
    size: int = 1

    def next_path(self) -> Path:
        """Return the path of the value that comes next."""
        return (*self.path, len(self.value) if isinstance(self.value, list) else self.key or "")


@dataclass(slots=True)
class _Builder:
    """Builds values from events."""

    file: str
    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    _stack: list[_Open] = field(default_factory=list)
    _anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Take the next event.

        Raises:
            BadSetting: it is one that is not accepted.
        """
        line = event.start_mark.line + 1
        self._require_plain(event, line)
        if isinstance(event, AliasEvent):
            if event.anchor not in self._anchors:
                raise self.refused(line, f"the alias *{event.anchor[:80]} has no anchor before it")
            self._add(*self._anchors[event.anchor], line)
        elif isinstance(event, ScalarEvent):
            self._take_scalar(event, line)
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            self._open({} if isinstance(event, MappingStartEvent) else [], event.anchor, line)
        elif isinstance(event, CollectionEndEvent):
            done = self._stack.pop()
            if done.anchor:
                self._anchors[done.anchor] = (done.value, done.size)
            self._count(done.size - 1, line)

    def _require_plain(self, event: Event, line: int) -> None:
        if isinstance(event, DocumentStartEvent) and (event.version or event.tags or self.lines):
            raise self.refused(line, "directives (%YAML, %TAG) and further documents are not accepted")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self.refused(line, f"the tag {str(tag)[:80]} is not accepted; write plain values")
        if isinstance(event, ScalarEvent) and any("\ud800" <= character <= "\udfff" for character in event.value):
            raise self.refused(line, "half of a surrogate pair is no text")

    def refused(self, line: int, reason: str) -> BadSetting:
        """Return the error for a line."""
        return BadSetting(f"{self.file}:{line}: {reason}")

    def _open(self, value: Any, anchor: str | None, line: int) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise self.refused(line, f"nested more than {MAX_DEPTH} levels deep")
        path = self._stack[-1].next_path() if self._stack else ()
        self._add(value, 1, line)
        self._stack.append(_Open(value, path, anchor))

    def _take_scalar(self, event: ScalarEvent, line: int) -> None:
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            if event.value == "<<" or event.value in top.value:
                reason = "merge keys are not accepted" if event.value == "<<" else f"{event.value!r} is there twice"
                raise self.refused(line, reason)
            top.key = event.value
            return
        value = self._plain(event, line) if event.implicit[0] else event.value
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, 1, line)

    def _plain(self, event: ScalarEvent, line: int) -> Any:
        """Return what a scalar without quotes stands for, by the core schema of YAML 1.2.2 (10.3.2)."""
        text = event.value
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return int(text)
        if _BASED.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return float(text)
        if text.lower().lstrip("+-") in (".inf", ".nan"):
            raise self.refused(line, f"{text} has no form in JSON")
        return text

    def _add(self, value: Any, size: int, line: int) -> None:
        """Put a value where it belongs."""
        if not self._stack:
            self.value, self.lines[()] = value, line
            return
        top = self._stack[-1]
        self.lines[top.next_path()] = line
        if isinstance(top.value, list):
            top.value.append(value)
        else:
            if top.key is None:
                raise self.refused(line, "a key must be text")
            top.value[top.key] = value
            top.key = None
        self._count(size, line)

    def _count(self, size: int, line: int) -> None:
        if not self._stack:
            return
        self._stack[-1].size += size
        if self._stack[-1].size > MAX_VALUES:
            raise self.refused(line, f"more than {MAX_VALUES} values, those of aliases included")


def parse_yaml(data: bytes, file: str) -> YamlDocument:
    """Parse the bytes of a file; `file` names it in errors.

    Raises:
        BadSetting: too large, not UTF-8, not YAML, or with what is not accepted; names the line.
    """
    if len(data) > MAX_BYTES:
        raise BadSetting(f"{file}: larger than {MAX_BYTES} bytes, the most that a script may have")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadSetting(f"{file}: not UTF-8 text, at byte {error.start}") from error
    builder = _Builder(file)
    for number, line in enumerate(text.splitlines(), 1):
        if line.count("{") + line.count("[") > MAX_OPEN:
            raise builder.refused(number, f"more than {MAX_OPEN} brackets on one line")
    for event in _events(text, builder):
        builder.take(event)
    return YamlDocument(builder.value, builder.lines)


def _events(text: str, builder: _Builder) -> Iterator[Event]:
    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise builder.refused(mark.line + 1 if mark else 1, f"not valid YAML: {error.problem}") from error
    except (YAMLError, RecursionError, ValueError) as error:
        raise builder.refused(1, f"not valid YAML: {(str(error).splitlines() or ['nested too deeply'])[0]}") from error
