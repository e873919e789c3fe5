"""Requests to a mounted server: each on behalf of a call, which gets its progress and its questions.

A request runs in a task of its own. In the stateless era a call ends with a question and is repeated with the answer:
then the request goes on where it waits, so the server does nothing twice.
"""

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import httpx2
import mcp_types as types
from anyio.abc import TaskGroup
from mcp import Client, MCPError
from mcp.client import ClientRequestContext

from coretools.client.common.errors import ProtocolViolation
from coretools.client.common.failures import FAULTS, LOST, first_leaf
from coretools.client.upstream.forms import form_model
from coretools.errors import CoreError, Declined, InputNeeded, RequestRefused, Unreachable
from coretools.operations.call import Call
from coretools.questions.kinds import AskForm

T = TypeVar("T")

WAITING_SECONDS = 600.0
"""How long a request waits for the answer to a question of its server; as long as a client may take."""

MAX_WAITING = 100
"""Requests of one server that wait for an answer; more are ended."""

_LOST = (*LOST, OSError, httpx2.HTTPError)

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Question:
    """A question of the server, which waits for its answer."""

    form: AskForm[Any]
    answered: anyio.Event = field(default_factory=anyio.Event)
    result: types.ElicitResult | None = None


@dataclass(eq=False)
class Request:
    """A request to the server in progress. It outlives the call that began it if that is repeated with an answer."""

    call: Call
    """Who gets its progress and its questions."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    news: anyio.Event = field(default_factory=anyio.Event)
    """Set when it asks or has ended."""
    questions: list[_Question] = field(default_factory=list)
    is_done: bool = False
    result: Any = None
    failure: BaseException | None = None

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass progress on."""
        await self.call.progress(progress, total, message)


_REQUEST: ContextVar[Request] = ContextVar("coretools_mounted_request")
"""The request during which the server asked a question."""

Send = Callable[[Client, Request], Awaitable[T]]


class Requests:
    """The requests to one server that are in progress or wait for an answer."""

    def __init__(self, name: str, connection: Callable[[], Awaitable[Client]], lose: Callable[[], None]) -> None:
        """`connection` returns the present one; `lose` is called when a request found that it is lost."""
        self.tasks: TaskGroup | None = None
        """Runs the requests."""
        self._name = name
        self._connection = connection
        self._lose = lose
        self._requests: list[Request] = []
        self._waiting: dict[tuple[str, ...], Request] = {}
        """Requests whose call ended with a question, by the call that repeats it."""

    async def send(self, call: Call, send: Send[T], kind: str, name: str, arguments: Mapping[str, Any]) -> T:
        """Send a request of a call, or go on with the one that waits for the answer that this call brings.

        Raises:
            Unreachable: there is no connection. RequestRefused: the server's error. Errors of questions to the caller.
        """
        key = (call.principal, kind, name, json.dumps(arguments, sort_keys=True))
        request = self._waiting.pop(key, None) or await self._begin(call, send)
        request.call = call
        try:
            await self._answer_until_done(request)
        except InputNeeded:
            self._keep(key, request)
            raise
        except BaseException:
            request.scope.cancel()
            raise
        failure = request.failure
        if failure is None:
            result: T = request.result
            return result
        if isinstance(failure, MCPError) and failure.code != types.CONNECTION_CLOSED:
            raise RequestRefused(failure.message, code=failure.code, data=failure.data) from failure
        if not isinstance(failure, (*_LOST, MCPError)):
            raise ProtocolViolation(f"the server {self._name!r}: {failure}") from failure
        self._lose()
        raise Unreachable(f"the server {self._name!r} has ended, and is connected again: {failure}") from failure

    async def _begin(self, call: Call, send: Send[Any]) -> Request:
        client, tasks = await self._connection(), self.tasks
        assert tasks is not None  # set before there is a connection
        request = Request(call)

        async def run() -> None:
            _REQUEST.set(request)
            self._requests.append(request)
            try:
                with request.scope:
                    request.result = await send(client, request)
            except* FAULTS as group:
                request.failure = first_leaf(group)
            finally:
                self._requests.remove(request)
            request.is_done = True
            request.news.set()

        tasks.start_soon(run)
        return request

    async def _answer_until_done(self, request: Request) -> None:
        """Pass questions of a request on to its caller until it has ended.

        Raises:
            InputNeeded: the caller repeats the call with the answer. What `Call.ask` raises.
        """
        while not request.is_done:
            for question in list(request.questions):
                question.result = await _answer(request.call, question.form)
                question.answered.set()
                request.questions.remove(question)
            await request.news.wait()
            if not request.is_done:
                request.news = anyio.Event()

    def _keep(self, key: tuple[str, ...], request: Request) -> None:
        """Keep a request until its call is repeated, for as long as the client may take."""
        if len(self._waiting) >= MAX_WAITING or self.tasks is None:
            request.scope.cancel()
            return
        self._waiting[key] = request

        async def expire() -> None:
            await anyio.sleep(WAITING_SECONDS)
            if self._waiting.get(key) is request:
                del self._waiting[key]
                request.scope.cancel()

        self.tasks.start_soon(expire)

    async def asked(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Pass a question of the server on to the caller of the request that it belongs to."""
        del context
        # In the handshake era a question does not say whose it is.
        request = _REQUEST.get(self._requests[0] if len(self._requests) == 1 else None)
        if request is None or not isinstance(params, types.ElicitRequestFormParams):
            logger.warning("mounted server %s: a question was refused: it belongs to no single call", self._name)
            return types.ErrorData(code=types.INVALID_REQUEST, message="no single call that this belongs to")
        key = f"asked_{hashlib.sha256(params.message.encode()).hexdigest()[:8]}"
        try:
            question = _Question(AskForm(key=key, message=params.message, model=form_model(params.requested_schema)))
        except CoreError as error:
            return types.ErrorData(code=types.INVALID_PARAMS, message=str(error))
        request.questions.append(question)
        request.news.set()
        await question.answered.wait()
        assert question.result is not None  # set before
        return question.result


async def _answer(call: Call, form: AskForm[Any]) -> types.ElicitResult:
    """Ask the caller.

    Raises:
        What `Call.ask` raises, except that nobody agreed.
    """
    try:
        answer = await call.ask(form)
    except Declined:
        return types.ElicitResult(action="decline")
    return types.ElicitResult(action="accept", content=answer.model_dump(mode="json", exclude_none=True))
