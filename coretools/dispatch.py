"""The way of one call, the same for every surface: find, check, run, shape, and translate what went wrong.

Here, and only here, an exception that we did not foresee is caught: it is logged once with its traceback and a call id,
and the caller gets the id. Knows nothing of any protocol.
"""

import functools
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread

from coretools.call import Call
from coretools.content import Content, Embedded, Message, Text, text_of
from coretools.errors import CoreError
from coretools.registry import Command
from coretools.result import Result

logger = logging.getLogger(__name__)


class InternalFailure(CoreError):
    """A bug of ours. The text of the exception stays in the server's log, under the call id."""

    kind = "internal"
    exit_code = 70  # EX_SOFTWARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended: text for a reader, `data` for a program where the tool is structured, or an error."""

    text: str
    content: tuple[Content, ...] = ()
    """What is more than text; empty when the text is all."""
    messages: tuple[Message, ...] = ()
    """What a prompt gave, when it was more than text."""
    data: dict[str, Any] | None = None
    facts: dict[str, object] = field(default_factory=dict)
    failed: bool = False
    error: CoreError | None = None


class Dispatcher:
    """Runs commands. File work goes to worker threads of its own, `threads` at once."""

    def __init__(self, *, threads: int) -> None:
        self._limiter = anyio.CapacityLimiter(threads)

    async def dispatch(self, command: Command, given: Mapping[str, Any], call: Call) -> Outcome:
        """Run one command. Never raises but for cancellation."""
        started = time.monotonic()
        try:
            outcome = _shaped(command, await self._run(command, given, call))
        except CoreError as error:
            outcome = Outcome(text=str(error), facts=error.facts, error=error)
        except Exception:
            call_id = uuid.uuid4().hex[:12]
            logger.exception("call %s: %s failed inside", call_id, command.name)
            failure = InternalFailure(
                f"{command.name} failed inside the server; its log has the reason (call {call_id})"
            )
            outcome = Outcome(text=str(failure), error=failure)
        logger.debug(
            "%s: %s in %.1f ms",
            command.name,
            outcome.error.kind if outcome.error else "ok",
            1000 * (time.monotonic() - started),
        )
        return outcome

    async def _run(self, command: Command, given: Mapping[str, Any], call: Call) -> object:
        given, answers = command.arguments.split(given)
        arguments = command.arguments.accept(given)
        if answers:
            call.prefill(answers)
        if command.arguments.call_parameter is not None:
            arguments[command.arguments.call_parameter] = call
        if command.is_async:
            return await command.function(**arguments)
        work = functools.partial(command.function, **arguments)
        # Not abandoned on cancel: the thread sees it through check_cancelled() and leaves nothing half done.
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


def _shaped(command: Command, result: object) -> Outcome:
    if isinstance(result, Result):
        data = result.model_dump(mode="json") if command.declaration.structured else None
        return Outcome(text=result.text(), data=data, facts=result.facts(), failed=result.failed)
    if isinstance(result, str):
        return Outcome(text=result)
    if isinstance(result, bytes):
        result = Embedded(uri="", content=result, mime_type=command.declaration.mime_type)
    return _of_parts(command, result)


def _of_parts(command: Command, result: object) -> Outcome:
    parts = tuple(result) if isinstance(result, list | tuple) else (result,)
    if _are(parts, Message):
        return Outcome(text=text_of([message.content for message in parts]), messages=parts)
    if _are(parts, Text):
        return Outcome(text=text_of(parts))
    if _are(parts, Content):
        return Outcome(text=text_of(parts), content=parts)
    raise TypeError(f"{command.source} returned {type(result).__name__}; a tool returns a Result, text or content")


def _are(parts: tuple[Any, ...], kind: Any) -> bool:
    return bool(parts) and all(isinstance(part, kind) for part in parts)
