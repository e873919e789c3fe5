"""Services in a NATS with JetStream that several processes share (docs/adr/0075)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio
from nats.js.api import StreamConfig
from nats.js.client import JetStreamContext
from nats.js.errors import APIError

from coretools.errors import BadSetting, Unreachable
from coretools.services.interface import QueueTotals
from coretools.services.limits import ServiceLimits
from coretools.services.nats_connection import NatsAddress, NatsConnection
from coretools.services.nats_queues import NatsQueues
from coretools.services.nats_topics import NatsTopics
from coretools.services.nats_values import NatsValues

PREFIX = "coretools"
"""Of subjects, and of the streams: `coretools_values`, `coretools_queues` and `coretools_dead`."""

NAME_BYTES = 1024
"""Longest name: a subject has up to three bytes for each of its bytes, and a line of the protocol at most 4,096."""

STREAM_DIFFERS = 10058
"""The error of a stream that exists with another configuration."""

logger = logging.getLogger(__name__)


class NatsServices:
    """`coretools.services.interface.ServiceEngine` in NATS."""

    def __init__(self, address: NatsAddress, limits: ServiceLimits, prefix: str) -> None:
        """Does not connect yet; `connection.run` does."""
        limits = replace(limits, name_bytes=min(limits.name_bytes, NAME_BYTES))
        self.connection = NatsConnection(address, self._prepare)
        self.values = NatsValues(self.connection, limits, prefix)
        self.topics = NatsTopics(self.connection, limits, prefix)
        self.queues = NatsQueues(self.connection, limits, self.values.clock, prefix)

    async def check(self) -> str:
        """Check that NATS answers, and say its version."""
        await self.connection.ask(lambda js: js.account_info(), may_repeat=True)
        version = (await self.connection.client()).connected_server_version
        return f"nats {version.major}.{version.minor}.{version.patch}"

    async def totals(self) -> QueueTotals:
        """The numbers of items in all queues."""
        return await self.queues.totals()

    async def _prepare(self, jetstream: JetStreamContext) -> None:
        for config in (self.values.stream(), *self.queues.streams()):
            await _ensure(jetstream, config)
        await self.queues.prepare(jetstream)
        await jetstream.publish(self.values.clock.subject)  # so that it has its place before the values


@asynccontextmanager
async def open_nats_services(
    url: str, limits: ServiceLimits | None = None, *, prefix: str = PREFIX
) -> AsyncIterator[NatsServices]:
    """Open the services in a NATS with JetStream. One that does not answer now is used as soon as it does.

    Raises:
        BadSetting: the URL can't be used.
    """
    services = NatsServices(NatsAddress.parse(url), limits or ServiceLimits(), prefix)
    task = asyncio.create_task(services.connection.run())
    try:
        with suppress(Unreachable):  # the connection has said why
            logger.info("services: %s", await services.check())
        yield services
    finally:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])


async def _ensure(jetstream: JetStreamContext, config: StreamConfig) -> None:
    """Create a stream, or give it limits that are as large as ours. Smaller ones would drop what it has."""
    try:
        await jetstream.add_stream(config)
    except APIError as error:
        if error.err_code != STREAM_DIFFERS:
            raise
        assert config.name is not None
        stored = (await jetstream.stream_info(config.name)).config
        for name in ("subjects", "retention", "discard", "max_msgs_per_subject"):
            ours, theirs = getattr(config, name), getattr(stored, name)
            if ours is not None and ours != theirs:
                raise BadSetting(f"the stream {config.name} exists, with {name} {theirs}; it must be {ours}") from None
        limits = {name: max(getattr(config, name), getattr(stored, name)) for name in ("max_msgs", "max_bytes")}
        if limits != {name: getattr(stored, name) for name in limits}:
            await jetstream.update_stream(stored, **limits)
