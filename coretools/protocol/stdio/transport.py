"""The stdio transport: JSON-RPC lines over duplicated descriptors, read and written on the event loop. POSIX only.

The SDK's transport uses worker threads of a limiter shared with every tool, has no line limit, silently drops what it
can't parse, and can't be ended by a signal while it waits for input. This transport answers every invalid line, keeps
memory bounded, and needs no thread (docs/adr/0001).
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
from coretools.protocol.process_exit import ProcessExit, cancel_on_signal
from coretools.protocol.stdio.lines import FLUSH_SECONDS, MAX_UNSENT_BYTES, LineMessageReader, as_line

logger = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
"""Size of one read. Pipes hold 64 KiB by default (pipe(7)); clients on sockets may send more."""


@dataclass(frozen=True, slots=True)
class StdioDescriptors:
    """The two descriptors that carry the protocol."""

    read_fd: int
    write_fd: int


@contextmanager
def claim_standard_streams() -> Iterator[StdioDescriptors]:
    """Move the protocol's streams away from the standard descriptors.

    Meanwhile fd 0 is the null device and fd 1 the log (fd 2), so that no child and no stray print reads or writes
    protocol messages. The descriptors yielded are above 2, and children do not inherit them.

    Raises:
        BadSetting: one of the two is not open.
    """
    try:
        descriptors = StdioDescriptors(
            fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3), fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
        )
    except OSError as error:
        raise BadSetting(
            f"standard input and output must be open, they carry the protocol: {error.strerror}"
        ) from error
    # Writing must not block the event loop. The flag belongs to the open file description, which a terminal shares
    # with its shell: restored at the end.
    was_blocking = os.get_blocking(descriptors.write_fd)
    os.set_blocking(descriptors.write_fd, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    try:
        yield descriptors
    finally:
        os.set_blocking(descriptors.write_fd, was_blocking)
        os.dup2(descriptors.read_fd, 0)
        os.dup2(descriptors.write_fd, 1)
        os.close(descriptors.read_fd)
        os.close(descriptors.write_fd)


class LineWriter(AsyncResource):
    """Writes whole messages in order.

    A write that has begun continues even if its sender is cancelled. Senders wait while the client reads too slowly.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._unsent = bytearray()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_watched = False
        self._is_broken = False

    async def send(self, item: SessionMessage) -> None:
        """Write one message.

        Raises:
            BrokenResourceError: the client has closed its end.
        """
        await self.send_line(as_line(item))

    async def send_line(self, line: bytes) -> None:
        """Write one line; `line` has no line end."""
        if not self._has_room.is_set():
            await self._has_room.wait()
        if self._is_broken:
            raise anyio.BrokenResourceError
        self._unsent += line + b"\n"
        self._is_empty.clear()
        if not self._is_watched:
            self._write()

    async def aclose(self) -> None:
        """Write what is pending, for a limited time, and stop."""
        with anyio.move_on_after(FLUSH_SECONDS, shield=True):
            await self._is_empty.wait()
        self._remove_writer()
        self._is_broken = True
        self._has_room.set()
        self._is_empty.set()

    def _write(self) -> None:
        try:
            while self._unsent:
                written = os.write(self._fd, self._unsent)
                del self._unsent[:written]
        except BlockingIOError:
            if not self._is_watched:
                asyncio.get_running_loop().add_writer(self._fd, self._write)
                self._is_watched = True
        except OSError as error:
            logger.debug("the client has closed its end: %s", error)
            self._unsent.clear()
            self._is_broken = True
        if not self._unsent:
            self._remove_writer()
            self._is_empty.set()
        if len(self._unsent) <= MAX_UNSENT_BYTES:
            self._has_room.set()
        else:
            self._has_room.clear()

    def _remove_writer(self) -> None:
        if self._is_watched:
            asyncio.get_running_loop().remove_writer(self._fd)
            self._is_watched = False


class DescriptorReader:
    """Reads available input from a descriptor; without a thread if the descriptor can be polled."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_pollable = True

    async def read(self) -> bytes:
        """Return available input; nothing at the end of input."""
        if self._is_pollable:
            try:
                await anyio.wait_readable(self._fd)
                return os.read(self._fd, READ_BYTES)
            except PermissionError:
                # epoll_ctl(2) EPERM: a regular file or the null device, always readable.
                self._is_pollable = False
            except BlockingIOError:
                return await self.read()
            except OSError as error:
                logger.debug("reading from the client failed: %s", error)
                return b""
        return await anyio.to_thread.run_sync(os.read, self._fd, READ_BYTES)


@asynccontextmanager
async def stdio_streams(
    descriptors: StdioDescriptors, line_bytes: int, on_end: Callable[[], None]
) -> AsyncIterator[tuple[LineMessageReader, LineWriter]]:
    """Return the two ends for `Server.run`. `on_end` is called when the client has closed its end."""
    async with (
        LineWriter(descriptors.write_fd) as writer,
        LineMessageReader(
            DescriptorReader(descriptors.read_fd).read, writer, line_bytes=line_bytes, on_end=on_end
        ) as reader,
    ):
        yield reader, writer


BackgroundWork = Callable[[], Coroutine[Any, Any, None]]


async def run_on_stdio(
    server: Server[Any],
    descriptors: StdioDescriptors,
    *,
    line_bytes: int,
    process_exit: ProcessExit,
    background: Sequence[BackgroundWork] = (),
) -> None:
    """Serve until the client closes its end, or SIGTERM or SIGINT arrives; then shut down within a time limit.

    Open requests are answered. `background` runs meanwhile and is cancelled at the end.
    """
    requests = OpenRequests(server.server_info_stamp)
    async with (
        cancel_on_signal(process_exit, requests.finish),
        stdio_streams(descriptors, line_bytes, process_exit.begin) as streams,
        anyio.create_task_group() as tasks,
    ):
        for work in background:
            tasks.start_soon(work)
        await server.run(*requests.wrap(*streams), server.create_initialization_options())
        tasks.cancel_scope.cancel()
    process_exit.begin()
