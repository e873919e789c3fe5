"""The stdio transport: JSON-RPC lines over our own descriptors, read and written on the event loop.

The SDK's own transport reads and writes in worker threads of a limiter that it shares with every tool, has no limit for
a line, drops what it can't parse without an answer, and can't be ended by a signal while it waits for input. This one
answers every bad line, keeps memory bounded, and needs no thread (docs/adr/0004). POSIX only.
"""

import asyncio
import fcntl
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from coretools.errors import BadSetting

logger = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
"""One read. Pipes hold 64 KiB by default (pipe(7)); clients on sockets may send more."""

UNSENT_BYTES = 1024 * 1024
"""A sender waits while more than this has not been taken by the client."""

_END_BYTES = 256
"""Kept of each end of a line that is too long: an id and what stands around it."""

_ID = rb'"id"\s*:\s*(-?[0-9]{1,20}|"[^"\\\x00-\x1f\x80-\xff]{1,128}")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_ID_LAST = re.compile(rb",\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*\Z")
"""The two places where SDKs put it. A quote inside a string would be escaped, and an object inside another would end
in two braces, so what matches belongs to the message itself."""

LAST_WRITE_SECONDS = 1.0
"""How long answers that are already written may take to leave when the server ends."""


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


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line over the limit: what is left of it are its ends, where clients put the id."""

    head: bytes
    tail: bytes

    @property
    def request_id(self) -> str | int | None:
        """The id, if it stands before all else but the version, or after all else; then it is the message's own."""
        found = _ID_FIRST.match(self.head) or _ID_LAST.search(self.tail)
        return _usable_id(json.loads(found[1])) if found else None


class Lines:
    """Cuts what is read into lines, never holding more than `most_bytes` of one."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = bytearray()
        self._head: bytes | None = None
        """Start of the line that is too long, None while it is not."""

    def feed(self, data: bytes) -> Iterator["bytes | TooLong"]:
        """The lines that are complete now, without their end."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            piece = data[start:end]
            start = end + 1
            self._hold(piece)
            if self._head is None:
                # Most lines are one piece: not copied.
                yield piece if len(self._held) == len(piece) else bytes(self._held)
            else:
                yield TooLong(self._head, bytes(self._held))
            self._held.clear()
            self._head = None
        self._hold(data[start:])

    def rest(self) -> "bytes | TooLong":
        """What stands after the last line end."""
        return bytes(self._held) if self._head is None else TooLong(self._head, bytes(self._held))

    def _hold(self, piece: bytes) -> None:
        """Keep a part of a line; of one that is too long its two ends only."""
        self._held += piece
        if self._head is None and len(self._held) > self._most:
            self._head = bytes(self._held[:_END_BYTES])
        if self._head is not None:
            self._held = self._held[-_END_BYTES:]


class LineWriter:
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
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self.send_line(text.encode("utf-8"))

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

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


class MessageReader:
    """Reads messages; a line that is none is answered with an error, and the next one is read."""

    def __init__(
        self, fd: int, writer: LineWriter, *, line_bytes: int, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._fd = fd
        self._on_end = on_end
        self._writer = writer
        self._line_bytes = line_bytes
        self._lines = Lines(line_bytes)
        self._ready: list[bytes | TooLong] = []
        self._ended = False
        self._pollable = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            while self._ready:
                line = self._ready.pop()
                if isinstance(line, TooLong):
                    fault = f"line too long: {self._line_bytes} bytes at most"
                    await self._refuse(types.INVALID_REQUEST, fault, line.request_id)
                elif (message := await self._parsed(line)) is not None:
                    return message
            if self._ended:
                raise StopAsyncIteration
            await self._fill()

    async def receive(self) -> SessionMessage | Exception:
        """The next message.

        Raises:
            EndOfStream: the client has closed its end.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Read no more."""
        self._ended = True
        self._ready.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _fill(self) -> None:
        data = await self._read()
        if not data:
            self._ended = True
            self._on_end()
            rest = self._lines.rest()
            self._ready = [rest] if isinstance(rest, TooLong) or rest.strip() else []
            return
        # Last first, so that pop() takes them in order.
        self._ready = list(self._lines.feed(data))[::-1]

    async def _read(self) -> bytes:
        if self._pollable:
            try:
                await anyio.wait_readable(self._fd)
                return os.read(self._fd, READ_BYTES)
            except PermissionError:
                # epoll_ctl(2) EPERM: a regular file or the null device, always readable.
                self._pollable = False
            except BlockingIOError:
                return await self._read()
            except OSError as error:
                logger.debug("reading from the client failed: %s", error)
                return b""
        return await anyio.to_thread.run_sync(os.read, self._fd, READ_BYTES)

    async def _parsed(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            is_json = all(fault["type"] != "json_invalid" for fault in error.errors(include_input=False))
            fault, request_id = _what_is_wrong(line)
            if is_json:
                await self._refuse(types.INVALID_REQUEST, fault, request_id)
            else:
                await self._refuse(types.PARSE_ERROR, "not valid JSON in UTF-8", request_id)
            return None
        if isinstance(message, types.JSONRPCNotification) and b'"id"' in line and "id" in json.loads(line):
            # The SDK takes a request whose id is null or a fraction for a notification; its sender would wait for ever.
            await self._refuse(types.INVALID_REQUEST, "an id must be text or a whole number", None)
            return None
        return SessionMessage(message)

    async def _refuse(self, code: int, message: str, request_id: str | int | None) -> None:
        logger.warning("refused a line of the client: %s", message)
        answer = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
        try:
            await self._writer.send_line(json.dumps(answer).encode("utf-8"))
        except anyio.BrokenResourceError:
            logger.debug("the client no longer reads")


def _what_is_wrong(line: bytes) -> tuple[str, str | int | None]:
    """A sentence for a line that is no message, and the id it carries if one can be made out."""
    try:
        value: Any = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return "not a JSON-RPC message", None
    if isinstance(value, list):
        return "batches are not part of the protocol; send one message a line", None
    if not isinstance(value, dict):
        return "not a JSON-RPC message: must be an object", None
    request_id = _usable_id(value.get("id"))
    if value.get("jsonrpc") != "2.0":
        return 'not a JSON-RPC message: jsonrpc must be "2.0"', request_id
    return "not a JSON-RPC message: needs a method as text and, if any, params as an object", request_id


def _usable_id(value: object) -> str | int | None:
    """An id that can be sent back, or None: half a surrogate pair is no text in UTF-8, and readers stop at it."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return None
    return value


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
