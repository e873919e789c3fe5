"""An application: who it is for clients, and what its commands share: services, and the values of its lifespan by type.

A lifespan is an async context manager. The return annotation states what it yields, and so which parameters are not
arguments: `AsyncGenerator[Database]` or, for several values, `AsyncGenerator[tuple[Database, Mailer]]`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from types import NoneType, TracebackType
from typing import Any, get_args, get_origin

from coretools.errors import BadSetting, CoreError, InternalFailure
from coretools.operations.annotations import RETURN, resolve_hints
from coretools.operations.declare import source_of
from coretools.operations.server_info import ServerInfo
from coretools.services.connect import open_services
from coretools.services.interface import Services


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    """The lifespan of an application that shares nothing."""
    yield


Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

START_SECONDS = 60.0
"""Longest start of a lifespan: an unreachable database must not keep a client waiting without a word."""

_NOT_RUNNING = "the lifespan is not running; the ASGI lifespan must be run"
_FORM = "declare -> AsyncGenerator[TYPE], or AsyncGenerator[tuple[TYPE, TYPE]] for several values"


class _Told(AbstractAsyncContextManager[object]):
    """A lifespan whose failure, in one of its tasks or while it closes, becomes an `InternalFailure` of one line."""

    def __init__(self, lifespan: AbstractAsyncContextManager[object], source: str) -> None:
        self._lifespan = lifespan
        self._source = source

    async def __aenter__(self) -> object:
        return await self._lifespan.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, ending: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return await self._lifespan.__aexit__(kind, ending, traceback)
        except (Exception, SystemExit) as error:
            if error is ending:
                raise
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
                cause = cause.exceptions[0]
            reason = f"{type(cause).__name__}: {cause}"
            what = "failed to close" if ending is None else "failed while it ran"
            raise InternalFailure(f"{self._source}: {what}: {reason}", reason=reason) from error


class Application:
    """What the commands of an application have in common: its description, its services and its lifespan."""

    def __init__(
        self,
        info: ServerInfo,
        *,
        services: Services | str | None = None,
        lifespan: Lifespan | None = None,
        own: Lifespan | None = None,
        adds_commands: bool = False,
        start_seconds: float = START_SECONDS,
    ) -> None:
        """`services`: None for those of the server; of a URL those that are opened while it runs.

        `start_seconds` is the longest start of a lifespan.
        `own` is a lifespan of what the application opens for itself only where its server has none to give.
        `adds_commands`: the commands are known once the lifespan has started.
        """
        self.adds_commands = adds_commands
        self.info = info
        self._given_services = services
        self._opened_services: Services | None = None
        self._lifespan = lifespan or _nothing
        self._own = own or _nothing
        self._start_seconds = start_seconds
        self._values: dict[Any, object] | None = None

    @property
    def has_services(self) -> bool:
        """Whether its commands get services of its own, not those of the server."""
        return self._given_services is not None

    @property
    def services(self) -> Services | None:
        """Its own services; None if it has none.

        Raises:
            LookupError: the lifespan is not running, which is a bug in the program that serves the commands.
        """
        if not isinstance(self._given_services, str):
            return self._given_services
        if self._opened_services is None:
            raise LookupError(f"{self._source}: {_NOT_RUNNING}")
        return self._opened_services

    @cached_property
    def types(self) -> tuple[Any, ...]:
        """The types of its values.

        Raises:
            BadSetting: a return annotation does not state them, or two have one type.
        """
        types = (*self.shared, *_types_of(self._own))
        if any(types.count(one) > 1 for one in types):
            raise BadSetting(f"{self._source}: commands take its values by type, so each needs its own; {_FORM}")
        return types

    @cached_property
    def shared(self) -> tuple[Any, ...]:
        """The types of what its lifespan yields, whatever its server has.

        Raises:
            BadSetting: the return annotation does not state them.
        """
        return _types_of(self._lifespan)

    def value(self, kind: Any) -> object:
        """The value of a type.

        Raises:
            LookupError: the lifespan is not running, which is a bug in the program that serves the commands.
        """
        if self._values is None:
            raise LookupError(f"{self._source}: {_NOT_RUNNING}")
        return self._values[kind]

    @asynccontextmanager
    async def running(self, *, is_alone: bool = True) -> AsyncIterator[None]:
        """Start the lifespan and close it at the end; while it runs already, do nothing.

        Not alone, its server gives what it would open for itself.

        Raises:
            BadSetting: it failed to start, took too long, or yielded something else than it declares.
            InternalFailure: it failed while it ran, or to close.
        """
        if self._values is not None:
            yield
            return
        async with AsyncExitStack() as stack:
            if isinstance(self._given_services, str):
                self._opened_services = await stack.enter_async_context(open_services(self._given_services))
            own = await self._start(self._own, stack) if is_alone else {}
            self._values = own | await self._start(self._lifespan, stack)
            try:
                yield
            finally:
                self._values = self._opened_services = None

    async def _start(self, lifespan: Lifespan, stack: AsyncExitStack) -> dict[Any, object]:
        types = _types_of(lifespan)
        try:
            # Not a cancel scope of anyio: a lifespan may enter a task group, which would have to end before the scope.
            async with asyncio.timeout(self._start_seconds):
                yielded = await stack.enter_async_context(_Told(lifespan(), self._source))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise BadSetting(f"{self._source}: failed to start: something it waits for was cancelled") from error
        except TimeoutError as error:
            raise BadSetting(f"{self._source}: did not start within {self._start_seconds:g} s") from error
        except CoreError:  # the author's own sentence
            raise
        except (Exception, SystemExit) as error:  # a database has exceptions of its own
            raise BadSetting(f"{self._source}: failed to start: {type(error).__name__}: {error}") from error
        values = yielded if len(types) > 1 else (yielded,) if types else ()
        if not isinstance(values, tuple) or len(values) != len(types):
            raise BadSetting(f"{self._source}: yielded {type(yielded).__name__}, but declares {len(types)} values")
        return dict(zip(types, values, strict=True))

    @property
    def _source(self) -> str:
        return source_of(_function(self._lifespan))


def _function(lifespan: Lifespan) -> Callable[..., Any]:
    return lifespan.func if isinstance(lifespan, partial) else lifespan


def _types_of(lifespan: Lifespan) -> tuple[Any, ...]:
    """The types of what a lifespan yields.

    Raises:
        BadSetting: the return annotation does not state them, or two have one type.
    """
    function = _function(lifespan)
    hint = resolve_hints(function).get(RETURN)
    if get_origin(hint) not in (AsyncIterator, AsyncGenerator):
        raise BadSetting(f"{source_of(function)}: the annotation of a lifespan states what it yields; {_FORM}")
    yielded = get_args(hint)[0]
    if yielded in (None, NoneType):
        return ()
    types = get_args(yielded) if get_origin(yielded) is tuple else (yielded,)
    if ... in types or any(types.count(one) > 1 for one in types):
        raise BadSetting(f"{source_of(function)}: commands take its values by type, so each needs its own; {_FORM}")
    return types
