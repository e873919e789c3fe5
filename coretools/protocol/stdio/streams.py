"""MCP over any pair of streams: a Unix socket, a WebSocket, an SSH channel, the two ends of a pipe.

Byte streams carry one line of JSON per message, with the limits of stdio; object streams carry one message as text per
item. Invalid lines are answered, memory is bounded, and messages are written whole.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import AsyncResource, ByteReceiveStream, ByteSendStream, ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage

from coretools.protocol.stdio.lines import FLUSH_SECONDS, MAX_UNSENT_BYTES, LineMessageReader, as_line

logger = logging.getLogger(__name__)

READ_BYTES = 64 * 1024

Incoming = ByteReceiveStream | ObjectReceiveStream[str] | ObjectReceiveStream[bytes]
Outgoing = ByteSendStream | ObjectSendStream[str]

_CLOSED = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)
"""Errors by which a stream reports that either end is closed."""


class QueueWriter(AsyncResource):
    """Queues whole messages and sends them in order from its own task.

    So a cancelled sender leaves no partial message. Senders wait while the client reads too slowly.
    """

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._unsent: deque[bytes] = deque()
        self._bytes = 0
        self._broken = False
        self._changed = anyio.Event()
        # Queued messages are also sent when the connection is cancelled: `aclose` limits the time.
        self._pump_scope = anyio.CancelScope(shield=True)

    async def send(self, item: SessionMessage) -> None:
        """Write one message.

        Raises:
            BrokenResourceError: the client has closed its end.
        """
        await self.send_line(as_line(item))

    async def send_line(self, line: bytes) -> None:
        """Write one line; `line` has no line end."""
        while self._bytes > MAX_UNSENT_BYTES and not self._broken:
            await self._changed.wait()
        if self._broken:
            raise anyio.BrokenResourceError
        self._unsent.append(line)
        self._bytes += len(line)
        self._notify()

    async def pump(self) -> None:
        """Send queued messages until the writer or the client's end is closed."""
        with self._pump_scope:
            while not self._broken:
                while self._unsent and not self._broken:
                    await self._send_first()
                if not self._broken:
                    await self._changed.wait()

    async def aclose(self) -> None:
        """Send what is queued, for a limited time, and stop."""
        with anyio.move_on_after(FLUSH_SECONDS, shield=True):
            while self._unsent and not self._broken:
                await self._changed.wait()
        self._break()
        self._pump_scope.cancel()

    async def _send_first(self) -> None:
        try:
            await self._send(self._unsent[0])
        except _CLOSED as error:
            logger.debug("the client has closed its end: %s", error)
            self._break()
        if not self._broken:
            self._bytes -= len(self._unsent.popleft())
            self._notify()

    def _break(self) -> None:
        self._broken = True
        self._unsent.clear()
        self._bytes = 0
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@asynccontextmanager
async def message_streams(
    read: Incoming, write: Outgoing, line_bytes: int
) -> AsyncIterator[tuple[LineMessageReader, QueueWriter]]:
    """Return the two ends for `Server.run`. Both streams are closed at the end."""
    async with read, write, anyio.create_task_group() as tasks, QueueWriter(_sender(write)) as writer:
        tasks.start_soon(writer.pump)
        yield LineMessageReader(_reader(read), writer, line_bytes=line_bytes), writer


def _reader(stream: Incoming) -> Callable[[], Awaitable[bytes]]:
    async def read_bytes() -> bytes:
        assert isinstance(stream, ByteReceiveStream)
        try:
            return await stream.receive(READ_BYTES)
        except _CLOSED:
            return b""

    async def read_item() -> bytes:
        assert not isinstance(stream, ByteReceiveStream)
        try:
            item = await stream.receive()
        except _CLOSED:
            return b""
        data = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else bytes(item)
        # Between JSON tokens a line end is white space, and inside them it is invalid (RFC 8259, 2 and 7).
        return data.replace(b"\n", b" ") + b"\n"

    return read_bytes if isinstance(stream, ByteReceiveStream) else read_item


def _sender(stream: Outgoing) -> Callable[[bytes], Awaitable[None]]:
    async def send_line_bytes(line: bytes) -> None:
        assert isinstance(stream, ByteSendStream)
        await stream.send(line + b"\n")

    async def send_item(line: bytes) -> None:
        assert not isinstance(stream, ByteSendStream)
        await stream.send(line.decode("utf-8"))

    return send_line_bytes if isinstance(stream, ByteSendStream) else send_item
