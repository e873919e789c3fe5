"""Values in NATS: a stream that keeps the last message of each subject, which is the value of a key.

A value is deleted as the message that it is, by its number, so nothing is left of it; a key-value bucket of JetStream
keeps a marker. A server of 2.9 expires only whole streams, so the time to live stands in a header: it is counted from
the time that NATS stored the message, by the clock of NATS. What has expired is removed when its room is needed.
"""

import logging
import math
from contextlib import suppress
from dataclasses import dataclass

import anyio
from nats.js.api import DeliverPolicy, DiscardPolicy, StreamConfig
from nats.js.errors import APIError, NotFoundError

from coretools.errors import TooLarge
from coretools.services.limits import ServiceLimits
from coretools.services.nats_connection import (
    FAILURES,
    NO_ROOM,
    TRY_SECONDS,
    WRONG_LAST_SEQUENCE,
    NatsClock,
    NatsConnection,
    token,
)

TTL = "Coretools-Ttl"
"""Header: seconds to live."""

EXPECTED = "Nats-Expected-Last-Subject-Sequence"

RECORD_BYTES = 30
"""What JetStream stores with a message: length, number, time, lengths of subject and headers, checksum."""

SEARCH_SECONDS = 60.0
"""A full store is searched for what other processes let expire at most so often: 10,000 keys take 2.6 s."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Stored:
    number: int
    """Of the message; 0 without one."""
    value: bytes | None
    """None if it has expired."""


class NatsValues:
    """`coretools.services.interface.Values` in NATS."""

    def __init__(self, connection: NatsConnection, limits: ServiceLimits, prefix: str) -> None:
        self._connection = connection
        self._limits = limits
        self._prefix = f"{prefix}.values."
        self._stream = f"{prefix}_values"
        self._clock_subject = f"{prefix}.clock"
        self.clock = NatsClock(connection, self._stream, self._clock_subject)
        self._ends: dict[int, float] = {}
        """Numbers of messages that expire, as far as this process knows, with the time of each."""
        self._searched_at = -math.inf

    def stream(self) -> StreamConfig:
        """The stream of the values and of the clock."""
        limits = self._limits
        return StreamConfig(
            name=self._stream,
            subjects=[f"{self._prefix}*", self._clock_subject],
            max_msgs_per_subject=1,
            max_msgs=limits.keys + 1,  # and the clock
            max_bytes=limits.kept_bytes + (limits.keys + 1) * (RECORD_BYTES + len(self._prefix)),
            discard=DiscardPolicy.NEW,
        )

    async def get(self, key: str) -> bytes | None:
        """The value of the key, or None."""
        return (await self._read(key)).value

    async def set(self, key: str, value: bytes, *, ttl_seconds: float | None = None) -> None:
        """Set the value of the key."""
        await self._write(key, value, ttl_seconds, {})

    async def delete(self, key: str) -> bool:
        """Delete the key. Returns whether it existed."""
        while (stored := await self._read(key)).number:
            if await self._connection.remove_message(self._stream, stored.number):
                return stored.value is not None
        return False

    async def compare_and_set(
        self, key: str, expected: bytes | None, value: bytes | None, *, ttl_seconds: float | None = None
    ) -> bool:
        """Set the value if the current one is as expected."""
        stored = await self._read(key)
        if stored.value != expected:
            return False
        if value is None:
            return not stored.number or await self._connection.remove_message(self._stream, stored.number)
        try:
            await self._write(key, value, ttl_seconds, {EXPECTED: str(stored.number)})
        except APIError as error:
            if error.err_code != WRONG_LAST_SEQUENCE:
                raise
            return False
        return True

    async def _read(self, key: str) -> _Stored:
        subject = self._prefix + token(key)
        try:
            self._limits.check(key, b"")
            message = await self._connection.ask(lambda js: js.get_last_msg(self._stream, subject), may_repeat=True)
        except (NotFoundError, TooLarge):
            return _Stored(0, None)
        assert message.seq is not None
        assert message.time is not None
        ttl = (message.headers or {}).get(TTL)
        has_expired = ttl and message.time.timestamp() + float(ttl) <= await self.clock.now()
        return _Stored(message.seq, None if has_expired else message.data or b"")

    async def _write(self, key: str, value: bytes, ttl_seconds: float | None, headers: dict[str, str]) -> None:
        self._limits.check(key, value)
        await self._connection.require_room(key, value)
        subject = self._prefix + token(key)
        if ttl_seconds is not None:
            headers = {**headers, TTL: repr(float(ttl_seconds))}
        for has_room in (False, True):
            try:
                stored = await self._connection.ask(
                    lambda js: js.publish(subject, bytes(value), headers=dict(headers) or None)
                )
            except APIError as error:
                if error.err_code not in NO_ROOM:
                    raise
                # Never evicted (api-23).
                if has_room or not await self._drop_expired():
                    raise self._limits.no_room_for_value(key) from None
            else:
                if ttl_seconds is not None:
                    await self._will_expire(stored.seq, ttl_seconds)
                return

    async def _will_expire(self, number: int, seconds: float) -> None:
        if len(self._ends) >= 2 * self._limits.keys:  # most have been replaced; a search finds the others
            self._ends.clear()
        self._ends[number] = await self.clock.now() + seconds

    async def _drop_expired(self) -> bool:
        """Remove what has expired. Returns whether there was something."""
        now = await self.clock.now()
        if await self._drop_known(now):
            return True
        if now < self._searched_at + SEARCH_SECONDS:
            return False
        self._ends, self._searched_at = await self._search(), now
        return await self._drop_known(now)

    async def _drop_known(self, now: float) -> bool:
        expired = [number for number, end in self._ends.items() if end <= now]
        for number in expired:
            del self._ends[number]
        return any([await self._connection.remove_message(self._stream, number) for number in expired])

    async def _search(self) -> dict[int, float]:
        """Find the messages that expire, without their values."""
        ends: dict[int, float] = {}
        subscription = await self._connection.ask(
            lambda js: js.subscribe(
                f"{self._prefix}*",
                stream=self._stream,
                ordered_consumer=True,
                headers_only=True,
                deliver_policy=DeliverPolicy.ALL,
            )
        )
        try:
            left = 1
            while left:
                message = await subscription.next_msg(TRY_SECONDS)
                left = message.metadata.num_pending
                if ttl := (message.headers or {}).get(TTL):
                    ends[message.metadata.sequence.stream] = message.metadata.timestamp.timestamp() + float(ttl)
        except FAILURES as error:
            logger.debug("nats: %s", type(error).__name__)  # the values are gone, or the connection
        finally:
            with anyio.CancelScope(shield=True), suppress(*FAILURES):
                await subscription.unsubscribe()
        return ends
