"""Places in files that a result names: what reports show beside the code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import mcp_types as types

from coretools.pipelines.outcome import Outcome, result_document

Level = Literal["error", "warning", "note"]

MAX_FINDINGS = 1_000
"""Most findings of one result."""

MAX_VISITED = 200_000
"""Most values of a result that are examined."""

MAX_MESSAGE = 2_000
"""Characters of a message."""

_FILES = ("file", "path", "filename", "uri")
_LINES = ("line", "startLine", "start_line", "lineNumber", "row")
_COLUMNS = ("column", "col", "startColumn", "start_column")
_MESSAGES = ("message", "text", "description", "detail", "title")
_LEVELS = ("level", "severity", "type")
_RULES = ("rule", "ruleId", "rule_id", "code", "check")
_WARNINGS = frozenset({"warning", "warn", "2"})
_NOTES = frozenset({"note", "info", "information", "hint", "notice", "3", "4"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A message about a place in a file."""

    file: str
    line: int | None
    column: int | None
    message: str
    level: Level = "error"
    rule: str = ""


def findings_of(outcome: Outcome) -> list[Finding]:
    """Return what the result of a step says about files: objects with a file, a message and perhaps a line.

    The keys are those that linters, compilers and test runners use; others are no findings.
    """
    return [] if outcome.result is None else list(_findings(outcome.result))


def _findings(result: types.CallToolResult) -> Iterator[Finding]:
    waiting = [result_document(result)["data"]]
    visited = count = 0
    while waiting and visited < MAX_VISITED and count < MAX_FINDINGS:
        value = waiting.pop()
        visited += 1
        if isinstance(value, list):
            waiting += reversed(value[:MAX_VISITED])
        elif isinstance(value, dict):
            if (finding := _finding(value)) is not None:
                count += 1
                yield finding
            waiting += reversed(list(value.values()))


def _finding(value: Mapping[str, Any]) -> Finding | None:
    file = _first(value, _FILES, str)
    message = _first(value, _MESSAGES, str)
    if not file or not message or len(file) > MAX_MESSAGE:
        return None
    rule = _first(value, _RULES, str | int)
    return Finding(
        file=file.removeprefix("file://"),
        line=_positive(_first(value, _LINES, int)),
        column=_positive(_first(value, _COLUMNS, int)),
        message=message[:MAX_MESSAGE],
        level=_level(_first(value, _LEVELS, str | int)),
        rule="" if rule is None else str(rule)[:200],
    )


def _first(value: Mapping[str, Any], keys: tuple[str, ...], kind: Any) -> Any:
    return next((value[key] for key in keys if isinstance(value.get(key), kind) and value[key] is not True), None)


def _positive(number: int | None) -> int | None:
    return number if number and number > 0 else None


def _level(text: str | int | None) -> Level:
    name = str(text).lower()
    return "warning" if name in _WARNINGS else "note" if name in _NOTES else "error"
