"""Notify clients of changed lists and resources, in both protocol eras (docs/specs/notifications.md).

The server's lifespan starts and stops the notifications, so that they work on every transport. Handshake connections
are notified through `HandshakeConnections`, other clients through the SDK's handler of `subscriptions/listen`. A
resource is watched once, however many clients subscribe to it, and only while one of them does.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from coretools.protocol.call_adapter import principal_of
from coretools.protocol.handshake import HandshakeConnections
from coretools.protocol.resource_addresses import find_resource, no_resource

if TYPE_CHECKING:  # a program of an author runs no commands, and need not load what does
    from coretools.process.jobs.job import Job
    from coretools.protocol.resources import RunResources

MAX_SUBSCRIPTIONS = 64
"""Resources that one handshake session, or one `subscriptions/listen`, may subscribe to."""

MAX_LISTENERS = 256
"""`subscriptions/listen` requests open at once."""

NOTIFY_SECONDS = 1.0
"""Time between two notifications of one resource, and between two polls of resources that must be polled."""

END_SECONDS = 1.0
"""How long the end waits for a poll that is under way."""

_EVENTS: dict[Surface, type[ToolsListChanged | ResourcesListChanged | PromptsListChanged]] = {
    Surface.TOOL: ToolsListChanged,
    Surface.RESOURCE: ResourcesListChanged,
    Surface.PROMPT: PromptsListChanged,
}

logger = logging.getLogger(__name__)

ReadVersion = Callable[[], object]
"""Returns the current version of a resource."""


@dataclass
class _WatchedResource:
    """A resource with subscribers: polled, followed by a task, or announced by its own tool set."""

    read_version: ReadVersion | None = None
    version: object = None
    task: "asyncio.Task[None] | None" = None
    watchers: int = 0


class ChangeNotifications:
    """Change notifications of one server, and the handlers of the requests that subscribe to them."""

    def __init__(
        self,
        catalog: LiveCatalog,
        dispatcher: Dispatcher,
        runs: "RunResources | None",
        bus: SubscriptionBus | None = None,
        *,
        has_one_client: bool = False,
    ) -> None:
        """`bus` carries the notifications of several servers; by default they stay in this one."""
        self.handshakes = HandshakeConnections(has_one_client=has_one_client)
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._runs = runs
        self._bus: SubscriptionBus = bus or InMemorySubscriptionBus()
        self._listener = ListenHandler(self._bus, max_subscriptions=MAX_LISTENERS)
        self._resources: dict[str, _WatchedResource] = {}
        self._connections = 0
        self._stops: list[Unsubscribe] = []
        # asyncio tasks, not those of a task group: they outlive the connection that was the first.
        self._tasks: set[asyncio.Task[None]] = set()
        self._poller: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self, _: object) -> AsyncIterator[None]:
        """Follow the catalog while there is a connection."""
        self._connections += 1
        if self._connections == 1:
            self._start()
        try:
            yield
        finally:
            self._connections -= 1
            if not self._connections:
                await self._stop()

    async def listen(
        self, context: ServerRequestContext[Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve `subscriptions/listen` until the client ends it. Unavailable resources are not acknowledged.

        Raises:
            MCPError: too many resources.
        """
        wanted = dict.fromkeys(params.notifications.resource_subscriptions or ())
        if len(wanted) > MAX_SUBSCRIPTIONS:
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
        """Subscribe a handshake session to one resource.

        Raises:
            MCPError: no such resource, too many of them, or a connection that can't be notified.
        """
        connection = self.handshakes.of(context)
        if connection is None:
            message = "this connection has no session, so it can't be notified of changes"
            raise MCPError(code=types.INVALID_REQUEST, message=message)
        release = await self._watch(params.uri, principal_of(context))
        if connection.is_notified and len(connection.subscriptions) < MAX_SUBSCRIPTIONS:
            connection.subscriptions.setdefault(params.uri, release)
        # Not taken: subscribed already, or refused below.
        if connection.subscriptions.get(params.uri) is not release:
            release()
        if not connection.is_notified:
            raise MCPError(code=types.INVALID_REQUEST, message="subscriptions begin after notifications/initialized")
        if params.uri not in connection.subscriptions:
            raise _too_many()
        return types.EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Unsubscribe a handshake session from one resource; no error if it was not subscribed."""
        connection = self.handshakes.of(context)
        if connection is not None and (release := connection.subscriptions.pop(params.uri, None)) is not None:
            release()
        return types.EmptyResult()

    async def set_level(
        self, context: ServerRequestContext[Any], params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        """Set the least severe level of log messages for a handshake session."""
        connection = self.handshakes.of(context)
        if connection is not None:
            connection.level = params.level
        return types.EmptyResult()

    def close(self) -> None:
        """Answer every open `subscriptions/listen` request: no more notifications follow."""
        self._listener.close()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()

        def notify(uri: str) -> None:
            # Announced from any thread, even while the loop ends.
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda: self._start_task(self._updated(uri)))

        self._stops = [
            self._catalog.on_change(self._lists_changed),
            self._catalog.on_announce(notify),
            self._bus.subscribe(self._on_event),
        ]
        self._start_task(self._catalog.follow())

    async def _stop(self) -> None:
        for stop in self._stops:
            stop()
        for task in self._tasks:
            task.cancel()
        self._poller = None
        # A poll under way uses the roots, which the server closes after this.
        with anyio.CancelScope(shield=True):
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=END_SECONDS)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.error("change notifications stopped after an internal error", exc_info=failure)

    async def _lists_changed(self, kinds: frozenset[Surface]) -> None:
        for kind in kinds:
            await self._bus.publish(_EVENTS[kind]())

    async def _updated(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri=uri))

    def _on_event(self, event: ServerEvent) -> None:
        """Notify handshake connections of a published event; `subscriptions/listen` reads the bus itself."""
        if isinstance(event, ResourceUpdated):
            self.handshakes.resource_updated(event.uri)
        else:
            kinds = frozenset(kind for kind, event_type in _EVENTS.items() if isinstance(event, event_type))
            self.handshakes.lists_changed(kinds)

    async def _watch(self, uri: str, principal: str) -> Unsubscribe:
        """Watch a resource that this principal may read, until the returned function is called.

        Raises:
            MCPError: it may not.
        """
        if self._runs is not None and self._runs.is_one(uri):
            run = self._runs.run_at(uri, principal)
            return self._add_watcher(uri, lambda: _WatchedResource(task=self._start_task(self._follow_run(uri, run))))
        read_version = self._version_reader(uri)
        version = None if read_version is None else (await self._dispatcher.versions([read_version]))[0]
        # A resource that has versions, but none now, does not exist.
        if read_version is not None and version is None:
            raise no_resource(uri)
        watching = self._add_watcher(uri, lambda: _WatchedResource(read_version, version))
        if read_version is not None and self._poller is None:
            self._poller = self._start_task(self._poll_versions())
        return watching

    def _add_watcher(self, uri: str, begin: Callable[[], _WatchedResource]) -> Unsubscribe:
        # Only now: another request may have begun to watch it while this one read the version.
        watched = self._resources.get(uri)
        if watched is None:
            watched = self._resources[uri] = begin()
        watched.watchers += 1
        return lambda: self._release(uri, watched)

    def _release(self, uri: str, watched: _WatchedResource) -> None:
        watched.watchers -= 1
        if watched.watchers:
            return
        if watched.task is not None:
            watched.task.cancel()
        del self._resources[uri]

    def _version_reader(self, uri: str) -> ReadVersion | None:
        """Return the function that reads the version of a command's resource; None if it has none.

        Raises:
            MCPError: there is no such resource.
        """
        resource = find_resource(self._catalog.current.resources.values(), uri)
        if resource is None or not self._catalog.registry.contains(resource[0]):
            raise no_resource(uri)
        command, values = resource
        try:
            return command.version_of(command.arguments.from_text(values))
        except CoreError as error:
            raise no_resource(uri) from error

    def _current_reader(self, uri: str) -> ReadVersion:
        try:
            return self._version_reader(uri) or _no_version
        except MCPError:
            return _no_version

    async def _poll_versions(self) -> None:
        """Poll every resource that has a version, one after the other, as long as there are any."""
        while polled := {uri: watched for uri, watched in self._resources.items() if watched.read_version is not None}:
            await self._catalog.sleep(NOTIFY_SECONDS)
            # Looked up each time: a reload may have replaced the commands.
            readers = [self._current_reader(uri) for uri in polled]
            versions = await self._dispatcher.versions(readers)
            for (uri, watched), version in zip(polled.items(), versions, strict=True):
                if version != watched.version:
                    watched.version = version
                    await self._updated(uri)
        self._poller = None

    async def _follow_run(self, uri: str, run: "Job") -> None:
        """Notify of a run's output and of its end, at most once in `NOTIFY_SECONDS`."""
        news, is_alive = run.changed, run.is_alive
        while is_alive:
            await news.wait()
            # Taken before the notification is sent, so a change meanwhile is not missed.
            news, is_alive = run.changed, run.is_alive
            await self._updated(uri)
            await self._catalog.sleep(NOTIFY_SECONDS)


def _no_version() -> None:
    """The version of a resource that no longer exists."""


def _too_many() -> MCPError:
    message = f"at most {MAX_SUBSCRIPTIONS} resources can be subscribed to at once; unsubscribe from others first"
    return MCPError(code=types.INVALID_PARAMS, message=message)
