"""Long-running tools as tasks: the extension `io.modelcontextprotocol/tasks` (SEP-2663) of revision 2026-07-28.

A client that declares it gets a task for a call that does not end at once, polls it with `tasks/get`, answers its
questions with `tasks/update` and ends it with `tasks/cancel`. Questions that come before the client has the task are
the response to the request, as for any call, and later ones wait in the task (SEP-2663, "Task Creation"). Other clients
are answered without tasks.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict, Field

from coretools.config.limits import Limits
from coretools.errors import CoreError, InputNeeded, RequestError, UnknownTool
from coretools.operations.command import Command
from coretools.operations.content import escape_surrogates
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.protocol.call_adapter import principal_of
from coretools.protocol.extensions import declared_settings, require_extension
from coretools.protocol.results import as_result
from coretools.protocol.round_trip_questions import (
    QuestionFactory,
    as_input_required,
)
from coretools.protocol.tasks.store import Task, TaskAnswer, TaskStore
from coretools.protocol.tasks.task_call import TaskCall, TaskClient

IDENTIFIER = "io.modelcontextprotocol/tasks"

NAME_HEADER = "mcp-name"
"""HTTP header that repeats the task's id, for intermediaries (SEP-2663, "Routing Headers")."""

RUN_TIMEOUT_SHARE = 0.99
"""Fraction of the longest wait that a command gets as its timeout, so that it ends before the wait does."""


class TaskParams(types.RequestParams):
    """Parameters of `tasks/get` and `tasks/cancel`."""

    model_config = ConfigDict(defer_build=True)  # keeps it out of the start-up time

    task_id: str


class UpdateParams(TaskParams):
    """Parameters of `tasks/update`."""

    input_responses: dict[str, Any] = Field(default_factory=dict)


class TaskExtension(Extension):
    """The extension: tasks for clients that declare it."""

    identifier = IDENTIFIER

    def __init__(
        self,
        catalog: LiveCatalog,
        dispatcher: Dispatcher,
        tasks: TaskStore,
        *,
        limits: Limits,
        questions: QuestionFactory,
    ) -> None:
        """`questions` are shared with the server: a confirmation counts once, with or without a task."""
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._limits = limits
        self._questions = questions

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods that the extension adds."""
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return (
            MethodBinding("tasks/get", TaskParams, self._get, versions),
            MethodBinding("tasks/update", UpdateParams, self._update, versions),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, versions),
        )

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Answer a long-running tool with a task, unless it ends, or asks, within `answer_seconds`."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or declared_settings(ctx, IDENTIFIER) is None:
            return await call_next(ctx)
        principal = principal_of(ctx)
        command = self._task_command(params.name, principal)
        if command is None:
            return await call_next(ctx)
        client = TaskClient(ctx, self._questions.for_stateless_call(ctx, params))
        task = self._tasks.start(principal, partial(self._execute, command, params.arguments or {}, client))
        try:
            with anyio.move_on_after(self._tasks.limits.answer_seconds):
                await task.ended.wait()
            # `hand_out` refuses while the task ends with a question: the question is then the response to this request.
            if not task.ended.is_set() and not task.hand_out():
                await task.ended.wait()
        except anyio.get_cancelled_exc_class():
            self._tasks.forget(task)  # its id was never sent
            raise
        if task.answer is None:
            return {"resultType": "task", **escape_surrogates(self._status(task))}
        # Its result is the response, not a task: no `tasks/get` will come for it.
        self._tasks.forget(task)
        if task.answer.error is not None:
            raise MCPError(**task.answer.error)
        return dict(task.answer.result or {})

    def _task_command(self, name: str, principal: str) -> Command | None:
        """Return the command if a call of it may become a task."""
        try:
            command = self._catalog.command(name)
        except UnknownTool:
            return None
        return command if command.declaration.long_running and self._tasks.has_room(principal) else None

    async def _execute(
        self, command: Command, arguments: Mapping[str, Any], client: TaskClient, task: Task
    ) -> TaskAnswer:
        defaults = partial(run_defaults, command, self._limits)
        outcome = await self._dispatcher.dispatch(command, arguments, TaskCall(task, client), defaults=defaults)
        if isinstance(outcome.error, InputNeeded):
            return TaskAnswer(
                result=as_input_required(outcome.error).model_dump(by_alias=True, mode="json", exclude_none=True)
            )
        if isinstance(outcome.error, RequestError):
            refused = outcome.error
            error: dict[str, Any] = {"code": refused.code, "message": str(refused)}
            return TaskAnswer(error=error if refused.data is None else error | {"data": refused.data})
        return TaskAnswer(result=as_result(outcome).model_dump(by_alias=True, mode="json", exclude_none=True))

    async def _get(self, context: ServerRequestContext[Any], params: TaskParams) -> dict[str, Any]:
        task = self._resolve(context, params)
        status = self._status(task)
        if task.status == "input_required":
            status["inputRequests"] = task.requests
        elif task.answer is not None:
            status |= {"error": task.answer.error} if task.answer.result is None else {"result": task.answer.result}
        return dict(escape_surrogates(status))

    async def _update(self, context: ServerRequestContext[Any], params: UpdateParams) -> dict[str, Any]:
        task = self._resolve(context, params)
        try:
            task.respond(params.input_responses)
        except CoreError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from error
        return {}

    async def _cancel(self, context: ServerRequestContext[Any], params: TaskParams) -> dict[str, Any]:
        self._tasks.cancel(self._resolve(context, params))
        return {}

    def _resolve(self, context: ServerRequestContext[Any], params: TaskParams) -> Task:
        require_extension(context, IDENTIFIER)
        header = context.request.headers.get(NAME_HEADER) if context.request is not None else None
        # An intermediary may have routed by the header: it must not reach another task than the one it was let through
        # for.
        if header is not None and header.strip() != params.task_id:
            raise MCPError(code=types.HEADER_MISMATCH, message=f"{NAME_HEADER}: names another task than the request")
        try:
            return self._tasks.get(params.task_id, principal_of(context))
        except CoreError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from error

    def _status(self, task: Task) -> dict[str, Any]:
        limits = self._tasks.limits
        message = {"statusMessage": task.message} if task.message else {}
        return {
            "taskId": task.id,
            "status": task.status,
            **message,
            "createdAt": task.created,
            "lastUpdatedAt": task.updated,
            "ttlMs": math.ceil(limits.ttl_seconds * 1000),
            "pollIntervalMs": math.ceil(limits.poll_seconds * 1000),
        }


def run_defaults(command: Command, limits: Limits, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return defaults for omitted arguments that make `run_command` start a run while its task is working.

    Its output is then in the store of runs, where every call can read it. A command with input is unchanged, because
    the input of a run would stay open.
    """
    is_plain = (command.tool_set, command.name) == ("commands", "run_command")
    if not is_plain or any(arguments.get(name) for name in ("stdin", "terminal")) or "wait_seconds" in arguments:
        return {}
    seconds = max(1, math.floor(limits.run_seconds_most * RUN_TIMEOUT_SHARE))
    return {"timeout_seconds": seconds, "wait_seconds": limits.run_seconds_most}
