"""The way of one call, the same for every surface: find, check, run, shape, and translate what went wrong.

Here, and only here, an exception that we did not foresee is caught: it is logged once with its traceback and a call id,
and the caller gets the id. Knows nothing of any protocol.
"""

import functools
import inspect
import itertools
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Protocol

import anyio
import anyio.to_thread

from coretools.cancellation import check_cancelled
from coretools.config.author import acting_as
from coretools.errors import CoreError, InputNeeded
from coretools.operations.call import Call, WouldBlock, require_confirmation, run_nonblocking
from coretools.operations.command import Command
from coretools.operations.completion import complete_parameter
from coretools.operations.content import Content, Embedded, Message, Result, Text, joined_text
from coretools.operations.memory_services import MemoryServices
from coretools.operations.return_type import json_text
from coretools.operations.services import Services
from coretools.questions.kinds import call_confirmation

NO_DEFAULTS: Mapping[str, Any] = {}

_PREFIX = secrets.token_hex(4)
_NUMBERS = itertools.count()

OCTETS = "application/octet-stream"
"""Type of bytes of which nothing is said."""

_PLAIN = (str, int, bool, NoneType)
"""Facts that JSON has in any case; others are tried."""

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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ActiveCall:
    """A call from its beginning to its end."""

    command: str
    principal: str
    address: str = ""
    """Where it came from; empty where it came over no network."""
    id: str = field(default_factory=lambda: f"{_PREFIX}{next(_NUMBERS):04x}")
    """What the log knows it by: another one in every process, and counted within it."""
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long it takes already."""
        return time.monotonic() - self.began


class CallObserver(Protocol):
    """Told of every call: counts it, logs it. Is quick, and raises nothing."""

    def began(self, call: ActiveCall) -> None:
        """A call begins."""
        ...

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """It is over; without an outcome it was cancelled."""
        ...


class LoggingObserver:
    """The watcher that there is by default: one line for each call, for who debugs."""

    def began(self, call: ActiveCall) -> None:
        """Nothing is said yet."""

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Say how it ended."""
        said = "cancelled" if outcome is None else outcome.error.kind if outcome.error else "ok"
        logger.debug("%s: %s in %.1f ms", call.command, said, 1000 * call.seconds)


class Dispatcher:
    """Runs commands. File work goes to worker threads of its own, `threads` at once."""

    def __init__(self, *, threads: int, services: Services | None = None, observer: CallObserver | None = None) -> None:
        """`services` is what commands share; by default in memory. `observer` is told of every call."""
        self._observer = observer or LoggingObserver()
        self._limiter = anyio.CapacityLimiter(threads)
        self._services = services or MemoryServices()
        self._under_way: set[object] = set()

    @property
    def under_way(self) -> frozenset[object]:
        """A mark for each call, completion and look that is not over."""
        return frozenset(self._under_way)

    async def dispatch(
        self, command: Command, given: Mapping[str, Any], call: Call, *, defaults: Mapping[str, Any] = NO_DEFAULTS
    ) -> Outcome:
        """Run one command. Never raises but for cancellation.

        `defaults` are the surface's own values for arguments that the caller left out; no question shows them.
        """
        underway = ActiveCall(command=command.name, principal=call.principal, address=call.address)
        self._observer.began(underway)
        outcome = None
        try:
            with self._marked():
                outcome = await self._outcome(command, call, underway.id, self._run(command, given, defaults, call))
        finally:
            self._observer.ended(underway, outcome)
        return outcome

    @contextmanager
    def _marked(self) -> Iterator[None]:
        mark = object()
        self._under_way.add(mark)
        try:
            yield
        finally:
            self._under_way.discard(mark)

    async def _outcome(self, command: Command, call: Call, call_id: str, run: Awaitable[object]) -> Outcome:
        what = "failed inside the server"
        try:
            with acting_as(call.author):
                result = await run
                what = "ran, but its result is not what it is declared to return and can't be sent"
                return _outcome_of(command, result)
        except CoreError as error:
            return _failed(error)
        except (Exception, SystemExit) as error:  # sys.exit() in a command ends its call, not the server of everybody
            foreseen = _expected_error(error)
            if foreseen is None:
                logger.exception("call %s: %s %s", call_id, command.name, what)
                foreseen = InternalFailure(f"{command.name} {what}; the server's log has the reason (call {call_id})")
            return _failed(foreseen)

    async def complete(self, command: Command, parameter: str, text: str, given: Mapping[str, str]) -> list[str]:
        """Values of a parameter that begin with `text`. A source that fails has none: nobody waits for its reason."""
        try:
            with self._marked():
                return await complete_parameter(command, parameter, text, given, limiter=self._limiter)
        except CoreError:
            return []
        except (Exception, SystemExit):
            logger.exception("%s: the completion of %s failed inside", command.name, parameter)
            return []

    async def versions(self, looks: Sequence[Callable[[], object]]) -> list[object]:
        """What each says of a resource, one after the other in one worker thread; None of what can't be had now."""
        with self._marked():
            return await anyio.to_thread.run_sync(
                lambda: [_read_version(look) for look in looks], limiter=self._limiter
            )

    async def _run(self, command: Command, given: Mapping[str, Any], defaults: Mapping[str, Any], call: Call) -> object:
        given, answers = command.arguments.split_answers(given)
        arguments = command.arguments.accept({**defaults, **given} if defaults else given)
        call.prefill(answers, command.declaration.asks)
        if command.declaration.needs_confirmation:
            await require_confirmation(call, call_confirmation(command.name, given))
        for name, kind in command.arguments.injected.items():
            arguments[name] = call if kind is Call else self._services
        if command.is_async:
            return await command.function(**arguments)
        if command.declaration.nonblocking:
            try:
                return run_nonblocking(command.function, arguments)
            except WouldBlock:
                pass
        work = functools.partial(command.function, **arguments)
        # Not abandoned on cancel: the thread sees it through check_cancelled() and leaves nothing half done.
        result = await anyio.to_thread.run_sync(work, limiter=self._limiter)
        # A plain wrapper around an async function gives its coroutine.
        return await result if inspect.iscoroutine(result) else result


def _read_version(look: Callable[[], object]) -> object:
    check_cancelled()
    try:
        return look()
    except CoreError:
        return None
    except (Exception, SystemExit):
        logger.exception("the version of a resource failed inside")
        return None


def _failed(error: CoreError) -> Outcome:
    return Outcome(text=str(error), facts=error.facts, error=error)


def _expected_error(error: BaseException) -> CoreError | None:
    """What a task group wrapped, if nothing else is in it: a failure before a question, whose answer would not help."""
    if isinstance(error, CoreError):
        return error
    if not isinstance(error, ExceptionGroup):
        return None
    found = [_expected_error(inner) for inner in error.exceptions]
    known = [inner for inner in found if inner is not None]
    if len(known) < len(found):
        return None
    return next((inner for inner in known if not isinstance(inner, InputNeeded)), known[0])


def _outcome_of(command: Command, result: object) -> Outcome:
    returns = command.return_type
    if returns.kind == "content":
        return _content_outcome(command, result)
    value = returns.value(result) if returns.kind == "json" or returns.is_structured else None
    data = returns.data(value) if returns.is_structured else None
    if isinstance(result, Result):
        return _result_outcome(result, data)
    if returns.kind == "json":
        return Outcome(text=json_text(value), data=data)
    return _content_outcome(command, result)


def _is_plain(fact: object) -> bool:
    return type(fact) in _PLAIN


def _result_outcome(result: Result, data: dict[str, Any] | None) -> Outcome:
    text, facts = result.text(), result.facts()
    if not isinstance(text, str):
        raise TypeError(f"{type(result).__qualname__}.text() gave {type(text).__name__}")
    if not all(map(_is_plain, facts.values())):
        json.dumps(facts, allow_nan=False)
    return Outcome(text=text, data=data, facts=facts, failed=result.failed)


def _content_outcome(command: Command, result: object) -> Outcome:
    parts = _content_parts(result, command.declaration.mime_type or OCTETS)
    if not parts:
        return Outcome(text="")
    if _all_are(parts, Message):
        return Outcome(text=joined_text([message.content for message in parts]), messages=parts)
    if _all_are(parts, Content):
        return Outcome(text=joined_text(parts), content=() if _all_are(parts, Text) else parts)
    raise TypeError(f"{command.source} returned {type(result).__name__}, no {command.return_type.text}")


def _content_parts(result: object, mime_type: str) -> tuple[Any, ...]:
    if isinstance(result, list | tuple):
        return tuple(result)
    if result is None:
        return ()
    if isinstance(result, bytes):
        return (Embedded(uri="", content=result, mime_type=mime_type),)
    return (Text(result) if isinstance(result, str) else result,)


def _all_are(parts: tuple[Any, ...], kind: Any) -> bool:
    return all(isinstance(part, kind) for part in parts)
