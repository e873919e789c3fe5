"""Steps and their outcomes: the data of every report."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import mcp_types as types

from coretools.errors import CoreError

Status = Literal["passed", "failed", "skipped"]
STATUSES: Sequence[Status] = get_args(Status)

MAX_LEVELS = 100
"""Nesting of JSON in a text; what goes deeper stays text."""

MAX_PARSED = 16 * 1024 * 1024
"""Characters of a text that is parsed as JSON for the member `data`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call, and what is expected of it."""

    id: str
    server: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """For people; empty: server and tool."""
    seconds: float | None = None
    """Deadline of one attempt; None: that of the connection."""
    retries: int = 0
    retries_any: bool = False
    """Whether a call is repeated that may have had its effect."""
    assertions: Sequence[str] = ()
    expects_error: bool = False
    """Whether the tool is to report an error."""
    is_optional: bool = False
    """Whether the run goes on, and succeeds, if the step fails."""
    file: str = ""
    """The script, or what else the step is about."""
    line: int | None = None
    """In the file."""
    make_arguments: Callable[[types.Tool], Mapping[str, Any]] | None = None
    """Makes the arguments if they depend on the schema of the tool."""

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name or f"{self.server}: {self.tool}"

    @property
    def place(self) -> str:
        """The beginning of a message about the step: its place in the script."""
        return f"{self.file}:{self.line}: " if self.file and self.line else ""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of a step."""

    step: Step
    status: Status = "passed"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments that were sent."""
    tool: types.Tool | None = None
    """The tool, once its call may have reached the server."""
    result: types.CallToolResult | None = None
    error: CoreError | None = None
    """Why it failed."""
    attempts: int = 0
    seconds: float = 0.0
    reason: str = ""
    """Why it was skipped."""

    @property
    def is_failure(self) -> bool:
        """Whether it makes the run fail."""
        return self.status == "failed" and not self.step.is_optional


def exit_code_of(outcomes: Sequence[Outcome]) -> int:
    """Return the exit code of a run: that of the first step that failed."""
    return next((outcome.error.exit_code if outcome.error else 1 for outcome in outcomes if outcome.is_failure), 0)


def difference_of(outcome: Outcome) -> str:
    """Return the lines that differ from a recording."""
    return "" if outcome.error is None else str(outcome.error.facts.get("difference", ""))


def text_of(result: types.CallToolResult) -> str:
    """Return the text blocks of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def result_document(result: types.CallToolResult) -> dict[str, Any]:
    """Return a result as assertions see it: `ok`, `content`, `structuredContent`, `text`, and `data`.

    `data` is the structured content, else the text as JSON, if it is JSON.
    """
    shape = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    text = text_of(result)
    structured = shape.get("structuredContent")
    return {
        "ok": not result.is_error,
        "content": shape.get("content", []),
        "structuredContent": structured,
        "text": text,
        "data": structured if structured is not None else parsed_json(text),
    }


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as reports in JSON show it."""
    result = None if outcome.result is None else result_document(outcome.result)
    document: dict[str, Any] = {
        "step": outcome.step.id,
        "name": outcome.step.title,
        "server": outcome.step.server,
        "tool": outcome.step.tool,
        "status": outcome.status,
        "attempts": outcome.attempts,
        "seconds": round(outcome.seconds, 3),
        "error": None if outcome.error is None else error_document(outcome.error),
        "result": None if result is None else {key: result[key] for key in ("ok", "content", "structuredContent")},
    }
    if outcome.reason:
        document["reason"] = outcome.reason
    return document


def error_document(error: CoreError) -> dict[str, Any]:
    """Return an error as reports in JSON show it."""
    return {"kind": error.kind, "message": str(error), "exitCode": error.exit_code}


def parsed_json(text: str) -> Any:
    """Return the value of a text that is a JSON object or list; None if it is neither, or nested too deeply."""
    if not text.lstrip().startswith(("{", "[")) or len(text) > MAX_PARSED:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return None if level else value
