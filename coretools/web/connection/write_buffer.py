"""The way out of one connection: how much a client takes of what it is sent, and how the connection is closed."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

MOST_GATHERED = 65_536
"""Bytes; as many as asyncio lets wait before it says that the writer should."""

_AT_ONCE = struct.pack("ii", 1, 0)  # socket(7): linger, for no time


class _ClosedTransport(asyncio.Transport):
    """The transport of a connection that is gone, for what still runs on its behalf."""

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return True

    def is_reading(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass


_LOST = _ClosedTransport()


class WriteBuffer(asyncio.Transport):
    """A transport that cuts off a client which takes nothing for `seconds` while something waits for it.

    A client that takes a little lives on. Whoever closes it asks `closing` how. What is written in one turn of the
    loop is sent at once: header and body of an answer come in two pieces, and would wake the client twice.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float, closing: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._seconds = seconds
        self._closing = closing
        self._is_closing = False
        self._written = 0
        self._taken = 0
        self._timer: asyncio.TimerHandle | None = None
        self._gathered = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send at the end of this turn of the loop, or at once when much is gathered."""
        if not data:
            return
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._flush)
        self._gathered += data
        if len(self._gathered) >= MOST_GATHERED:
            self._flush()

    def close(self) -> None:
        """Close in the way that the connection needs."""
        if not self._is_closing:
            self._is_closing = True
            self._closing()

    def really_close(self) -> None:
        """Close once everything is taken."""
        self._is_closing = True
        self._flush()
        self._transport.close()

    def half_close(self) -> None:
        """Say that nothing more comes, and go on reading."""
        self._is_closing = True
        self._flush()
        self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def abort(self) -> None:
        """Close now; what was not taken is lost."""
        self._is_closing = True
        self._gathered.clear()
        self._transport.abort()

    def lost(self) -> None:
        """The connection is gone; nothing of it is held any longer."""
        self._transport = _LOST  # of TLS: it has a buffer of 256 KiB (asyncio.sslproto)
        self._closing = _nothing
        self._is_closing = True
        self._gathered.clear()
        if self._timer is not None:
            self._timer.cancel()

    def is_closing(self) -> bool:
        """Whether nothing more is to be sent."""
        return self._is_closing or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the transport says."""
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait here for the client."""
        return self._transport.get_write_buffer_size() + len(self._gathered)

    def is_reading(self) -> bool:
        """Whether what comes is taken."""
        return self._transport.is_reading()

    def pause_reading(self) -> None:
        """Take nothing more."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take what comes."""
        self._transport.resume_reading()

    def _flush(self) -> None:
        """Send what was gathered, and look after a while whether it was taken."""
        if not self._gathered:
            return
        data, self._gathered = self._gathered, bytearray()
        self._transport.write(data)
        self._written += len(data)
        if self._timer is None and self._transport.get_write_buffer_size():
            self._wait()

    def _wait(self) -> None:
        self._taken = self._written - self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        waiting = self._transport.get_write_buffer_size()
        if not waiting:
            return
        if self._written - waiting > self._taken:
            self._wait()
        else:
            self._reset()

    def _reset(self) -> None:
        """Close now, the kernel's part too: it would go on trying, with some megabytes, for minutes."""
        connection = self._transport.get_extra_info("socket")
        if connection is not None and connection.family != getattr(socket, "AF_UNIX", None):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.abort()


def _nothing() -> None:
    """There is nothing to close."""
