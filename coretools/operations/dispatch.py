"""Run one call, the same way for every surface: validate, run, build the outcome, and translate exceptions.

This is the only place that catches unexpected exceptions: it logs each once, with its traceback and a call id, and the
caller gets the id. Independent of any protocol.
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
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, Protocol

import anyio
import anyio.to_thread

from coretools.cancellation import check_cancelled
from coretools.config.call_context import CallContext, calling
from coretools.errors import CoreError, DeadlinePassed, InputNeeded, InternalFailure, TooLarge, Unsupported
from coretools.operations.annotations import first_sentence
from coretools.operations.blocking import watch_steps
from coretools.operations.call import Call, Principal, WouldBlock, require_confirmation, run_nonblocking
from coretools.operations.command import Command
from coretools.operations.completion import complete_parameter
from coretools.operations.content import Blocks, Content, Embedded, Message, Result, Text, joined_text
from coretools.operations.declare import Channel
from coretools.operations.return_type import json_text
from coretools.operations.session_state import SessionState
from coretools.questions.confirmation import call_confirmation
from coretools.services.interface import Services
from coretools.services.memory import MemoryServices

Defaults = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Values for arguments that the caller left out, by the arguments that are given."""

_PREFIX = secrets.token_hex(4)
_NUMBERS = itertools.count()

OCTETS = "application/octet-stream"
"""Media type of bytes without a declared one."""

_PLAIN = (str, int, bool, NoneType)
"""Types of facts that are certainly valid JSON; others are serialized as a check."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended: text for readers, `data` for programs if the tool is structured, or an error."""

    text: str
    content: tuple[Content, ...] = ()
    """Content other than text; empty when there is only text."""
    messages: tuple[Message, ...] = ()
    """The messages of a prompt; empty when there is only text."""
    data: dict[str, Any] | None = None
    facts: dict[str, object] = field(default_factory=dict)
    failed: bool = False
    error: CoreError | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ActiveCall:
    """A call in progress."""

    command: str
    principal: str
    address: str = ""
    """Network address of the caller; empty without a network."""
    id: str = field(default_factory=lambda: f"{_PREFIX}{next(_NUMBERS):04x}")
    """Its id in the log: a random prefix for the process, and a counter."""
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began


class CallObserver(Protocol):
    """Observes every call, for counting or logging. Must be quick and must not raise."""

    def began(self, call: ActiveCall) -> None:
        """Called when a call begins."""
        ...

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Called when a call ends; without an outcome it was cancelled."""
        ...


class LoggingObserver:
    """The default observer: one debug line for each call."""

    def began(self, call: ActiveCall) -> None:
        """Do nothing."""

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Log how it ended."""
        status = "cancelled" if outcome is None else outcome.error.kind if outcome.error else "ok"
        logger.debug("%s: %s in %.1f ms", call.command, status, 1000 * call.seconds)


class Dispatcher:
    """Runs commands. Plain functions run in its own worker threads, at most `threads` at once."""

    def __init__(self, *, threads: int, services: Services | None = None, observer: CallObserver | None = None) -> None:
        """`services` are shared by all commands, by default in memory. `observer` is notified of every call."""
        self._observer = observer or LoggingObserver()
        self._limiter = anyio.CapacityLimiter(threads)
        self._services = services or MemoryServices()
        self._under_way: set[object] = set()

    @property
    def under_way(self) -> frozenset[object]:
        """A marker for each call, completion and version check in progress."""
        return frozenset(self._under_way)

    async def dispatch(
        self, command: Command, given: Mapping[str, Any], call: Call, *, defaults: Defaults | None = None
    ) -> Outcome:
        """Run one command. Raises nothing but cancellation.

        `defaults` returns the surface's values for arguments that the caller left out; confirmations do not show them.
        """
        underway = ActiveCall(command=command.name, principal=call.principal, address=call.address)
        self._observer.began(underway)
        outcome = None
        try:
            context = CallContext(underway.id, call.principal, call.author)
            with self._marked(), calling(context):
                run = _within_deadline(command, self._run(command, given, defaults, call))
                outcome = _limited(command, await self._outcome(command, underway.id, run))
            if context.facts:
                outcome = replace(outcome, facts={**context.facts, **outcome.facts})
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

    async def _outcome(self, command: Command, call_id: str, run: Awaitable[object]) -> Outcome:
        failure = "failed inside the server"
        try:
            result = await run
            failure = "ran, but its result does not have the declared type and can't be sent"
            return _outcome_of(command, result)
        except CoreError as error:
            return _failed(error)
        except (Exception, SystemExit) as error:  # sys.exit() in a command ends its call, not the server
            expected = _expected_error(error)
            if expected is None:
                logger.exception("call %s: %s %s", call_id, command.name, failure)
                text = f"{command.name} {failure}; the server's log has the reason (call {call_id})"
                expected = InternalFailure(text, reason=f"{type(error).__name__}: {first_sentence(error)}")
            return _failed(expected)

    async def complete(self, command: Command, parameter: str, text: str, given: Mapping[str, str]) -> list[str]:
        """Values of a parameter that begin with `text`; none if the source fails. Unexpected errors are logged."""
        try:
            with self._marked():
                return await complete_parameter(command, parameter, text, given, limiter=self._limiter)
        except CoreError:
            return []
        except (Exception, SystemExit):
            logger.exception("%s: completing %s failed", command.name, parameter)
            return []

    async def versions(self, checks: Sequence[Callable[[], object]]) -> list[object]:
        """The versions of resources, read one after the other in one worker thread; None where reading fails."""
        with self._marked():
            return await anyio.to_thread.run_sync(
                lambda: [_read_version(check) for check in checks], limiter=self._limiter
            )

    async def _run(self, command: Command, given: Mapping[str, Any], defaults: Defaults | None, call: Call) -> object:
        given, answers = command.arguments.split_answers(given)
        # Under their own names from here on: neither a default nor the question to a person may miss one.
        given, arguments = command.arguments.accept_named(given)
        if defaults is not None:
            arguments = command.arguments.accept({**defaults(given), **given})
        # Which questions another server asks, only it knows.
        call.prefill(answers, None if command.declaration.is_foreign else command.declaration.asks)
        if command.declaration.needs_confirmation:
            await require_confirmation(call, call_confirmation(command.name, given))
        for name, kind in command.arguments.injected.items():
            arguments[name] = self._injected(command, kind, call)
        if command.is_async:
            work = command.function(**arguments)
            return await (work if command.application is None else watch_steps(work, command.name))
        # On the event loop first, which saves the change of threads; `WouldBlock` means that a thread is needed.
        if command.declaration.nonblocking:
            try:
                return run_nonblocking(command.function, arguments)
            except WouldBlock:
                pass
        plain = functools.partial(command.function, **arguments)
        # Not abandoned on cancellation: the thread notices it in check_cancelled() and leaves nothing half done.
        result = await anyio.to_thread.run_sync(plain, limiter=self._limiter)
        # A plain wrapper around an async function returns its coroutine.
        return await result if inspect.iscoroutine(result) else result

    def _injected(self, command: Command, kind: Any, call: Call) -> object:
        """The value of a parameter that is not an argument."""
        application = command.application
        if kind is Call:
            return call
        if kind is Services:
            own = None if application is None else application.services
            return self._services if own is None else own
        if kind is Principal:
            return call.principal
        if kind in (SessionState, SessionState | None):
            if call.state is None and kind is SessionState:
                raise Unsupported(
                    f"{command.name}: needs a session; stateless requests, tasks and single command lines have none; "
                    "its author can take SessionState | None, or keep values in Services by the name of the caller"
                )
            return call.state
        return call.channel if kind == Channel else command.value(kind)


def _within_deadline(command: Command, run: Awaitable[object]) -> Awaitable[object]:
    """The run of a command, which ends at its deadline if it declares one. Questions count."""
    seconds = command.declaration.deadline_seconds
    if seconds is None:
        return run

    async def limited() -> object:
        with anyio.move_on_after(seconds):
            return await run
        raise DeadlinePassed(f"{command.name}: did not finish within {seconds:g} s")

    return limited()


def _limited(command: Command, outcome: Outcome) -> Outcome:
    """The outcome, or an error in its place if it is longer than the command declares."""
    most = command.declaration.result_bytes
    if most is None:
        return outcome
    size = sum(map(_size, outcome.content or (Text(outcome.text),)))
    if size <= most:
        return outcome
    return _failed(TooLarge(f"{command.name} ran, but its result has {size:,} bytes, more than {most:,}; ask for less"))


def _size(content: Content) -> int:
    names = ("data", "content", "text", "uri")
    payload: str | bytes = next(getattr(content, name) for name in names if hasattr(content, name))
    return len(payload if isinstance(payload, bytes) else payload.encode("utf-8", "surrogatepass"))


def _read_version(check: Callable[[], object]) -> object:
    check_cancelled()
    try:
        return check()
    except CoreError:
        return None
    except (Exception, SystemExit):
        logger.exception("reading the version of a resource failed")
        return None


def _failed(error: CoreError) -> Outcome:
    return Outcome(text=str(error), facts=error.facts, error=error)


def _expected_error(error: BaseException) -> CoreError | None:
    """The expected error in an exception or in a group of expected errors; one that needs no input comes first."""
    if isinstance(error, CoreError):
        return error
    if not isinstance(error, ExceptionGroup):
        return None
    inner_errors = [_expected_error(inner) for inner in error.exceptions]
    expected = [inner for inner in inner_errors if inner is not None]
    # One unexpected exception makes the whole group a bug.
    if len(expected) < len(inner_errors):
        return None
    # An answer would not help a call in which something else failed.
    return next((inner for inner in expected if not isinstance(inner, InputNeeded)), expected[0])


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


def _result_outcome(result: Result, data: dict[str, Any] | None) -> Outcome:
    text, facts = result.text(), result.facts()
    if not isinstance(text, str):
        raise TypeError(f"{type(result).__qualname__}.text() returned {type(text).__name__}")
    if not all(type(fact) in _PLAIN for fact in facts.values()):
        # Raises for what is no JSON, here where it becomes the error of this call.
        json.dumps(facts, allow_nan=False)
    media = result.media()
    content: tuple[Content, ...] = (Text(text), *media) if media else ()
    shown = joined_text(content) if content else text
    return Outcome(text=shown, content=content, data=data, facts=facts, failed=result.failed)


def _content_outcome(command: Command, result: object) -> Outcome:
    if isinstance(result, Blocks):
        return Outcome(text=joined_text(result.blocks), content=result.blocks, data=result.data)
    parts = _content_parts(result, command.declaration.mime_type or OCTETS)
    if not parts:
        return Outcome(text="")
    if _all_are(parts, Message):
        return Outcome(text=joined_text([message.content for message in parts]), messages=parts)
    if _all_are(parts, Content):
        return Outcome(text=joined_text(parts), content=() if _all_are(parts, Text) else parts)
    raise TypeError(f"{command.source} returned {type(result).__name__}, not {command.return_type.text}")


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
