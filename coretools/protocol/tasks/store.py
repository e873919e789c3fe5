"""Store of tasks: calls that continue without their request, each with an id and one principal, gone with the server.

The store counts tasks, expires and cancels them, and keeps their answers; what a task does is defined by its caller
(`coretools.protocol.tasks.extension`). Of the protocol it knows only the status values.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, Self

import anyio

from coretools.errors import NotFound, TooLarge
from coretools.replica_ids import LOCAL_IDS, ReplicaScopedIds

logger = logging.getLogger(__name__)

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]

MAX_SHOWN_ID = 80
"""Characters of an unknown id shown in an error."""

INTERNAL_ERROR = -32603
"""JSON-RPC 2.0, section 5.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """Limits of tasks. Sizes in bytes, times in seconds."""

    alive: int = 32
    """Running tasks of one principal; a further call is answered without a task."""
    kept: int = 256
    """All tasks of one principal, including ended ones."""
    result_bytes: int = 16 * 1024 * 1024
    """Results kept for one principal, as JSON."""
    ttl_seconds: float = 7_200.0
    """How long a task can be requested after its creation: twice the longest timeout of a run."""
    poll_seconds: float = 1.0
    """Poll interval suggested to clients."""
    answer_seconds: float = 0.5
    """A call that ends within this time is answered without a task: most do, and a poll would double their time."""
    end_seconds: float = 5.0
    """How long the shutdown waits for tasks; the runner ends their child processes."""


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """The response that the request would have had: a result or an error, as JSON."""

    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    """A JSON-RPC error."""


class InputRequest:
    """A request that the client must answer."""

    def __init__(self, key: str, request: Mapping[str, Any], parse: Callable[[Any], Any]) -> None:
        """`parse` converts a response, and raises `InvalidArguments` if it is invalid."""
        self.key = key
        self.request = request
        self._parse = parse
        self._response: Any = None
        self._has_response = anyio.Event()

    def set_response(self, response: Any) -> None:
        """Set the client's response.

        Raises:
            InvalidArguments: it is invalid.
        """
        self._response = self._parse(response)
        self._has_response.set()

    async def wait(self) -> Any:
        """Wait for the response."""
        await self._has_response.wait()
        return self._response


class Task:
    """One task. Only `TaskStore` creates and ends it."""

    def __init__(self, principal: str, ids: ReplicaScopedIds = LOCAL_IDS) -> None:
        # 128 bits: the id, with the principal's credentials, gives access to the result.
        self.id = ids.new_id("task", 16)
        self.principal = principal
        self.scope = anyio.CancelScope()
        self.created = self.updated = _now()
        self.message = ""
        self.answer: TaskAnswer | None = None
        self.kept_bytes = 0
        self.ended = anyio.Event()
        self._is_handed_out = False
        self._is_result_claimed = False
        self._pending: dict[str, InputRequest] = {}
        self._used_keys: set[str] = set()

    @property
    def status(self) -> Status:
        """The protocol's status of this task."""
        if not self.ended.is_set():
            return "input_required" if self._pending else "working"
        if self.answer is None:
            return "cancelled"
        return "completed" if self.answer.result is not None else "failed"

    @property
    def requests(self) -> dict[str, Mapping[str, Any]]:
        """The requests that the client has not answered."""
        return {key: request.request for key, request in self._pending.items()}

    @property
    def is_detached(self) -> bool:
        """Whether it runs without the call that started it."""
        return self._is_handed_out and not self.ended.is_set()

    def hand_out(self) -> bool:
        """Whether its id may be sent to the client; from then on its questions wait in the task.

        False: it is about to end with a question, which is the response to the request itself.
        """
        self._is_handed_out = not self._is_result_claimed
        return self._is_handed_out

    def claim_result(self) -> bool:
        """Whether a question can still be the response to the request: then the task's id is never sent."""
        self._is_result_claimed = not self._is_handed_out
        return self._is_result_claimed

    def set_message(self, message: str) -> None:
        """Set the status message; the last one counts."""
        if not self.ended.is_set():
            self.message = message
            self.updated = _now()

    def request_input(self, key: str, request: Mapping[str, Any], parse: Callable[[Any], Any]) -> InputRequest:
        """Ask the client, under a key that this task never used: clients recognize new requests by it."""
        pending = InputRequest(next(name for name in _numbered(key) if name not in self._used_keys), request, parse)
        self._used_keys.add(pending.key)
        self._pending[pending.key] = pending
        self.updated = _now()
        return pending

    def withdraw(self, request: InputRequest) -> None:
        """Withdraw a request."""
        if self._pending.pop(request.key, None) is not None:
            self.updated = _now()

    def respond(self, responses: Mapping[str, Any]) -> None:
        """Set the client's responses. Those to unknown or answered requests are ignored.

        Raises:
            InvalidArguments: a response is invalid; its request stays open.
        """
        for key, response in responses.items():
            request = self._pending.get(key)
            if request is not None:
                request.set_response(response)
                self.withdraw(request)

    def end(self, answer: TaskAnswer | None) -> None:
        """End the task; without an answer it counts as cancelled."""
        self._pending.clear()
        self.answer = answer
        self.message = _final_message(answer)
        self.updated = _now()
        self.ended.set()


TaskWork = Callable[[Task], Awaitable[TaskAnswer]]


class TaskStore:
    """All tasks of a server. An asynchronous context manager; close what starts child processes after it."""

    def __init__(self, limits: TaskLimits | None = None, ids: ReplicaScopedIds = LOCAL_IDS) -> None:
        self.limits = limits or TaskLimits()
        self._ids = ids
        self._tasks: dict[str, Task] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # asyncio tasks, not those of a task group: an error in one must not stop the server.
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop and remove all tasks."""
        for task in tuple(self._tasks.values()):
            self.forget(task)
        with anyio.CancelScope(shield=True):
            if self._running:
                await asyncio.wait(self._running, timeout=self.limits.end_seconds)
        # These did not end within the time although their scope was cancelled above.
        for running in self._running:
            running.cancel()

    @property
    def count(self) -> int:
        """Number of tasks."""
        return len(self._tasks)

    @property
    def principals(self) -> set[str]:
        """Principals with tasks that run without a call."""
        return {task.principal for task in self._tasks.values() if task.is_detached}

    def end_for_principal(self, principal: str) -> int:
        """Stop and remove the detached tasks of a principal without access; return how many there were."""
        detached = [task for task in self._of(principal) if task.is_detached]
        for task in detached:
            self.forget(task)
        return len(detached)

    def has_room(self, principal: str) -> bool:
        """Whether the principal may have one more."""
        mine = self._of(principal)
        alive = sum(not task.ended.is_set() for task in mine)
        return alive < self.limits.alive and len(mine) < self.limits.kept

    def start(self, principal: str, work: TaskWork) -> Task:
        """Start a task. It can be requested from now on."""
        task = Task(principal, self._ids)
        self._tasks[task.id] = task
        loop = asyncio.get_running_loop()
        self._timers[task.id] = loop.call_later(self.limits.ttl_seconds, self.forget, task)
        running = loop.create_task(self._run(task, work))
        self._running.add(running)
        running.add_done_callback(lambda done: self._on_done(task, done))
        return task

    def get(self, task_id: str, principal: str) -> Task:
        """A task of this principal.

        Raises:
            NotFound: no such task, or expired, or another principal's; the error is the same.
        """
        task = self._tasks.get(task_id)
        if task is None or task.principal != principal:
            message = self._ids.explain_foreign(task_id) or "no such task, or it has expired"
            raise NotFound(f"{task_id[:MAX_SHOWN_ID]!r}: {message}")
        return task

    def cancel(self, task: Task) -> None:
        """Cancel its work and everything that it started."""
        task.scope.cancel()

    def forget(self, task: Task) -> None:
        """Remove a task and stop its work."""
        self.cancel(task)
        self._tasks.pop(task.id, None)
        timer = self._timers.pop(task.id, None)
        if timer is not None:
            timer.cancel()

    async def _run(self, task: Task, work: TaskWork) -> None:
        answer = None
        try:
            with task.scope:
                answer = self._check_size(task, await work(task))
        finally:
            # After a cancellation too: whoever waits for the task goes on, and without an answer it counts as
            # cancelled.
            task.end(answer)

    def _check_size(self, task: Task, answer: TaskAnswer) -> TaskAnswer:
        size = len(json.dumps(answer.result)) if answer.result is not None else 0
        room = self.limits.result_bytes - sum(other.kept_bytes for other in self._of(task.principal))
        if size > room:
            message = TooLarge(f"the result has {size} bytes, and tasks may keep {room} more; ask for less of it")
            return TaskAnswer(error={"code": INTERNAL_ERROR, "message": str(message)})
        task.kept_bytes = size
        return answer

    def _on_done(self, task: Task, running: "asyncio.Task[None]") -> None:
        self._running.discard(running)
        if not running.cancelled() and (failure := running.exception()) is not None:
            # `_run` has ended the task without an answer; this replaces "cancelled" by the failure.
            message = f"{task.id} failed inside the server; its log has the reason"
            task.end(TaskAnswer(error={"code": INTERNAL_ERROR, "message": message}))
            logger.error("%s failed inside", task.id, exc_info=failure)

    def _of(self, principal: str) -> list[Task]:
        return [task for task in self._tasks.values() if task.principal == principal]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _final_message(answer: TaskAnswer | None) -> str:
    if answer is None:
        return "cancelled"
    return str(answer.error.get("message", "")) if answer.error is not None else ""


def _numbered(key: str) -> Iterator[str]:
    yield key
    number = 2
    while True:
        yield f"{key}-{number}"
        number += 1
