"""The live catalog: replaced as a whole when the registry changes.

Changes of the registry are debounced. The new catalog is built aside; if it can't be built, the old one stays in force.
A removed command is refused from the moment it is removed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import anyio

from coretools.errors import CoreError, UnknownTool
from coretools.operations.catalog import Catalog, Selection, Surfaces, build_catalog
from coretools.operations.command import Command
from coretools.operations.declare import Surface
from coretools.operations.registry import Registry

DEBOUNCE_SECONDS = 0.1
"""Changes that follow each other within this time cause one notification."""

MAX_DEBOUNCES = 10
"""Debounce periods before a notification is sent even though changes continue."""

Sleep = Callable[[float], Awaitable[None]]
Listener = Callable[[frozenset[Surface]], Awaitable[None]]
"""Called with the lists that changed."""

Unsubscribe = Callable[[], None]

logger = logging.getLogger(__name__)


class _Subscription:
    """A subscription to a registry, which moves when the catalog adopts another registry."""

    def __init__(self, begin: Callable[[Registry], Unsubscribe], registry: Registry) -> None:
        self._begin = begin
        self.stop = begin(registry)

    def move(self, registry: Registry) -> None:
        """Subscribe to this registry instead."""
        self.stop()
        self.stop = self._begin(registry)


class LiveCatalog:
    """The current catalog of one registry. Used on the event loop; the registry may change in any thread."""

    def __init__(
        self,
        registry: Registry,
        selection: Selection,
        surfaces: Surfaces | None = None,
        *,
        is_same_for_all: bool = False,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        """Build the catalog. `sleep` waits between changes.

        Raises:
            BadSetting: two commands with one name, or an unknown profile.
        """
        self.registry = registry
        self.is_same_for_all = is_same_for_all
        """Whether all principals have the same lists, so that caches may share them."""
        self.selection = selection
        self.surfaces = surfaces or Surfaces()
        self.sleep = sleep
        """Waits between changes; replaceable in tests."""
        self.version = registry.version
        """That of the registry when the catalog was built."""
        self.current = self._build()
        """The catalog in force: what may be listed and called."""
        self._listeners: list[Listener] = []
        self._subscriptions: list[_Subscription] = []

    def command(self, name: str) -> Command:
        """The tool of this name.

        Raises:
            UnknownTool: not in the catalog, or removed.
        """
        return self.require_registered(self.current.get(name))

    def require_registered(self, command: Command) -> Command:
        """Return the command unless it was removed since the catalog was built.

        Raises:
            UnknownTool: it was removed.
        """
        if not self.registry.contains(command):
            raise UnknownTool(f"{command.name} is no longer available")
        return command

    def on_change(self, listener: Listener) -> Unsubscribe:
        """Call a function after every replacement. Call the result to unsubscribe."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_announce(self, listener: Callable[[str], None]) -> Unsubscribe:
        """Call a function with each announced URI, in the announcing thread. Call the result to unsubscribe."""
        return self._subscribed(lambda registry: registry.on_announce(listener))

    def adopt(self, other: "LiveCatalog") -> frozenset[Surface]:
        """Take over the registry, selection and surfaces of another live catalog in one step.

        Calls in progress continue with the commands they began with.

        Returns:
            The lists that changed; `notify` notifies the listeners.
        """
        before, self.current = self.current, other.current
        self.registry, self.version = other.registry, other.version
        self.selection, self.surfaces = other.selection, other.surfaces
        for subscription in self._subscriptions:
            subscription.move(self.registry)
        return _changed_lists(before, self.current)

    async def notify(self, kinds: frozenset[Surface]) -> None:
        """Notify the listeners that these lists changed."""
        if kinds:
            for listener in tuple(self._listeners):
                await listener(kinds)

    def _subscribed(self, begin: Callable[[Registry], Unsubscribe]) -> Unsubscribe:
        subscription = _Subscription(begin, self.registry)
        self._subscriptions.append(subscription)

        def stop() -> None:
            subscription.stop()
            self._subscriptions.remove(subscription)

        return stop

    async def follow(self) -> None:
        """Keep the catalog up to date, including changes made before this call; runs until it is cancelled."""
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        stop = self._subscribed(lambda registry: registry.on_change(wake))
        if self.version != self.registry.version:
            changed.set()
        try:
            while True:
                await changed.wait()
                # Several changes become one; bounded, so that a registry that never rests is followed too.
                for _ in range(MAX_DEBOUNCES):
                    changed.clear()
                    await self.sleep(DEBOUNCE_SECONDS)
                    if not changed.is_set():
                        break
                await self._replace()
        finally:
            stop()

    async def _replace(self) -> None:
        # Read before building: a change during it makes another round.
        registry, version = self.registry, self.registry.version
        # In its own task: an author's type may raise anything, which must not end `follow`.
        building = asyncio.get_running_loop().create_task(self._rebuild())
        await asyncio.wait({building})
        failure = building.exception()
        if failure is not None:
            trace = None if isinstance(failure, CoreError) else failure
            message = "the changed commands can't be served; the previous ones stay in force: %s"
            logger.warning(message, failure, exc_info=trace)
            return
        if self.registry is not registry:  # another registry was adopted meanwhile, with its own catalog
            return
        before, self.current = self.current, building.result()
        self.version = version
        await self.notify(_changed_lists(before, self.current))

    async def _rebuild(self) -> Catalog:
        catalog = self._build()
        known = set(map(id, self.current.commands))
        for command in catalog.commands:
            if id(command) not in known:
                command.validate()
        return catalog

    def _build(self) -> Catalog:
        return build_catalog(self.registry, self.selection, self.surfaces, contexts=self.registry.contexts)


def _changed_lists(before: Catalog, after: Catalog) -> frozenset[Surface]:
    lists = {
        Surface.TOOL: (before.tools, after.tools),
        Surface.RESOURCE: (before.resources, after.resources),
        Surface.PROMPT: (before.prompts, after.prompts),
    }
    return frozenset(kind for kind, (old, new) in lists.items() if list(old.items()) != list(new.items()))
