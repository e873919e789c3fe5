"""Notifications of changes for the listeners of a role on every replica, over one Redis channel.

The replica where something changed notifies its own listeners directly, so each is notified exactly once, with or
without Redis. After a gap in the subscription it is unknown what was missed, so all listeners are notified that every
list changed: a needless request costs a client a millisecond, a missing notification leaves a wrong list. A publisher
that could not reach Redis does the same later. Lost updates of single resources are not repeated: a replica watches the
resources of its clients.
"""

import json
import logging
import secrets
from collections.abc import Callable, Iterable

from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from coretools.errors import Unreachable
from coretools.services.redis_connection import RedisConnection
from coretools.services.redis_listener import QUIET_SECONDS, RedisListener

EVERYTHING = "everything"
"""Published if it is unknown which lists changed."""

_LISTS: dict[str, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "resources": ResourcesListChanged,
    "prompts": PromptsListChanged,
}

logger = logging.getLogger(__name__)


class Channel:
    """The buses of all roles of one replica, and the channel between the replicas."""

    def __init__(self, engine: RedisConnection, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._engine = engine
        self._own = secrets.token_hex(8)
        """Sender id of this replica, to skip its own messages."""
        self._name = engine.key("changes")
        self._buses: dict[str, RedisBus] = {}
        self._pending: set[str] = set()
        """Roles with notifications that could not be published."""
        self.listener = RedisListener(
            engine,
            (self._name,),
            self,
            what="notifications of other replicas",
            quiet_seconds=quiet_seconds,
        )

    def bus(self, role: str) -> "RedisBus":
        """Return the bus of one role."""
        return self._buses.setdefault(role, RedisBus(self, role))

    async def publish(self, role: str, event: ServerEvent) -> None:
        """Publish a change; if that fails, publish later that every list changed."""
        if not await self._send(role, *_written(event)):
            self._pending.add(role)

    async def publish_pending(self) -> None:
        """Publish pending notifications."""
        # A copy: `publish` may add a role while this waits for Redis.
        for role in tuple(self._pending):
            if await self._send(role, EVERYTHING, ""):
                self._pending.discard(role)

    async def opened(self, has_gap: bool) -> None:
        """After a gap it is unknown what changed."""
        if has_gap:
            await self._publish_everything(self._buses.values())

    def lost(self) -> None:
        """Nothing can be done until the subscription works again."""

    async def received(self, data: bytes) -> None:
        """Pass a message of another replica on."""
        try:
            sent = json.loads(data)
            sender, role, kind, uri = (str(sent[name]) for name in ("from", "role", "kind", "uri"))
        except (ValueError, KeyError, TypeError):
            logger.warning("a malformed message on the channel of the replicas is ignored")
            return
        bus = self._buses.get(role)
        if bus is None or sender == self._own:
            return
        if kind == EVERYTHING:
            await self._publish_everything([bus])
        elif kind in _LISTS:
            await bus.here.publish(_LISTS[kind]())
        else:
            await bus.here.publish(ResourceUpdated(uri=uri))

    async def _publish_everything(self, buses: "Iterable[RedisBus]") -> None:
        for bus in tuple(buses):
            for event_type in _LISTS.values():
                await bus.here.publish(event_type())

    async def _send(self, role: str, kind: str, uri: str) -> bool:
        try:
            text = json.dumps({"from": self._own, "role": role, "kind": kind, "uri": uri})
            await self._engine.ask("PUBLISH", self._name, text)
        except Unreachable:
            return False
        return True


class RedisBus:
    """Notifies the listeners of one role on every replica."""

    def __init__(self, channel: Channel, role: str) -> None:
        self.here = InMemorySubscriptionBus()
        """The listeners on this replica."""
        self._channel = channel
        self._role = role

    async def publish(self, event: ServerEvent) -> None:
        """Notify every listener; those on other replicas later if Redis can't be reached."""
        await self.here.publish(event)
        await self._channel.publish(self._role, event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Add a listener; the returned function removes it."""
        return self.here.subscribe(listener)


def _written(event: ServerEvent) -> tuple[str, str]:
    if isinstance(event, ResourceUpdated):
        return "resource", event.uri
    return next(kind for kind, event_type in _LISTS.items() if event_type is type(event)), ""
