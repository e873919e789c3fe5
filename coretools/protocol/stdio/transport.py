"""The stdio transport: JSON-RPC lines over our own descriptors, read and written on the event loop.

The SDK's own transport reads and writes in worker threads of a limiter that it shares with every tool, has no limit for
a line, drops what it can't parse without an answer, and can't be ended by a signal while it waits for input. This one
answers every bad line, keeps memory bounded, and needs no thread (docs/adr/0001). POSIX only.
"""

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import AsyncResource
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage

from coretools.errors import BadSetting
from coretools.protocol.open_requests import OpenRequests
from coretools.protocol.process_exit import Ending, until_signalled
from coretools.protocol.stdio.lines import LAST_WRITE_SECONDS, UNSENT_BYTES, MessageLines, as_line

logger = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
"""One read. Pipes hold 64 KiB by default (pipe(7)); clients on sockets may send more."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The two descriptors that carry the protocol."""

    read_fd: int
    write_fd: int


@contextmanager
def standard_streams_claimed() -> Iterator[Wire]:
    """Move the wire away from the standard descriptors.

    Until the end fd 0 is the null device and fd 1 the log (fd 2), so that no child and no stray print reads or writes
    the wire. The descriptors yielded are above the standard ones and not inherited by children.

    Raises:
        BadSetting: one of the two is not open.
    """
    try:
        wire = Wire(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3), fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3))
    except OSError as error:
        raise BadSetting(f"standard input and output must be open, they are the wire: {error.strerror}") from error
    # The writer must not block the loop. The flag belongs to the open file, which a terminal shares with its shell:
    # put back at the end.
    was_blocking = os.get_blocking(wire.write_fd)
    os.set_blocking(wire.write_fd, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    try:
        yield wire
    finally:
        os.set_blocking(wire.write_fd, was_blocking)
        os.dup2(wire.read_fd, 0)
        os.dup2(wire.write_fd, 1)
        os.close(wire.read_fd)
        os.close(wire.write_fd)


class LineWriter(AsyncResource):
    """Takes whole messages and writes them in order, without ever tearing one apart.

    A write that was begun goes on even when the sender is cancelled. Senders wait while the client reads too slowly.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._unsent = bytearray()
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._watched = False
        self._broken = False

    async def send(self, item: SessionMessage) -> None:
        """Write one message.

        Raises:
            BrokenResourceError: the client has closed its end.
        """
        await self.send_line(as_line(item))

    async def send_line(self, line: bytes) -> None:
        """Write one line; `line` has no line end."""
        if not self._room.is_set():
            await self._room.wait()
        if self._broken:
            raise anyio.BrokenResourceError
        self._unsent += line + b"\n"
        self._empty.clear()
        if not self._watched:
            self._push()

    async def aclose(self) -> None:
        """Let what is written leave, for a bounded time."""
        with anyio.move_on_after(LAST_WRITE_SECONDS, shield=True):
            await self._empty.wait()
        self._unwatch()
        self._broken = True
        self._room.set()
        self._empty.set()

    def _push(self) -> None:
        try:
            while self._unsent:
                written = os.write(self._fd, self._unsent)
                del self._unsent[:written]
        except BlockingIOError:
            self._watch()
        except OSError as error:
            logger.debug("the client has closed its end: %s", error)
            self._unsent.clear()
            self._broken = True
        if not self._unsent:
            self._unwatch()
            self._empty.set()
        if len(self._unsent) <= UNSENT_BYTES:
            self._room.set()
        else:
            self._room.clear()

    def _watch(self) -> None:
        if not self._watched:
            asyncio.get_running_loop().add_writer(self._fd, self._push)
            self._watched = True

    def _unwatch(self) -> None:
        if self._watched:
            asyncio.get_running_loop().remove_writer(self._fd)
            self._watched = False


class DescriptorReader:
    """Reads what has come on a descriptor, without a thread where the system can say that something has."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pollable = True

    async def read(self) -> bytes:
        """What has come; nothing at the end of input."""
        if self._pollable:
            try:
                await anyio.wait_readable(self._fd)
                return os.read(self._fd, READ_BYTES)
            except PermissionError:
                # epoll_ctl(2) EPERM: a regular file or the null device, always readable.
                self._pollable = False
            except BlockingIOError:
                return await self.read()
            except OSError as error:
                logger.debug("reading from the client failed: %s", error)
                return b""
        return await anyio.to_thread.run_sync(os.read, self._fd, READ_BYTES)


class MessageReader(MessageLines):
    """Messages on a descriptor."""

    def __init__(
        self, fd: int, writer: LineWriter, *, line_bytes: int, on_end: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(DescriptorReader(fd).read, writer, line_bytes=line_bytes, on_end=on_end)


@asynccontextmanager
async def stdio_streams(
    wire: Wire, line_bytes: int, on_end: Callable[[], None]
) -> AsyncIterator[tuple[MessageReader, LineWriter]]:
    """The two ends that `Server.run` takes. `on_end` is told when the client has closed its end."""
    async with (
        LineWriter(wire.write_fd) as writer,
        MessageReader(wire.read_fd, writer, line_bytes=line_bytes, on_end=on_end) as reader,
    ):
        yield reader, writer


# One server on the standard streams of its process, until its client or a signal ends it.


Work = Callable[[], Coroutine[Any, Any, None]]


async def run_on_wire(
    server: Server[Any], wire: Wire, *, line_bytes: int, ending: Ending, beside: Sequence[Work] = ()
) -> None:
    """Serve until the client closes its end or SIGTERM or SIGINT comes; the end is bounded from then on.

    What is open then is answered. `beside` runs meanwhile and is cancelled at the end.
    """
    requests = OpenRequests(server.server_info_stamp)
    async with (
        until_signalled(ending, requests.finish),
        stdio_streams(wire, line_bytes, ending.begin) as streams,
        anyio.create_task_group() as tasks,
    ):
        for work in beside:
            tasks.start_soon(work)
        await server.run(*requests.around(*streams), server.create_initialization_options())
        tasks.cancel_scope.cancel()
    ending.begin()
