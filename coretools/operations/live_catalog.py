"""The commands as they are served while they change: one whole offer for each selection, exchanged at once.

A change of the registry is looked at after a moment of quiet; the new offers are built aside, and one that can't be
built leaves the old ones in force. A removed command is refused from the moment it is removed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import anyio

from coretools.errors import CoreError, UnknownTool
from coretools.operations.catalog import Catalog, Selection, Surfaces, build_catalog
from coretools.operations.declare import Surface
from coretools.operations.registry import Command, Registry

DEBOUNCE_SECONDS = 0.1
"""Changes that follow each other within this time are told once."""

MAX_DEBOUNCES = 10
"""Of debouncing: commands that come and go without end are told of all the same."""

Sleep = Callable[[float], Awaitable[None]]
Listener = Callable[[frozenset[Surface]], Awaitable[None]]
"""Told which lists changed."""

Unsubscribe = Callable[[], None]

logger = logging.getLogger(__name__)


class _Subscription:
    """A notification of a registry, forwarded by the registry of the catalog that adopted it."""

    def __init__(self, begin: Callable[[Registry], Unsubscribe], registry: Registry) -> None:
        self._begin = begin
        self.stop = begin(registry)

    def move(self, registry: Registry) -> None:
        """Be told by this one from now on."""
        self.stop()
        self.stop = self._begin(registry)


class LiveCatalog:
    """Offers of one registry. Used on the event loop; the registry may change in any thread."""

    def __init__(
        self,
        registry: Registry,
        selection_of: Callable[[str], Selection],
        surfaces: Surfaces | None = None,
        *,
        is_same_for_all: bool = False,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        """`selection_of` says what a principal may have; `sleep` is how time passes."""
        self.registry = registry
        self.is_same_for_all = is_same_for_all
        """Whether the lists of one principal may be shown to another."""
        self.selection_of = selection_of
        self.surfaces = surfaces or Surfaces()
        self.sleep = sleep
        """How time passes, for whoever follows."""
        self._catalogs: dict[Selection, Catalog] = {}
        self._version = registry.version
        self._listeners: list[Listener] = []
        self._subscriptions: list[_Subscription] = []

    @property
    def catalogs(self) -> Mapping[Selection, Catalog]:
        """Those that were asked for."""
        return self._catalogs

    @property
    def version(self) -> int:
        """Of the registry, when the oldest of the offers was built."""
        return self._version

    def for_principal(self, principal: str) -> Catalog:
        """What this principal sees and may call.

        Raises:
            BadSetting: at the first use only: two commands of one name, or no such profile.
        """
        selection = self.selection_of(principal)
        found = self._catalogs.get(selection)
        if found is None:
            self._version = min(self._version, self.registry.version) if self._catalogs else self.registry.version
            found = self._catalogs[selection] = self._built(selection)
        return found

    def command(self, principal: str, name: str) -> Command:
        """The tool of this name, as long as it is there.

        Raises:
            UnknownTool: not offered, or taken away.
        """
        return self.require_registered(self.for_principal(principal).get(name))

    def require_registered(self, command: Command) -> Command:
        """The command, unless it was taken away since the offer was built.

        Raises:
            UnknownTool: it was.
        """
        if not self.registry.contains(command):
            raise UnknownTool(f"{command.name} is not there any more")
        return command

    def on_change(self, listener: Listener) -> Unsubscribe:
        """Have a function told of every exchange; the result ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_announce(self, listener: Callable[[str], None]) -> Unsubscribe:
        """Have a function called with each address that is announced, in that thread; the result ends that."""
        return self._subscribed(lambda registry: registry.on_announce(listener))

    def adopt(self, other: "LiveCatalog") -> frozenset[Surface]:
        """Serve what another catalog serves, from now on and in one step: its registry, selections and surfaces.

        Calls under way go on with the commands that they began with.

        Returns:
            The lists that changed; `notify` tells the listeners.
        """
        before, self._catalogs = self._catalogs, dict(other.catalogs)
        self.registry, self._version = other.registry, other.version
        self.selection_of, self.surfaces = other.selection_of, other.surfaces
        for subscription in self._subscriptions:
            subscription.move(self.registry)
        pairs = [(old, new) for old in before.values() for new in self._catalogs.values()]
        return frozenset(kind for kind in Surface for old, new in pairs if _lists_differ(kind, old, new))

    async def notify(self, kinds: frozenset[Surface]) -> None:
        """Tell those who listen that these lists changed."""
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
        """Keep the offers as the registry is, also where it changed before; runs until it is cancelled."""
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tell() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        stop = self._subscribed(lambda registry: registry.on_change(tell))
        if self._version != self.registry.version:
            changed.set()
        try:
            while True:
                await changed.wait()
                for _ in range(MAX_DEBOUNCES):
                    changed.clear()
                    await self.sleep(DEBOUNCE_SECONDS)
                    if not changed.is_set():
                        break
                await self._exchange()
        finally:
            stop()

    async def _exchange(self) -> None:
        registry, version = self.registry, self.registry.version
        # In a task of its own: a type of somebody else's may fail in any way, and must not end the following.
        building = asyncio.get_running_loop().create_task(self._rebuilt())
        await asyncio.wait({building})
        failure = building.exception()
        if failure is not None:
            trace = None if isinstance(failure, CoreError) else failure
            said = "the changed commands can't be served, the ones before are: %s"
            logger.warning(said, failure, exc_info=trace)
            return
        if self.registry is not registry:  # another one was adopted meanwhile, with offers of its own
            return
        built = building.result()
        self._version = version
        kinds = frozenset(
            kind for kind in Surface for one in built if _lists_differ(kind, self._catalogs[one], built[one])
        )
        self._catalogs |= built
        await self.notify(kinds)

    async def _rebuilt(self) -> dict[Selection, Catalog]:
        built = {selection: self._built(selection) for selection in self._catalogs}
        for selection, catalog in built.items():
            known = set(map(id, self._catalogs[selection].commands))
            for command in catalog.commands:
                if id(command) not in known:
                    command.validate()
        return built

    def _built(self, selection: Selection) -> Catalog:
        registry = self.registry
        return build_catalog(registry, selection, self.surfaces, contexts=registry.contexts)


def _lists_differ(kind: Surface, before: Catalog, after: Catalog) -> bool:
    lists = {Surface.TOOL: "tools", Surface.RESOURCE: "resources", Surface.PROMPT: "prompts"}
    return list(getattr(before, lists[kind]).items()) != list(getattr(after, lists[kind]).items())
