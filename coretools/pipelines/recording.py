"""Recordings of runs: calls, results and declarations of tools, in a stable form."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coretools.client.common.bounded_file import read_bounded
from coretools.errors import BadSetting
from coretools.pipelines.outcome import Outcome, parsed_json
from coretools.pipelines.whole_file import write_whole
from coretools.redaction.redactor import Redactor

FORMAT: Literal["coretools-recording-1"] = "coretools-recording-1"

MAX_BYTES = 256 * 1024 * 1024
"""Largest recording that is read."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class RecordedCall(_Table):
    """One call, and the result or the kind of the error."""

    step: str
    server: str
    tool: str
    arguments: dict[str, Any]
    result: dict[str, Any] | None = None
    error: str | None = None

    def comparable(self) -> dict[str, Any]:
        """Return what a replay compares; a text that is JSON becomes its value, so that paths reach into it."""
        result = self.result or {}
        content = [
            block | {"text": _value_of(block["text"])} if isinstance(block.get("text"), str) else block
            for block in result.get("content", [])
            if isinstance(block, dict)
        ]
        return {
            "arguments": dict(self.arguments),
            "ok": self.result is not None and not result.get("isError", False),
            "content": content,
            "structuredContent": result.get("structuredContent"),
            "error": self.error,
        }


class Recording(_Table):
    """A recording file."""

    format: Literal["coretools-recording-1"]
    name: str
    calls: list[RecordedCall]
    tools: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Declarations by server and name."""
    ignore: list[str] = Field(default_factory=list)
    """Paths of what may differ."""

    def call_of(self, step: str) -> RecordedCall | None:
        """Return the call of a step."""
        return next((call for call in self.calls if call.step == step), None)


def recording_of(name: str, outcomes: Sequence[Outcome], redactor: Redactor, ignored: Sequence[str]) -> Recording:
    """Return the recording of a run, without credentials. Steps that made no call are not in it."""
    calls, tools = [], dict[str, dict[str, dict[str, Any]]]()
    for outcome in outcomes:
        if outcome.tool is None:
            continue
        step = outcome.step
        declaration = outcome.tool.model_dump(mode="json", by_alias=True, exclude_none=True)
        tools.setdefault(step.server, {})[step.tool] = without_secrets(declaration, redactor)
        calls.append(recorded_call(outcome, redactor))
    return Recording(format=FORMAT, name=name, calls=calls, tools=tools, ignore=list(ignored))


def recorded_call(outcome: Outcome, redactor: Redactor) -> RecordedCall:
    """Return the call of a step, without credentials."""
    result = outcome.result
    shape = None if result is None else result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return RecordedCall(
        step=outcome.step.id,
        server=outcome.step.server,
        tool=outcome.step.tool,
        arguments=without_secrets(dict(outcome.arguments), redactor),
        result=without_secrets(shape, redactor),
        error=outcome.error.kind if result is None and outcome.error is not None else None,
    )


def _value_of(text: str) -> Any:
    value = parsed_json(text)
    return text if value is None else value


def without_secrets(value: Any, redactor: Redactor) -> Any:
    """Return a JSON value with every credential in its texts replaced."""
    if isinstance(value, dict):
        return {key: _named(key, inner, redactor) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_secrets(inner, redactor) for inner in value]
    return redactor.text(value) if isinstance(value, str) else value


def _named(key: str, value: Any, redactor: Redactor) -> Any:
    """Redact a value together with its key: the name of a credential tells what its value is."""
    if not isinstance(value, str):
        return without_secrets(value, redactor)
    prefix = f"{key}="
    shown = redactor.text(prefix + value)
    return shown.removeprefix(prefix) if shown.startswith(prefix) else redactor.text(value)


def write_recording(recording: Recording, path: str) -> None:
    """Write a recording of mode 0600, whole or not at all.

    Raises:
        InputOutput: it can't be written.
    """
    text = json.dumps(recording.model_dump(mode="json"), ensure_ascii=True, indent=2, sort_keys=True)
    write_whole(path, text, 0o600)


def read_recording(path: str) -> Recording:
    """Read a recording.

    Raises:
        BadSetting: it is not a valid recording.
    """
    try:
        recording = Recording.model_validate_json(read_bounded(path, MAX_BYTES))
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise BadSetting(f"{path}: no recording of coretools: {where}: {fault['msg'][:200]}") from error
    if len({call.step for call in recording.calls}) < len(recording.calls):
        raise BadSetting(f"{path}: no recording of coretools: a step is there twice")
    return recording


def declared_tools(recording: Recording, server: str) -> list[types.Tool]:
    """Return the tools of a server as they were declared when the recording was made.

    Raises:
        BadSetting: a declaration is not valid.
    """
    try:
        return [types.Tool.model_validate(shape) for shape in recording.tools.get(server, {}).values()]
    except ValidationError as error:
        raise BadSetting(f"the recording has an invalid declaration of a tool of {server!r}") from error
