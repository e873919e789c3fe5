"""Work queues in NATS: a stream of all items, and a pull consumer for each queue.

A lease is a negative acknowledgement with a delay: JetStream delivers the item again when the delay is over, whoever
is killed meanwhile, unless it is acknowledged before. Its consumers have one lease time for all, which applies to an
item that is on its way to a worker. JetStream counts the deliveries, and delivers items again before new ones.

Who may end a lease is judged by the clock of NATS: an item has the end of its lease in its id.
"""

import asyncio
import hashlib
import json
import logging
import re
import uuid
from dataclasses import dataclass
from typing import Any

import anyio
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DiscardPolicy, RetentionPolicy, StreamConfig
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from coretools.errors import Busy
from coretools.services.interface import DEAD_SUFFIX, QueueCounts, QueueTotals, WorkItem, dead_letters
from coretools.services.limits import ServiceLimits
from coretools.services.nats_connection import FAILURES, NO_ROOM, TRY_SECONDS, NatsClock, NatsConnection, token
from coretools.services.nats_values import RECORD_BYTES

DELIVERY_SECONDS = 30.0
"""An item whose delivery to a worker was interrupted, so that its lease never began, is delivered again after this."""

PULL_SECONDS = 5.0
"""An idle getter asks again after this time."""

UNUSED_SECONDS = 7 * 86_400
"""JetStream forgets leases and attempts of a queue that nobody has used for so long; never its items."""

DUPLICATE_SECONDS = 120.0
"""An item that is put again within this time, because the first answer was lost, is the same item."""

GETTERS = 4_096
"""Getters that wait for one queue at once, in all processes."""

NO_ITEM = frozenset({"404", "408"})
"""Statuses of a request for an item that has ended without one."""

NANOSECONDS = 1_000_000_000

HEADER_BYTES = 64
"""The header with the id of an item, and its length."""

_REPLY = re.compile(
    r"\$JS\.ACK\.(?:[\w-]+\.[\w-]+\.)?(?P<stream>[\w-]+)\.(?P<consumer>[\w-]+)"
    r"\.\d+\.(?P<number>\d+)\.\d+\.(?P<stored>\d+)\.\d+(?:\.\w+)?"
)
"""The subject on which JetStream takes the answer to a delivery, of both its versions."""

_ID = re.compile(rf"(?P<end>\d+\.\d+) (?P<reply>{_REPLY.pattern})")
"""The id of an item: when its lease ends, and the subject for the answer."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the items of one queue are."""

    stream: str
    subject: str
    consumer: str


class NatsQueues:
    """`coretools.services.interface.Queues` in NATS."""

    def __init__(self, connection: NatsConnection, limits: ServiceLimits, clock: NatsClock, prefix: str) -> None:
        self._connection = connection
        self._limits = limits
        self._clock = clock
        self._prefix = prefix
        self._ends: dict[str, float] = {}
        """Leases of this process by the id of the item, with their end; 0 if it was ended before."""
        self._forget_at = 100
        """Number of leases at which those that are over are forgotten."""
        self._consumers: set[_Place] = set()
        """Consumers that this process has found or created on this connection."""

    def streams(self) -> list[StreamConfig]:
        """The streams of items and of dead letters. Each has the limits: a dead letter needs room before it moves."""
        limits = self._limits
        return [
            StreamConfig(
                name=f"{self._prefix}_{kind}",
                subjects=[f"{self._prefix}.{kind}.*"],
                retention=RetentionPolicy.WORK_QUEUE,
                max_msgs=limits.work_items,
                max_bytes=limits.kept_bytes + limits.work_items * (RECORD_BYTES + HEADER_BYTES),
                discard=DiscardPolicy.NEW,
                duplicate_window=DUPLICATE_SECONDS,
            )
            for kind in ("queues", "dead")
        ]

    async def put(self, queue: str, data: bytes) -> None:
        """Add an item at the end of the queue."""
        self._limits.check(queue, data)
        await self._add(queue, bytes(data), uuid.uuid4().hex)

    async def get(self, queue: str, *, lease_seconds: float = 60.0) -> WorkItem:
        """Lease the first item, waiting for one if the queue is empty."""
        self._limits.check(queue.removesuffix(DEAD_SUFFIX), b"")
        while True:
            message = await self._pull(self._place(queue))
            try:
                item = await self._leased(queue, message, lease_seconds)
            except BaseException:
                # It was delivered, and nobody will have it.
                with anyio.CancelScope(shield=True):
                    await self._give_back(message)
                raise
            if item is not None:
                return item

    async def acknowledge(self, item: WorkItem) -> bool:
        """Mark an item as done."""
        reply = self._reply(item, await self._clock.now())
        if reply is None:
            return False
        self._ends[item.id] = 0.0
        return await self._remove(reply)

    async def release(self, item: WorkItem) -> bool:
        """Return an item to the front of the queue."""
        if not self._is_dead(item.queue) and item.attempt >= self._limits.attempts:
            return await self.reject(item)
        reply = self._reply(item, await self._clock.now())
        if reply is None:
            return False
        await self._answer(reply, b"-NAK")
        self._ends[item.id] = 0.0
        return True

    async def extend(self, item: WorkItem, *, lease_seconds: float = 60.0) -> bool:
        """Let the lease end so many seconds from now."""
        now = await self._clock.now()
        reply = self._reply(item, now)
        if reply is None:
            return False
        await self._answer(reply, _delayed(lease_seconds))
        self._ends[item.id] = now + lease_seconds
        return True

    async def reject(self, item: WorkItem) -> bool:
        """Move an item to the dead letters."""
        if self._is_dead(item.queue):
            return await self.release(item)
        reply = self._reply(item, await self._clock.now())
        if reply is None:
            return False
        await self._bury(item.queue, item.data, reply)
        self._ends[item.id] = 0.0
        return True

    async def counts(self, queue: str) -> QueueCounts:
        """The numbers of items in the queue. A lease that has expired counts until the item is delivered again."""
        place = self._place(queue)
        state = (
            await self._connection.ask(lambda js: js.stream_info(place.stream, place.subject), may_repeat=True)
        ).state
        items = (state.subjects or {}).get(place.subject, 0)
        try:
            consumer = await self._connection.ask(
                lambda js: js.consumer_info(place.stream, place.consumer), may_repeat=True
            )
        except NotFoundError:
            return QueueCounts(waiting=items, leased=0)
        # Not all that is left: a server that was killed may have items again that were acknowledged, and are delivered
        # to nobody.
        leased = min(items, consumer.num_ack_pending or 0)
        return QueueCounts(waiting=min(items - leased, consumer.num_pending or 0), leased=leased)

    async def totals(self) -> QueueTotals:
        """The numbers of items in all queues."""
        alive, dead = [await self._items_in(config.name or "") for config in self.streams()]
        consumers = await self._connection.ask(lambda js: _consumers_of(js, f"{self._prefix}_queues"), may_repeat=True)
        leased = min(alive, sum(consumer.num_ack_pending or 0 for consumer in consumers))
        return QueueTotals(waiting=alive - leased, leased=leased, dead=dead)

    async def prepare(self, jetstream: JetStreamContext) -> None:
        """Delete consumers that have delivered more than their stream has ever had, before anybody puts an item.

        A power failure can take the newest items and leave the record that they were delivered. New items have their
        numbers then, and would never be delivered. The items that are left are delivered again, as for the first time.
        """
        self._consumers.clear()
        for config in self.streams():
            stream = config.name or ""
            consumers = await _consumers_of(jetstream, stream)
            last = (await jetstream.stream_info(stream)).state.last_seq
            for consumer in consumers:
                if consumer.delivered and consumer.delivered.stream_seq > last:
                    await jetstream.delete_consumer(stream, consumer.name)

    async def _items_in(self, stream: str) -> int:
        return (await self._connection.ask(lambda js: js.stream_info(stream), may_repeat=True)).state.messages

    def _is_dead(self, queue: str) -> bool:
        return queue.endswith(DEAD_SUFFIX)

    def _place(self, queue: str) -> _Place:
        kind = "dead" if self._is_dead(queue) else "queues"
        subject = f"{self._prefix}.{kind}.{token(queue)}"
        # Its name is that of a folder.
        return _Place(f"{self._prefix}_{kind}", subject, hashlib.sha256(subject.encode()).hexdigest()[:32])

    async def _add(self, queue: str, data: bytes, message_id: str) -> None:
        headers = {"Nats-Msg-Id": message_id}
        subject = self._place(queue).subject
        await self._connection.require_room(queue, data)
        try:
            await self._connection.ask(lambda js: js.publish(subject, data, headers=dict(headers)), may_repeat=True)
        except APIError as error:
            if error.err_code not in NO_ROOM:
                raise
            raise self._limits.no_room_for_item(queue) from None

    async def _pull(self, place: _Place) -> Msg:
        """The next item that is delivered to this process."""
        while True:
            if place not in self._consumers:
                await self._ensure_consumer(place)
                self._consumers.add(place)
            client = await self._connection.client()
            try:
                answer = await self._ask_for_item(client, place)
            except FAILURES as error:
                logger.debug("nats: %s", type(error).__name__)
                answer = None
            if answer is not None and answer.reply:
                return answer
            # Idle, or the connection was lost, or there is no such consumer now, or too many wait for it.
            self._consumers.discard(place)
            if answer is None or (answer.headers or {}).get("Status") not in NO_ITEM:
                await anyio.sleep(TRY_SECONDS / 10)

    async def _ensure_consumer(self, place: _Place) -> None:
        """Create the consumer of a queue, or remove what its stream has too much.

        A server that was killed can have forgotten that it removed acknowledged items, though not that they were
        acknowledged. Nobody gets them then, and they would take room for ever. They are known only while nothing is
        leased: the acknowledgement floor of a consumer passes items that were delivered again (nats-server 2.9.10).
        """
        consumer = await self._connection.ask(
            lambda js: js.add_consumer(place.stream, _consumer(place)), may_repeat=True
        )
        delivered = consumer.delivered.stream_seq if consumer.delivered else 0
        if delivered and not consumer.num_ack_pending and await self._items(place) > (consumer.num_pending or 0):
            await self._connection.ask(
                lambda js: js.purge_stream(place.stream, seq=delivered + 1, subject=place.subject), may_repeat=True
            )

    async def _items(self, place: _Place) -> int:
        stream = await self._connection.ask(lambda js: js.stream_info(place.stream, place.subject), may_repeat=True)
        return (stream.state.subjects or {}).get(place.subject, 0)

    async def _ask_for_item(self, client: Any, place: _Place) -> Msg | None:
        """Ask JetStream for one item. Returns it, or the status that it answers, or None if it did not answer."""
        inbox = client.new_inbox()
        answers: asyncio.Queue[Msg | None] = asyncio.Queue()
        subscription = await client.subscribe(inbox, cb=answers.put)
        is_answered = False
        try:
            with self._connection.told_of_gaps(lambda: answers.put_nowait(None)):
                request = {"batch": 1, "expires": int(PULL_SECONDS * NANOSECONDS)}
                subject = f"$JS.API.CONSUMER.MSG.NEXT.{place.stream}.{place.consumer}"
                await client.publish(subject, json.dumps(request).encode(), reply=inbox)
                with anyio.move_on_after(PULL_SECONDS + TRY_SECONDS):
                    answer = await answers.get()
                    is_answered = answer is not None
                    return answer
            return None
        finally:
            with anyio.CancelScope(shield=True):
                if is_answered:
                    await subscription.unsubscribe()
                else:
                    await self._withdraw(client, place, subscription, answers)

    async def _withdraw(
        self, client: Any, place: _Place, subscription: Any, answers: "asyncio.Queue[Msg | None]"
    ) -> None:
        """Withdraw a request, and give back what it was answered meanwhile."""
        try:
            async with asyncio.timeout(TRY_SECONDS):
                await client.lose_interest(subscription)
                # JetStream drops abandoned requests when a client queries the consumer, otherwise too late:
                # 2.9 loses its place if it finds out with an item in its hand.
                await client.jetstream(timeout=TRY_SECONDS).consumer_info(place.stream, place.consumer)
                await subscription.unsubscribe()
        except FAILURES as error:
            logger.debug("nats: %s", type(error).__name__)
        while not answers.empty():
            answer = answers.get_nowait()
            if answer is not None and answer.reply:
                await self._give_back(answer)

    async def _leased(self, queue: str, message: Msg, lease_seconds: float) -> WorkItem | None:
        """Begin the lease of an item that was delivered; None if it is a dead letter now."""
        attempt = message.metadata.num_delivered
        if attempt > self._limits.attempts and not self._is_dead(queue):
            try:
                await self._bury(queue, message.data, message.reply)
            except Busy:
                logger.warning("services: no room for dead letters; acknowledge some, they wait in their queue")
                await self._answer(message.reply, _delayed(DELIVERY_SECONDS))
            return None
        now = await self._clock.now()
        await self._answer(message.reply, _delayed(lease_seconds))
        if len(self._ends) >= self._forget_at:
            self._ends = {item_id: end for item_id, end in self._ends.items() if max(end, _end_of(item_id)) > now}
            self._forget_at = 2 * len(self._ends) + 100
        item_id = f"{now + lease_seconds:.6f} {message.reply}"
        self._ends[item_id] = now + lease_seconds
        return WorkItem(id=item_id, queue=queue, data=message.data, attempt=attempt)

    async def _bury(self, queue: str, data: bytes, reply: str) -> None:
        """Copy an item to the dead letters, then remove it: it may be there twice, never lost."""
        match = _REPLY.fullmatch(reply)
        assert match is not None
        # The number and the time of the item are its own, whichever delivery this is.
        await self._add(dead_letters(queue), data, f"{match['number']}-{match['stored']}")
        await self._remove(reply)

    async def _remove(self, reply: str) -> bool:
        """Remove an item for ever. Returns False if it is gone.

        To JetStream a removal is an acknowledgement, of which it tells whether there was something to remove.
        """
        match = _REPLY.fullmatch(reply)
        assert match is not None
        return await self._connection.remove_message(match["stream"], int(match["number"]), may_repeat=True)

    def _reply(self, item: WorkItem, now: float) -> str | None:
        """The subject that takes the answer to an item; None if its lease has ended."""
        match, place = _ID.fullmatch(item.id), self._place(item.queue)
        if match is None or (match["stream"], match["consumer"]) != (place.stream, place.consumer):
            return None
        return match["reply"] if now < self._ends.get(item.id, float(match["end"])) else None

    async def _answer(self, reply: str, answer: bytes) -> None:
        """Answer a delivery; JetStream has taken note of it when this returns."""
        await self._connection.request(
            lambda client: client.request(reply, answer, timeout=TRY_SECONDS), may_repeat=True
        )

    async def _give_back(self, message: Msg) -> None:
        """Let another worker have an item that was delivered to nobody here."""
        try:
            await message.nak()
        except FAILURES as error:
            logger.debug("nats: %s", type(error).__name__)


def _consumer(place: _Place) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=place.consumer,
        filter_subject=place.subject,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=DELIVERY_SECONDS,
        max_ack_pending=-1,
        max_waiting=GETTERS,
        inactive_threshold=UNUSED_SECONDS,
    )


async def _consumers_of(jetstream: JetStreamContext, stream: str) -> list[ConsumerInfo]:
    consumers: list[ConsumerInfo] = []
    while page := await jetstream.consumers_info(stream, len(consumers)):
        consumers += page
    return consumers


def _delayed(seconds: float) -> bytes:
    return b"-NAK " + json.dumps({"delay": int(max(seconds, 0) * NANOSECONDS)}).encode()


def _end_of(item_id: str) -> float:
    return float(item_id.partition(" ")[0])
