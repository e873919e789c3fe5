"""One end of a connection: a socket that does not block, with what was read ahead, and the relay between two of them.

Bytes that one side does not take stay with the other: nothing is buffered beyond one piece for each direction.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

PIECE_BYTES = 64 * 1024

DISCARDED_BYTES = 1024 * 1024
"""What is read of a client that goes on after its request."""


class Closed(ConnectionError):
    """The peer closed, or sent more than it may, before it sent what was expected."""

    def __init__(self, *, is_too_long: bool = False) -> None:
        super().__init__()
        self.is_too_long = is_too_long


class Peer:
    """A connected socket. `close` must be called."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._ahead = bytearray()

    async def receive(self, most: int = PIECE_BYTES) -> bytes:
        """Return what is there, at least a byte; nothing at the end.

        Raises:
            OSError: the connection is broken.
        """
        if self._ahead:
            piece = bytes(self._ahead[:most])
            del self._ahead[:most]
            return piece
        piece = await self._loop.sock_recv(self._socket, most)
        # What is there at once is returned without a turn of the event loop: a fast peer would keep it from all else.
        await asyncio.sleep(0)
        return piece

    async def receive_exactly(self, count: int) -> bytes:
        """Return so many bytes.

        Raises:
            Closed: the peer closed before.
        """
        while len(self._ahead) < count:
            await self._fill()
        return await self.receive(count) if count else b""

    async def receive_until(self, end: bytes, most: int) -> bytes:
        """Return everything up to `end`, inclusive.

        Raises:
            Closed: the peer closed before, or sent `most` bytes without it.
        """
        start = 0
        while (at := self._ahead.find(end, start)) < 0:
            if len(self._ahead) >= most:
                raise Closed(is_too_long=True)
            start = max(0, len(self._ahead) - len(end) + 1)
            await self._fill()
        if at + len(end) > most:
            raise Closed(is_too_long=True)
        return await self.receive(at + len(end))

    async def send(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            OSError: the connection is broken.
        """
        await self._loop.sock_sendall(self._socket, data)

    def send_end(self) -> None:
        """Tell the peer that nothing more follows."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def drain(self, seconds: float) -> None:
        """Discard what the peer still sends: a socket closed with unread bytes resets, and a last answer is lost."""
        self.send_end()
        with anyio.move_on_after(seconds), suppress(OSError):
            await self.discard(DISCARDED_BYTES)

    async def discard(self, most: int) -> None:
        """Read to the end of the peer, or so many bytes, and forget them.

        Raises:
            OSError: the connection is broken.
        """
        while most > 0 and (piece := await self.receive()):
            most -= len(piece)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    async def _fill(self) -> None:
        piece = await self._loop.sock_recv(self._socket, 16 * 1024)
        if not piece:
            raise Closed
        self._ahead += piece


class Relay:
    """Passes bytes between two peers until both have ended, or nothing moves for too long."""

    def __init__(self, client: Peer, server: Peer, *, idle_seconds: float, half_closed_seconds: float) -> None:
        """`half_closed_seconds` applies when one of the two has ended."""
        self._client = client
        self._server = server
        self._seconds = idle_seconds
        self._half_closed_seconds = min(idle_seconds, half_closed_seconds)
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        """Pass bytes both ways; the end of one side is passed on to the other."""
        with self._scope:
            self._touch()
            async with anyio.create_task_group() as both:
                both.start_soon(self._pass_on, self._client, self._server)
                both.start_soon(self._pass_on, self._server, self._client)

    async def exchange(self, body_bytes: int, response_head: Callable[[], Awaitable[bytes | None]]) -> bool:
        """Pass so many bytes to the server, and its response back until it ends. Return whether there was one.

        `response_head` returns what the client gets in place of the head that the server sends; None: no response.
        """
        head: bytes | None = None
        with self._scope:
            self._touch()
            async with anyio.create_task_group() as upload:
                upload.start_soon(self._pass_body, body_bytes)
                head = await response_head()
                if head is not None and await self._send(self._client, head):
                    await self._pass_on(self._server, self._client)
                upload.cancel_scope.cancel()
        return head is not None

    async def _pass_on(self, source: Peer, sink: Peer) -> None:
        """Pass everything on, and then the end."""
        try:
            while piece := await source.receive():
                await sink.send(piece)
                self._touch()
        except OSError:
            self._scope.cancel()  # nobody is left to pass anything to
            return
        sink.send_end()
        self._seconds = self._half_closed_seconds
        self._touch()

    async def _pass_body(self, left: int) -> None:
        """Pass so many bytes of the client on, and discard what it sends after them.

        Its end is not passed on, since many servers take that for a cancellation.
        """
        try:
            while left > 0 and (piece := await self._client.receive(min(left, PIECE_BYTES))):
                if not await self._send(self._server, piece):
                    return  # a server may answer before it has read everything
                left -= len(piece)
            if left == 0:
                await self._client.discard(DISCARDED_BYTES)
        except OSError:
            left = -1
        if left:
            self._scope.cancel()  # nobody waits for the response, or it would be to half a request
            return
        self._seconds = self._half_closed_seconds
        self._touch()

    async def _send(self, sink: Peer, data: bytes) -> bool:
        with suppress(OSError):
            await sink.send(data)
            self._touch()
            return True
        return False

    def _touch(self) -> None:
        self._scope.deadline = anyio.current_time() + self._seconds
