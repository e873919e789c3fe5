"""Replays: compare what calls return with a recording, or take the results of a recording instead of servers."""

import difflib
import json
from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT
from pydantic import ValidationError

from coretools.client.approval.approvals import ProposedCall
from coretools.client.common.errors import ToolFailed
from coretools.errors import BadSetting, CoreError, Unreachable
from coretools.pipelines.expressions import Expressions
from coretools.pipelines.outcome import Outcome, Step
from coretools.pipelines.recording import RecordedCall, Recording, declared_tools, recorded_call, without_secrets
from coretools.pipelines.runner import Caller
from coretools.redaction.redactor import Redactor

MAX_DIFF_LINES = 100
MAX_DIFF_LINE = 300
"""Characters of one line of a difference."""

MAX_COMPARED_LINES = 20_000
"""Beyond this many lines, differences are shown without their context: the time to align them grows with the square."""

_REDACTED = "[redacted:"


class ReplayDiffers(CoreError):
    """A call does not return what the recording has; the fact `difference` has the lines."""

    kind = "replay-differs"
    exit_code = 4


class Comparison:
    """Compares the outcomes of a run with a recording."""

    def __init__(
        self, recording: Recording, expressions: Expressions, redactor: Redactor, ignored: Sequence[str]
    ) -> None:
        self._recording = recording
        self._expressions = expressions
        self._redactor = redactor
        self._ignored = [*recording.ignore, *ignored]
        self._seen: set[str] = set()

    async def verify(self, outcome: Outcome) -> None:
        """Fail an outcome that differs from the recording; an error that was recorded is not a failure.

        Raises:
            BadExpression: a path of what to ignore is wrong.
        """
        self._seen.add(outcome.step.id)
        if outcome.error is not None and outcome.result is not None and not isinstance(outcome.error, ToolFailed):
            return  # an assertion failed, which says more
        error = await self._difference(outcome)
        outcome.error = error
        outcome.status = "passed" if error is None else "failed"

    async def _difference(self, outcome: Outcome) -> CoreError | None:
        step = outcome.step
        where = f"server {step.server!r}: tool {step.tool!r}"
        call = self._recording.call_of(step.id)
        if call is None:
            return ReplayDiffers(f"{where}: the recording has no step {step.id!r}")
        if (call.server, call.tool) != (step.server, step.tool):
            return ReplayDiffers(f"{where}: the recording has {call.server!r}: {call.tool!r} in this step")
        if outcome.result is None and outcome.error is not None and outcome.error.kind != call.error:
            return outcome.error
        now = recorded_call(outcome, self._redactor)
        before, after = [await self._expressions.masked(version.comparable(), self._ignored) for version in (call, now)]
        if before == after:
            return None
        parts = [key for key in before if before[key] != after[key]] if isinstance(before, dict) else ["all"]
        return ReplayDiffers(
            f"{where}: differs from the recording in {', '.join(parts)}", difference=_diff(before, after)
        )

    def missing(self) -> list[Outcome]:
        """Return a failure for each recorded call that was not repeated."""
        return [
            Outcome(
                step=Step(id=call.step, server=call.server, tool=call.tool),
                status="failed",
                error=ReplayDiffers(f"server {call.server!r}: tool {call.tool!r}: step {call.step!r} made no call"),
            )
            for call in self._recording.calls
            if call.step not in self._seen
        ]


def steps_of(recording: Recording) -> list[Step]:
    """Return the calls of a recording as steps.

    Raises:
        BadSetting: an argument was redacted, so that the call can't be repeated.
    """
    for call in recording.calls:
        if _REDACTED in json.dumps(call.arguments):
            raise BadSetting(
                f"step {call.step!r}: an argument is a credential, which recordings do not have;"
                " replay with the script: `coretools run SCRIPT --replay FILE`"
            )
    return [
        Step(id=call.step, server=call.server, tool=call.tool, arguments=call.arguments, name=call.step)
        for call in recording.calls
    ]


class RecordedServers:
    """`Servers` that answer with the results of a recording."""

    def __init__(self, recording: Recording, redactor: Redactor) -> None:
        self._recording = recording
        self._redactor = redactor
        self._left = list(recording.calls)

    async def connected(self, name: str) -> Caller:
        """Return a server of the recording.

        Raises:
            Unreachable: it has none of this name.
        """
        if name not in self._recording.tools:
            raise Unreachable(f"server {name!r}: the recording has no call of it")
        return _RecordedServer(name, declared_tools(self._recording, name), self._take)

    def _take(self, server: str, tool: str, arguments: dict[str, Any]) -> RecordedCall:
        """Return the next recorded call with these arguments, each once."""
        given = without_secrets(arguments, self._redactor)
        for call in self._left:
            if (call.server, call.tool, call.arguments) == (server, tool, given):
                self._left.remove(call)
                return call
        raise Unreachable(f"server {server!r}: call {tool}: the recording has no further call with these arguments")


class _RecordedServer:
    def __init__(self, name: str, tools: Sequence[types.Tool], take: Any) -> None:
        self.name = name
        self.identity = ""
        self._tools = tools
        self._take = take

    async def tools(self) -> Sequence[types.Tool]:
        return self._tools

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: ProgressFnT | None = None
    ) -> types.CallToolResult:
        del on_progress  # a recording has none
        call = self._take(self.name, tool, arguments)
        if call.result is None:
            raise Unreachable(f"server {self.name!r}: call {tool}: the recorded call failed: {call.error}")
        try:
            return types.CallToolResult.model_validate(call.result)
        except ValidationError as error:
            raise BadSetting(f"the recording has an invalid result of {tool!r}") from error


async def approve_recorded(call: ProposedCall, server: Caller) -> None:
    """Approve every call: a recording has no effects."""
    del call, server


def _diff(before: Any, after: Any) -> str:
    """Return the lines that differ, as a unified difference of bounded length."""
    old, new = _lines(before), _lines(after)
    if len(old) + len(new) > MAX_COMPARED_LINES:
        at = next((at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
        old, new = old[at : at + MAX_DIFF_LINES], new[at : at + MAX_DIFF_LINES]
    lines = list(difflib.unified_diff(old, new, "recorded", "now", lineterm=""))
    shown = [line[:MAX_DIFF_LINE] + (" ..." if len(line) > MAX_DIFF_LINE else "") for line in lines[:MAX_DIFF_LINES]]
    more = [f"[... {len(lines) - MAX_DIFF_LINES} more lines ...]"] if len(lines) > MAX_DIFF_LINES else []
    return "\n".join([*shown, *more])


def _lines(value: Any) -> list[str]:
    return json.dumps(_split(value), ensure_ascii=False, indent=1, sort_keys=True).splitlines()


def _split(value: Any) -> Any:
    """Return a value with texts of several lines as lists of lines, which a difference can show one by one."""
    if isinstance(value, dict):
        return {key: _split(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_split(inner) for inner in value]
    return value.split("\n") if isinstance(value, str) and "\n" in value else value
