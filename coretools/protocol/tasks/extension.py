"""Long-running tools as tasks: the extension `io.modelcontextprotocol/tasks` (SEP-2663) of revision 2026-07-28.

A client that declares it gets a task for a call that does not end at once, polls it with `tasks/get`, answers its
questions with `tasks/update` and ends it with `tasks/cancel`. Questions that come before the client has the task are
the response to the request, as for any call, and later ones wait in the task (SEP-2663, "Task Creation"). Other clients
are answered without tasks.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from coretools.config.commit_author import Author
from coretools.config.settings import Limits
from coretools.errors import CoreError, InputNeeded, InvalidArguments, RequestError, UnknownTool
from coretools.operations.call import Capability, Channel, Level
from coretools.operations.command import Command
from coretools.operations.content import escape_surrogates
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.protocol.call_adapter import address_of, author_in, principal_of
from coretools.protocol.extensions import declared_settings, has_capability, require_extension
from coretools.protocol.live_questions import MAX_ATTEMPTS, answer_in, request_of
from coretools.protocol.results import as_result
from coretools.protocol.round_trip_questions import (
    AnswerOrChannel,
    QuestionFactory,
    RoundTripQuestions,
    as_input_required,
)
from coretools.protocol.tasks.store import InputRequest, Task, TaskAnswer, TaskStore
from coretools.questions.answer_resolution import AskChannel, ResolvedAnswer
from coretools.questions.kinds import Question

T = TypeVar("T")


@cache
def _responses() -> TypeAdapter[types.InputResponse]:
    """Return the adapter, built on first use to keep it out of the start-up time."""
    return TypeAdapter(types.InputResponse)


class TaskClient:
    """The client that started a task, as known after its request has ended."""

    def __init__(self, context: ServerRequestContext[Any], questions: RoundTripQuestions) -> None:
        """`questions` hold the answers that came with the request."""
        self.revision = context.protocol_version
        self.capabilities = context.session.client_capabilities
        self.author = author_in(context)
        self.address = address_of(context)
        self.questions = questions


class TaskCall:
    """The `Call` of a task. Progress becomes the task's message; questions never use a stream."""

    def __init__(self, task: Task, client: TaskClient) -> None:
        self._task = task
        self._client = client

    @property
    def principal(self) -> str:
        """The caller."""
        return self._task.principal

    @property
    def channel(self) -> Channel:
        """An MCP client."""
        return "mcp"

    @property
    def address(self) -> str:
        """Client address of the request that started the task."""
        return self._client.address

    @property
    def author(self) -> Author | None:
        """Author of the commits of the principal that started the task."""
        return self._client.author

    @property
    def session(self) -> str:
        """Empty: a task has no session."""
        return ""

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Keep these answers for the questions of this call."""
        self._client.questions.prefill(answers, asks)

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Set the status message of the task."""
        self._task.set_message(message or (f"{done:g}" if total is None else f"{done:g} of {total:g}"))

    async def log(self, level: Level, text: str) -> None:
        """Set the status message: the protocol has no log messages of tasks."""
        if level != "debug":
            self._task.set_message(text)

    def has_capability(self, capability: Capability) -> bool:
        """Whether the client declared a capability with its request."""
        return has_capability(self._client.capabilities, capability)

    async def close_stream(self) -> None:
        """Do nothing: a task has no stream."""

    async def ask(self, question: Question[T]) -> T:
        """Return the answer given in advance, or the client's answer to the task."""
        answer: T
        (answer,) = await self.ask_all(question)
        return answer

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Ask all questions at once; the task continues when each has its answer.

        Raises:
            InputNeeded: the client has no task yet; it repeats the call with the answers.
        """
        known = await self._client.questions.known(*questions)
        if all(isinstance(resolved, ResolvedAnswer) for resolved, _ in known):
            return tuple(resolved.answer for resolved, _ in known if isinstance(resolved, ResolvedAnswer))
        if self._task.claim_result():
            # The client has no task id yet: the questions are the result of its call, and it repeats the call with the
            # answers.
            raise self._client.questions.needed(questions, known)
        return await self._ask_in_task(questions, known)

    async def _ask_in_task(
        self, questions: Sequence[Question[Any]], known: Sequence[AnswerOrChannel]
    ) -> tuple[Any, ...]:
        asked: list[InputRequest | None] = []
        try:
            # All are requested before the first is awaited, so a client can show them together.
            for question, (channel, problem) in zip(questions, known, strict=True):
                asked.append(
                    None if isinstance(channel, ResolvedAnswer) else self._request_input(question, channel, problem)
                )
            return tuple(
                [
                    channel.answer
                    if isinstance(channel, ResolvedAnswer)
                    else await self._answer(question, channel, first)
                    for question, (channel, _), first in zip(questions, known, asked, strict=True)
                ]
            )
        finally:
            for one in asked:
                if one is not None:
                    self._task.withdraw(one)

    async def _answer(self, question: Question[Any], channel: AskChannel, first: InputRequest | None) -> Any:
        """Wait for the answer to a question; ask again if it is invalid."""
        asked, problem = first, ""
        for _ in range(MAX_ATTEMPTS):
            asked = asked or self._request_input(question, channel, problem)
            try:
                return question.accept(answer_in(question, channel, await asked.wait()))
            except InvalidArguments as error:
                problem = str(error)
            finally:
                self._task.withdraw(asked)
            asked = None
        raise question.fault(f"no answer in {MAX_ATTEMPTS} attempts; the last: {problem}")

    def _request_input(self, question: Question[Any], channel: AskChannel, problem: str = "") -> InputRequest:
        request = request_of(question, channel, problem=problem, revision=self._client.revision)
        request_json = request.model_dump(by_alias=True, mode="json", exclude_none=True)
        return self._task.request_input(
            question.key, request_json, lambda response: _parse_response(question, response)
        )


def _parse_response(question: Question[Any], response: Any) -> types.InputResponse:
    try:
        return _responses().validate_python(response, by_name=False)
    except ValidationError as error:
        raise InvalidArguments(f"inputResponses.{question.key}: no response to this request") from error


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
            command = self._catalog.command(principal, name)
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
        standing = self._status(task)
        if task.status == "input_required":
            standing["inputRequests"] = task.requests
        elif task.answer is not None:
            standing |= {"error": task.answer.error} if task.answer.result is None else {"result": task.answer.result}
        return dict(escape_surrogates(standing))

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
