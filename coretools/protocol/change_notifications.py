"""Who is told of what changes: lists and resources, in both eras (docs/specs/notifications.md).

Runs as long as the server has a connection: the server's lifespan starts and ends it, so every transport has it.
Handshake connections are told through `sessions`, the others through their `subscriptions/listen`, which is the SDK's.
A resource is watched once, however many look on, and no longer than somebody does.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    SubscriptionBus,
    ToolsListChanged,
)

from coretools.errors import CoreError
from coretools.operations.declare import Surface
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog, Unsubscribe
from coretools.process.jobs.job_table import Job
from coretools.protocol.call_adapter import principal_of
from coretools.protocol.handshake import Handshakes
from coretools.protocol.resources import RunResources, found, no_resource

MOST_SUBSCRIPTIONS = 64
"""Resources of one handshake session, or of one `subscriptions/listen`."""

MOST_LISTENERS = 256
"""`subscriptions/listen` open at once."""

TOLD_SECONDS = 1.0
"""Between two notifications of one resource, and between two looks at what has to be looked at."""

END_SECONDS = 1.0
"""Waited at the end for a look that is under way."""

_EVENTS: dict[Surface, type[ToolsListChanged | ResourcesListChanged | PromptsListChanged]] = {
    Surface.TOOL: ToolsListChanged,
    Surface.RESOURCE: ResourcesListChanged,
    Surface.PROMPT: PromptsListChanged,
}

logger = logging.getLogger(__name__)

Look = Callable[[], object]
"""Says which version a resource has now."""


@dataclass
class _Watched:
    """A resource that somebody wants to be told of: looked at, followed by a task, or one that tells of itself."""

    look: Look | None = None
    seen: object = None
    principal: str = ""
    """By whose rights it is looked at."""
    task: "asyncio.Task[None] | None" = None
    watchers: int = 0


class Changes:
    """What changes in one server, and the requests of the protocol to be told of it."""

    def __init__(
        self,
        catalog: LiveCatalog,
        dispatcher: Dispatcher,
        runs: RunResources | None,
        bus: SubscriptionBus | None = None,
    ) -> None:
        """`bus` is what several servers share; by default what changes is told in this one alone."""
        self.handshakes = Handshakes()
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._runs = runs
        self._bus: SubscriptionBus = bus or InMemorySubscriptionBus()
        self._listener = ListenHandler(self._bus, max_subscriptions=MOST_LISTENERS)
        self._watched: dict[str, _Watched] = {}
        self._users = 0
        self._stops: list[Unsubscribe] = []
        # Tasks of asyncio and not of a group: they outlive the connection that happened to be the first.
        self._tasks: set[asyncio.Task[None]] = set()
        self._poll: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self, _: object) -> AsyncIterator[None]:
        """Follow the catalog while anybody is connected."""
        self._users += 1
        if self._users == 1:
            self._start()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                await self._stop()

    async def listen(
        self, context: ServerRequestContext[Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell one client of what it asked for until it goes. Resources that it can't have are not acknowledged.

        Raises:
            MCPError: too many resources.
        """
        wanted = dict.fromkeys(params.notifications.resource_subscriptions or ())
        if len(wanted) > MOST_SUBSCRIPTIONS:
            raise _too_many()
        principal = principal_of(context)
        with ExitStack() as watched:
            for uri in tuple(wanted):
                try:
                    watched.callback(await self._watch(uri, principal))
                except MCPError:
                    del wanted[uri]
            kept = params.notifications.model_copy(update={"resource_subscriptions": list(wanted) or None})
            return await self._listener(context, params.model_copy(update={"notifications": kept}))

    async def subscribe(
        self, context: ServerRequestContext[Any], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Tell a handshake session of one resource.

        Raises:
            MCPError: no such resource, too many of them, or a connection that can't be told anything.
        """
        known = self.handshakes.of(context)
        if known is None:
            said = "this connection keeps no session, so it can't be told of changes"
            raise MCPError(code=types.INVALID_REQUEST, message=said)
        release = await self._watch(params.uri, principal_of(context))
        if known.is_followed and len(known.watched) < MOST_SUBSCRIPTIONS:
            known.watched.setdefault(params.uri, release)
        if known.watched.get(params.uri) is not release:
            release()
        if not known.is_followed:
            raise MCPError(code=types.INVALID_REQUEST, message="subscriptions begin after notifications/initialized")
        if params.uri not in known.watched:
            raise _too_many()
        return types.EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Tell a handshake session no more of one resource; of one that it was not told of neither."""
        known = self.handshakes.of(context)
        if known is not None and (release := known.watched.pop(params.uri, None)) is not None:
            release()
        return types.EmptyResult()

    async def set_level(
        self, context: ServerRequestContext[Any], params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        """Send a handshake session the messages from this level on."""
        known = self.handshakes.of(context)
        if known is not None:
            known.level = params.level
        return types.EmptyResult()

    def close(self) -> None:
        """Tell those who listen that nothing more comes: their requests are answered."""
        self._listener.close()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()

        def told(uri: str) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda: self._begin(self._updated(uri)))

        self._stops = [
            self._catalog.on_change(self._lists_changed),
            self._catalog.on_announce(told),
            self._bus.subscribe(self._note),
        ]
        self._begin(self._catalog.follow())

    async def _stop(self) -> None:
        for stop in self._stops:
            stop()
        for task in self._tasks:
            task.cancel()
        self._poll = None
        # A look that is under way uses roots, which the server closes when this is over.
        with anyio.CancelScope(shield=True):
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=END_SECONDS)

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.error("changes are not told any more", exc_info=failure)

    async def _lists_changed(self, kinds: frozenset[Surface]) -> None:
        for kind in kinds:
            await self._bus.publish(_EVENTS[kind]())

    async def _updated(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri=uri))

    def _note(self, event: ServerEvent) -> None:
        """Tell the handshake connections of what anybody published; those who listen have the bus themselves."""
        if isinstance(event, ResourceUpdated):
            self.handshakes.note_update(event.uri)
        else:
            self.handshakes.note_lists(frozenset(kind for kind, made in _EVENTS.items() if isinstance(event, made)))

    async def _watch(self, uri: str, principal: str) -> Unsubscribe:
        """Watch a resource that this principal can have, until the result is called.

        Raises:
            MCPError: he can't.
        """
        if self._runs is not None and self._runs.is_one(uri):
            run = self._runs.run_at(uri, principal)
            return self._watching(uri, lambda: _Watched(task=self._begin(self._follow_run(uri, run))))
        look = self._look_at(uri, principal)
        seen = None if look is None else (await self._dispatcher.versions([look]))[0]
        if look is not None and seen is None:
            raise no_resource(uri)
        watching = self._watching(uri, lambda: _Watched(look, seen, principal))
        if look is not None and self._poll is None:
            self._poll = self._begin(self._look_again())
        return watching

    def _watching(self, uri: str, begin: Callable[[], _Watched]) -> Unsubscribe:
        watched = self._watched.get(uri)
        if watched is None:
            watched = self._watched[uri] = begin()
        watched.watchers += 1
        return lambda: self._release(uri, watched)

    def _release(self, uri: str, watched: _Watched) -> None:
        watched.watchers -= 1
        if watched.watchers:
            return
        if watched.task is not None:
            watched.task.cancel()
        del self._watched[uri]

    def _look_at(self, uri: str, principal: str) -> Look | None:
        """What says the version of a command's resource; None where nothing does.

        Raises:
            MCPError: there is no such resource.
        """
        at = found(self._catalog.for_principal(principal).resources.values(), uri)
        if at is None or not self._catalog.registry.contains(at[0]):
            raise no_resource(uri)
        command, written = at
        try:
            return command.version_of(command.arguments.from_text(written))
        except CoreError as error:
            raise no_resource(uri) from error

    def _look_now(self, uri: str, principal: str) -> Look:
        try:
            return self._look_at(uri, principal) or _gone
        except MCPError:
            return _gone

    async def _look_again(self) -> None:
        """Look at every resource that has to be looked at, one after the other, as long as there are any."""
        while looked := {uri: watched for uri, watched in self._watched.items() if watched.look is not None}:
            await self._catalog.sleep(TOLD_SECONDS)
            # Looked up each time: a reload may have put other commands, on other handles, in their place.
            looks = [self._look_now(uri, watched.principal) for uri, watched in looked.items()]
            versions = await self._dispatcher.versions(looks)
            for (uri, watched), version in zip(looked.items(), versions, strict=True):
                if version != watched.seen:
                    watched.seen = version
                    await self._updated(uri)
        self._poll = None

    async def _follow_run(self, uri: str, run: Job) -> None:
        """Tell of output, and of the end; what comes within a second is told once."""
        news, is_alive = run.news, run.is_alive
        while is_alive:
            await news.wait()
            news, is_alive = run.news, run.is_alive
            await self._updated(uri)
            await self._catalog.sleep(TOLD_SECONDS)


def _gone() -> None:
    """The version of a resource that is not there any more."""


def _too_many() -> MCPError:
    said = f"at most {MOST_SUBSCRIPTIONS} resources can be subscribed to at once; unsubscribe from others first"
    return MCPError(code=types.INVALID_PARAMS, message=said)
