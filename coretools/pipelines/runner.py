"""Run one step: check the arguments, have the call approved, call, repeat where that is safe, check the result."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT

from coretools.client.approval.approvals import ProposedCall
from coretools.client.common.arguments import check_arguments
from coretools.client.common.errors import SchemaMismatch, ToolFailed
from coretools.errors import CoreError, DeadlinePassed, UnknownTool, Unreachable
from coretools.pipelines.expressions import AssertionFailed, Expressions
from coretools.pipelines.outcome import Outcome, Step, result_document, text_of

FIRST_PAUSE = 0.5
"""Seconds before the first repetition; each further pause is twice as long."""

LONGEST_PAUSE = 30.0

MAX_QUOTED = 500
"""Characters of a tool's error that a message quotes."""


class Caller(Protocol):
    """A server that is connected."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def identity(self) -> str:
        """Digest for approvals (`server_digest`)."""
        ...

    async def tools(self) -> Sequence[types.Tool]:
        """Return its tools."""
        ...

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: ProgressFnT | None = None
    ) -> types.CallToolResult:
        """Call a tool."""
        ...


class Servers(Protocol):
    """The servers that steps may name."""

    async def connected(self, name: str) -> Caller:
        """Return a server, connected; again, if its connection was lost."""
        ...


class Observer(Protocol):
    """Is notified of what happens while steps run."""

    async def on_start(self, step: Step, attempt: int) -> None:
        """An attempt begins."""
        ...

    async def on_progress(self, step: Step, progress: float, total: float | None, message: str | None) -> None:
        """The server reports progress."""
        ...

    async def on_retry(self, step: Step, error: CoreError, pause: float) -> None:
        """An attempt failed, and there will be another one."""
        ...

    async def on_end(self, outcome: Outcome) -> None:
        """The step is over."""
        ...


Approve = Callable[[ProposedCall, Caller], Awaitable[None]]
"""Returns if the call may be made, else raises."""


class StepRunner:
    """Runs steps, one after the other."""

    def __init__(
        self,
        servers: Servers,
        approve: Approve,
        expressions: Expressions,
        observer: Observer,
        verify: Callable[[Outcome], Awaitable[None]] | None = None,
    ) -> None:
        """`verify` may change an outcome before anybody sees it."""
        self._verify = verify
        self._servers = servers
        self._approve = approve
        self._expressions = expressions
        self._observer = observer

    async def run(self, step: Step) -> Outcome:
        """Run a step. What fails is in the outcome."""
        outcome = Outcome(step=step)
        begun = time.monotonic()
        try:
            outcome.result = await self._called(outcome)
            await self._check(step, outcome.result)
        except CoreError as error:
            outcome.status, outcome.error = "failed", error
        try:
            if self._verify is not None:
                await self._verify(outcome)
        except CoreError as error:
            outcome.status, outcome.error = "failed", error
        outcome.seconds = time.monotonic() - begun
        await self._observer.on_end(outcome)
        return outcome

    async def _called(self, outcome: Outcome) -> types.CallToolResult:
        step, pause = outcome.step, FIRST_PAUSE
        while True:
            outcome.attempts += 1
            attempt = _Attempt(outcome)
            await self._observer.on_start(step, outcome.attempts)
            try:
                return await self._call(attempt)
            except (Unreachable, DeadlinePassed) as error:
                if outcome.attempts > step.retries or not attempt.may_be_repeated:
                    raise
                await self._observer.on_retry(step, error, pause)
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _call(self, attempt: "_Attempt") -> types.CallToolResult:
        step = attempt.outcome.step
        server = await self._servers.connected(step.server)
        tool = find_tool(await server.tools(), step.server, step.tool)
        arguments = step.arguments if step.make_arguments is None else step.make_arguments(tool)
        attempt.outcome.arguments = arguments
        try:
            check_arguments(arguments, tool.input_schema)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"server {step.server!r}: tool {step.tool!r}: {error}") from error
        if attempt.outcome.tool != tool:  # one approval covers all attempts
            await self._approve(ProposedCall(step.server, server.identity, tool, arguments), server)
        attempt.sent = attempt.outcome.tool = tool
        return await self._answered(step, server, dict(arguments))

    async def _answered(self, step: Step, server: Caller, arguments: dict[str, Any]) -> types.CallToolResult:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            await self._observer.on_progress(step, progress, total, message)

        if step.seconds is None:
            return await server.call(step.tool, arguments, on_progress)
        with anyio.move_on_after(step.seconds):
            return await server.call(step.tool, arguments, on_progress)
        raise DeadlinePassed(f"server {step.server!r}: call {step.tool}: no answer within {step.seconds:g} s")

    async def _check(self, step: Step, result: types.CallToolResult) -> None:
        """Check what the step expects of its result.

        Raises:
            ToolFailed, AssertionFailed: the result is different.
        """
        where = f"server {step.server!r}: tool {step.tool!r}"
        if step.expects_error and not result.is_error:
            raise AssertionFailed(f"{where}: expected an error, and got {_quoted(result)}")
        if step.assertions:
            await self._expressions.put(("steps", step.id, "result"), result_document(result))
        for text in step.assertions:
            checked = await self._expressions.check(text, ("steps", step.id, "result"))
            if not checked.holds:
                failed = f" (the tool reported an error: {_quoted(result)})" if result.is_error else ""
                raise AssertionFailed(f"{where}: expected {text.strip()}, but {checked.description}{failed}")
        if result.is_error and not step.expects_error:
            raise ToolFailed(f"{where}: the tool reported an error: {_quoted(result)}")


@dataclass(slots=True)
class _Attempt:
    """One attempt at a step, and how far it got."""

    outcome: Outcome
    sent: types.Tool | None = None
    """The tool, once its call may have reached the server."""

    @property
    def may_be_repeated(self) -> bool:
        """Whether another attempt can't repeat an effect, or the user accepts that."""
        if self.sent is None or self.outcome.step.retries_any:
            return True
        hints = self.sent.annotations
        return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


def find_tool(tools: Sequence[types.Tool], server: str, name: str) -> types.Tool:
    """Return a tool by name.

    Raises:
        UnknownTool: the server has none of this name.
    """
    for tool in tools:
        if tool.name == name:
            return tool
    near = get_close_matches(name, [tool.name for tool in tools], n=1)
    meant = f"; did you mean {near[0]}?" if near else f"; `coretools mcp tools {server}` lists them"
    raise UnknownTool(f"server {server!r} has no tool {name!r}{meant}")


def _quoted(result: types.CallToolResult) -> str:
    text = " ".join(text_of(result)[: 4 * MAX_QUOTED].split())
    return (text[:MAX_QUOTED] + (" ..." if len(text) > MAX_QUOTED else "")) or "no text"
