"""Messages of MCP over the socket of the background process, each with the HTTP headers that belong to it."""

import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp_types.jsonrpc import JSONRPCMessage

from coretools.client.connection.background_socket import MAX_LINE_BYTES, as_line

MAX_WAITING = 64 * 1024 * 1024
"""Bytes for a client that does not read; then it is cut off."""

MAX_NOTIFICATIONS = 4 * 1024 * 1024
"""Bytes above which notifications are dropped."""


def message_line(message: JSONRPCMessage, headers: dict[str, str] | None = None) -> bytes:
    """Return a message as a line."""
    dumped = message.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return as_line({"message": dumped, "headers": headers} if headers else {"message": dumped})


async def lines(reading: BufferedByteReceiveStream) -> AsyncIterator[dict[str, Any]]:
    """Yield lines to the end of a stream.

    Raises:
        ValueError: a line is not JSON. DelimiterNotFound: it is too long.
    """
    while True:
        try:
            value = json.loads(await reading.receive_until(b"\n", MAX_LINE_BYTES))
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            return
        yield value if isinstance(value, dict) else {}


async def received(reading: BufferedByteReceiveStream) -> AsyncIterator[tuple[JSONRPCMessage, dict[str, str] | None]]:
    """Yield the messages of a client, to its end; also one that sends nonsense ends."""
    try:
        async for line in lines(reading):
            headers = line.get("headers")
            message = types.jsonrpc_message_adapter.validate_python(line.get("message"), by_name=False)
            yield message, headers if isinstance(headers, dict) else None
    except (ValueError, anyio.DelimiterNotFound):
        return


class Outbox:
    """What waits to be sent to one client. Nothing of it ever blocks the server or other clients."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._changed = anyio.Event()
        self._is_closed = False

    def put(self, message: JSONRPCMessage) -> None:
        """Add a message; drop a notification if the client reads too slowly."""
        line = message_line(message)
        if isinstance(message, types.JSONRPCNotification) and self._size > MAX_NOTIFICATIONS:
            return
        self._add(line)
        if self._size > MAX_WAITING:
            self._is_closed = True

    def close(self, last: bytes) -> None:
        """Add the last line."""
        self._add(last)
        self._is_closed = True

    def _add(self, line: bytes) -> None:
        if not self._is_closed:
            self._waiting.append(line)
            self._size += len(line)
            self._changed.set()

    async def send_all(self, stream: SocketStream) -> None:
        """Send what is added, to the last line; then close the stream."""
        while self._waiting or not self._is_closed:
            while self._waiting and self._size <= MAX_WAITING:
                line = self._waiting.popleft()
                self._size -= len(line)
                await stream.send(line)
            if self._size > MAX_WAITING:
                break
            if not self._is_closed:
                self._changed = anyio.Event()
                await self._changed.wait()
        await stream.aclose()
