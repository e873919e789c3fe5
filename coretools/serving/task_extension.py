"""Long-running tools as tasks: the extension `io.modelcontextprotocol/tasks` (SEP-2663) of the revision 2026-07-28.

A client that declares it gets a handle for a call that is not through in a moment, asks for it with `tasks/get`,
answers its questions with `tasks/update` and ends it with `tasks/cancel`. What is asked before the handle goes out is
asked as of any call, by its result. Every other client is answered as ever.
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

from coretools.content import on_the_wire
from coretools.dispatch import NO_DEFAULTS, Dispatcher
from coretools.errors import CoreError, InputNeeded, RequestRefused, UnknownTool
from coretools.graph import Graph
from coretools.registry import Command
from coretools.serving.blocks import as_result
from coretools.serving.client_call import principal_of
from coretools.serving.extending import declared, require
from coretools.serving.rounds import Interviews, as_questions
from coretools.serving.task_call import Asker, TaskCall
from coretools.serving.tasks import Answer, Task, Tasks
from coretools.settings import Limits

IDENTIFIER = "io.modelcontextprotocol/tasks"

NAME_HEADER = "mcp-name"
"""Where a request comes by HTTP, it names the task there too, for what stands between (SEP-2663, "Routing Headers")."""

RUN_SHARE = 0.99
"""Part of the longest wait that a command gets as its deadline: so that it has ended when the wait is over."""


class TaskParams(types.RequestParams):
    """Of `tasks/get` and `tasks/cancel`."""

    model_config = ConfigDict(defer_build=True)  # a start does not wait for it

    task_id: str


class UpdateParams(TaskParams):
    """Of `tasks/update`."""

    input_responses: dict[str, Any] = Field(default_factory=dict)


class TaskExtension(Extension):
    """Tasks, for the clients that know them."""

    identifier = IDENTIFIER

    def __init__(
        self,
        graph: Graph,
        dispatcher: Dispatcher,
        tasks: Tasks,
        *,
        limits: Limits,
        interviews: Interviews,
    ) -> None:
        """`interviews` are those of the server itself: a confirmation counts once, whether it makes a task or not."""
        self._graph = graph
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._limits = limits
        self._interviews = interviews

    def methods(self) -> Sequence[MethodBinding]:
        """What is asked of a task."""
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return (
            MethodBinding("tasks/get", TaskParams, self._get, versions),
            MethodBinding("tasks/update", UpdateParams, self._update, versions),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, versions),
        )

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Answer a long-running tool with a task, unless it is through, or has a question, in a moment."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or declared(ctx, IDENTIFIER) is None:
            return await call_next(ctx)
        principal = principal_of(ctx)
        command = self._as_task(params.name, principal)
        if command is None:
            return await call_next(ctx)
        asker = Asker(ctx, self._interviews.in_rounds(ctx, params))
        task = self._tasks.start(principal, partial(self._carried, command, params.arguments or {}, asker))
        try:
            with anyio.move_on_after(self._tasks.limits.answer_seconds):
                await task.ended.wait()
            if not task.ended.is_set() and not task.give_out():
                await task.ended.wait()
        except anyio.get_cancelled_exc_class():
            self._tasks.forget(task)  # nobody knows its id
            raise
        if task.answer is None:
            return {"resultType": "task", **on_the_wire(self._standing(task))}
        self._tasks.forget(task)
        return _answered(task.answer)

    def _as_task(self, name: str, principal: str) -> Command | None:
        """The command, if a call of it may become a task."""
        try:
            command = self._graph.command(principal, name)
        except UnknownTool:
            return None
        return command if command.declaration.long_running and self._tasks.has_room(principal) else None

    async def _carried(self, command: Command, arguments: Mapping[str, Any], asker: Asker, task: Task) -> Answer:
        defaults = run_defaults(command, arguments, self._limits)
        outcome = await self._dispatcher.dispatch(command, arguments, TaskCall(task, asker), defaults=defaults)
        if isinstance(outcome.error, InputNeeded):
            return Answer(result=as_questions(outcome.error).model_dump(by_alias=True, mode="json", exclude_none=True))
        if isinstance(outcome.error, RequestRefused):
            refused = outcome.error
            said: dict[str, Any] = {"code": refused.code, "message": str(refused)}
            return Answer(error=said if refused.data is None else said | {"data": refused.data})
        return Answer(result=as_result(outcome).model_dump(by_alias=True, mode="json", exclude_none=True))

    async def _get(self, context: ServerRequestContext[Any], params: TaskParams) -> dict[str, Any]:
        task = self._found(context, params)
        standing = self._standing(task)
        if task.status == "input_required":
            standing["inputRequests"] = task.requests
        elif task.answer is not None:
            standing |= {"error": task.answer.error} if task.answer.result is None else {"result": task.answer.result}
        return dict(on_the_wire(standing))

    async def _update(self, context: ServerRequestContext[Any], params: UpdateParams) -> dict[str, Any]:
        task = self._found(context, params)
        try:
            task.respond(params.input_responses)
        except CoreError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from error
        return {}

    async def _cancel(self, context: ServerRequestContext[Any], params: TaskParams) -> dict[str, Any]:
        self._tasks.cancel(self._found(context, params))
        return {}

    def _found(self, context: ServerRequestContext[Any], params: TaskParams) -> Task:
        require(context, IDENTIFIER)
        header = context.request.headers.get(NAME_HEADER) if context.request is not None else None
        if header is not None and header.strip() != params.task_id:
            raise MCPError(code=types.HEADER_MISMATCH, message=f"{NAME_HEADER}: names another task than the request")
        try:
            return self._tasks.get(params.task_id, principal_of(context))
        except CoreError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from error

    def _standing(self, task: Task) -> dict[str, Any]:
        limits = self._tasks.limits
        said = {"statusMessage": task.message} if task.message else {}
        return {
            "taskId": task.id,
            "status": task.status,
            **said,
            "createdAt": task.created,
            "lastUpdatedAt": task.updated,
            "ttlMs": math.ceil(limits.ttl_seconds * 1000),
            "pollIntervalMs": math.ceil(limits.poll_seconds * 1000),
        }


def run_defaults(command: Command, arguments: Mapping[str, Any], limits: Limits) -> Mapping[str, Any]:
    """Values for what the caller left out, with which a command of `run_command` is a run while its task works.

    Its output is then in the store of runs, where every call can read it, and nowhere else. A command with an input
    stays as it is, for the input of a run would stay open.
    """
    is_plain = (command.tool_set, command.name) == ("commands", "run_command")
    if not is_plain or any(arguments.get(name) for name in ("stdin", "terminal")) or "wait_seconds" in arguments:
        return NO_DEFAULTS
    seconds = max(1, math.floor(limits.run_seconds_most * RUN_SHARE))
    return {"timeout_seconds": seconds, "wait_seconds": limits.run_seconds_most}


def _answered(answer: Answer) -> dict[str, Any]:
    if answer.error is not None:
        raise MCPError(**answer.error)
    return dict(answer.result or {})
