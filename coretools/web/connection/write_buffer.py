"""The write side of one connection: buffering, the deadline of slow readers, and closing."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

MOST_GATHERED = 65_536
"""Bytes gathered before a write; asyncio's own high-water mark."""

_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER with a timeout of 0 (socket(7))


class _ClosedTransport(asyncio.Transport):
    """Stands in for the transport of a closed connection while tasks still use it."""

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
    """A transport that cuts off a client which reads nothing for `seconds` while data waits for it.

    A client that reads slowly is kept. `close` calls `closing`, which decides how. Data written in one turn of the
    event loop is sent together: header and body of an answer are two writes and would wake the client twice.
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
        """Send at the end of this turn of the event loop, or now if much is gathered."""
        if not data:
            return
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._flush)
        self._gathered += data
        if len(self._gathered) >= MOST_GATHERED:
            self._flush()

    def close(self) -> None:
        """Close in the way that the protocol chooses."""
        if not self._is_closing:
            self._is_closing = True
            self._closing()

    def really_close(self) -> None:
        """Close once everything is sent."""
        self._is_closing = True
        self._flush()
        # A lost TLS transport is closed before its protocol is notified, and its second `close` makes its other methods
        # fail (asyncio.sslproto).
        if not self._transport.is_closing():
            self._transport.close()

    def half_close(self) -> None:
        """Close the write side and continue reading."""
        self._is_closing = True
        self._flush()
        self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def abort(self) -> None:
        """Close now; unsent data is lost."""
        self._is_closing = True
        self._gathered.clear()
        self._transport.abort()

    def lost(self) -> None:
        """Release everything of a closed connection."""
        self._transport = _LOST  # that of TLS holds a buffer of 256 KiB (asyncio.sslproto)
        self._closing = lambda: None
        self._is_closing = True
        self._gathered.clear()
        if self._timer is not None:
            self._timer.cancel()

    def is_closing(self) -> bool:
        """Whether the transport is closing."""
        return self._is_closing or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the transport's value."""
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Return the bytes that wait to be sent."""
        return self._transport.get_write_buffer_size() + len(self._gathered)

    def is_reading(self) -> bool:
        """Whether data is being received."""
        return self._transport.is_reading()

    def pause_reading(self) -> None:
        """Pause receiving."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume receiving."""
        self._transport.resume_reading()

    def _flush(self) -> None:
        """Send the gathered data and check later whether the client read it."""
        if not self._gathered:
            return
        data, self._gathered = self._gathered, bytearray()
        self._transport.write(data)
        self._written += len(data)
        if self._timer is None and self._transport.get_write_buffer_size():
            self._wait()

    def _wait(self) -> None:
        self._taken = self._written - self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._check)

    def _check(self) -> None:
        self._timer = None
        waiting = self._transport.get_write_buffer_size()
        if not waiting:
            return
        if self._written - waiting > self._taken:
            self._wait()
        else:
            self._reset()

    def _reset(self) -> None:
        """Close now and discard the kernel's buffer too: it could hold megabytes for minutes."""
        connection = self._transport.get_extra_info("socket")
        if connection is not None and connection.family != getattr(socket, "AF_UNIX", None):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.abort()
