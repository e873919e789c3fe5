"""What changed, told to the listeners of a role on every replica, over one channel of Redis.

Listeners of the replica where something changed are told at once and by itself, so each is told exactly once, whether
Redis is there or not. What the others were told while this replica was away from the channel is unknown: then its
listeners are told that every list changed, because a client that asks once more for nothing loses a millisecond, and
one that is never told works with a list that is wrong. A publisher that could not reach Redis makes up for it later in
the same way. Updates of single resources that are lost so are not made up for: each replica watches by itself what its
own clients look at.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from coretools.errors import Unreachable
from coretools.serving.web.shared.redis_engine import Engine

QUIET_SECONDS = 5.0
"""Without a word for so long, Redis is asked whether it is there."""

AGAIN_SECONDS = 0.5
"""Between two attempts to reach the channel."""

EVERYTHING = "everything"
"""Said where it is not known any more which lists changed."""

_LISTS: dict[str, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "resources": ResourcesListChanged,
    "prompts": PromptsListChanged,
}

logger = logging.getLogger(__name__)


class Channel:
    """The buses of all roles of one replica, and the channel between the replicas."""

    def __init__(self, engine: Engine, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._engine = engine
        self._own = secrets.token_hex(8)
        """How this replica signs, to tell what it said itself."""
        self._quiet_seconds = quiet_seconds
        self._name = engine.key("changes")
        self._buses: dict[str, RedisBus] = {}
        self._owed: set[str] = set()
        """Roles of which the other replicas were not told something."""
        self.is_open = asyncio.Event()
        """Set while what the others say is heard."""
        self.is_over = False
        """Set before `hear` is cancelled: a redis-py that is just connecting swallows that."""

    def bus(self, role: str) -> "RedisBus":
        """The bus of one role."""
        return self._buses.setdefault(role, RedisBus(self, role))

    async def tell(self, role: str, event: ServerEvent) -> None:
        """Tell the other replicas; later that everything changed, when it can't be done now."""
        if not await self._sent(role, *_written(event)):
            self._owed.add(role)

    async def make_up(self) -> None:
        """Tell what is owed."""
        for role in tuple(self._owed):
            if await self._sent(role, EVERYTHING, ""):
                self._owed.discard(role)

    async def hear(self) -> None:
        """Pass on what other replicas say, until cancelled."""
        was_away = False
        while not self.is_over:
            pubsub = self._engine.client.pubsub()
            try:
                await pubsub.subscribe(self._name)
                await self._hear(pubsub, was_away=was_away)
            except (RedisError, OSError, TimeoutError, Unreachable) as error:
                logger.warning("what changes on other replicas is not heard now: %s", type(error).__name__)
            finally:
                self.is_open.clear()
                await _closed(pubsub)
            was_away = True
            if not self.is_over:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _hear(self, pubsub: PubSub, *, was_away: bool) -> None:
        is_asked = False
        while not self.is_over:
            message: dict[str, Any] | None = await pubsub.get_message(timeout=self._quiet_seconds)
            if message is None:
                if is_asked:
                    raise Unreachable("no word from Redis")
                # A connection whose other end is gone without a word is quiet as well.
                await pubsub.ping()
                is_asked = True
                continue
            is_asked = False
            if message["type"] == "subscribe":
                self.is_open.set()
                if was_away:
                    await self._everything(self._buses.values())
            elif message["type"] == "message":
                await self._pass_on(message["data"])

    async def _pass_on(self, data: bytes) -> None:
        try:
            said = json.loads(data)
            sender, role, kind, uri = (str(said[name]) for name in ("from", "role", "kind", "uri"))
        except (ValueError, KeyError, TypeError):
            logger.warning("something on the channel of replicas is none of theirs")
            return
        bus = self._buses.get(role)
        if bus is None or sender == self._own:
            return
        if kind == EVERYTHING:
            await self._everything([bus])
        elif kind in _LISTS:
            await bus.here.publish(_LISTS[kind]())
        else:
            await bus.here.publish(ResourceUpdated(uri=uri))

    async def _everything(self, buses: "Iterable[RedisBus]") -> None:
        for bus in tuple(buses):
            for made in _LISTS.values():
                await bus.here.publish(made())

    async def _sent(self, role: str, kind: str, uri: str) -> bool:
        try:
            text = json.dumps({"from": self._own, "role": role, "kind": kind, "uri": uri})
            await self._engine.ask("PUBLISH", self._name, text)
        except Unreachable:
            return False
        return True


class RedisBus:
    """Tells the listeners of one role, on every replica, what changed."""

    def __init__(self, channel: Channel, role: str) -> None:
        self.here = InMemorySubscriptionBus()
        """The listeners of this replica."""
        self._channel = channel
        self._role = role

    async def publish(self, event: ServerEvent) -> None:
        """Tell every listener; those on other replicas later, when they can't be told now."""
        await self.here.publish(event)
        await self._channel.tell(self._role, event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Tell this listener from now on, until the result is called."""
        return self.here.subscribe(listener)


async def _closed(pubsub: Any) -> None:
    try:
        await pubsub.aclose()
    except (RedisError, OSError, TimeoutError) as error:
        logger.debug("redis: %s", type(error).__name__)


def _written(event: ServerEvent) -> tuple[str, str]:
    if isinstance(event, ResourceUpdated):
        return "resource", event.uri
    return next(kind for kind, made in _LISTS.items() if made is type(event)), ""
