"""Read messages as lines of JSON from any transport: split lines, limit their length, answer invalid ones.

Memory is bounded and every invalid line is answered, so that no sender waits for ever. The function that reads and the
object that writes lines come from `coretools.protocol.stdio.transport` or `coretools.protocol.stdio.streams`.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from coretools.protocol.open_requests import MessageReader

logger = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 1024 * 1024
"""Senders wait while more than this is waiting for the client to read."""

FLUSH_SECONDS = 1.0
"""How long pending output may take to leave when a connection ends."""

BATCH_REVISION = "2025-03-26"
"""The only revision with batches of messages; 2025-06-18 removed them."""

MAX_BATCHED = 64
"""Messages in one batch."""

_KEPT_BYTES = 256
"""Bytes kept of each end of an oversized line: enough for an id and its surroundings."""

_ID = rb'"id"\s*:\s*(-?[0-9]{1,20}|"[^"\\\x00-\x1f\x80-\xff]{1,128}")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_ID_LAST = re.compile(rb",\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*\Z")
"""The two places where SDKs put the id. A quote inside a string is escaped, and a nested object ends in two braces, so
a match belongs to the message itself."""


def as_line(item: SessionMessage) -> bytes:
    """Return a message as one line of JSON, without a line end."""
    return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8")


@dataclass(frozen=True, slots=True)
class OversizedLine:
    """A line over the limit, reduced to its two ends, where clients put the id."""

    head: bytes
    tail: bytes

    @property
    def request_id(self) -> str | int | None:
        """The id, if it is the first member except for the version, or the last; then it is the message's own."""
        match = _ID_FIRST.match(self.head) or _ID_LAST.search(self.tail)
        return _valid_id(json.loads(match[1])) if match else None


class LineReader:
    """Splits input into lines and never buffers more than `max_bytes` of one."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._head: bytes | None = None
        """Start of the current line if it is too long, else None."""

    def feed(self, data: bytes) -> Iterator[bytes | OversizedLine]:
        """Return the lines completed by this data, without line ends."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            piece = data[start:end]
            start = end + 1
            self._append(piece)
            if self._head is None:
                # Most lines are one piece and need no copy.
                yield piece if len(self._buffer) == len(piece) else bytes(self._buffer)
            else:
                yield OversizedLine(self._head, bytes(self._buffer))
            self._buffer.clear()
            self._head = None
        self._append(data[start:])

    def rest(self) -> bytes | OversizedLine:
        """Return what follows the last line end."""
        return bytes(self._buffer) if self._head is None else OversizedLine(self._head, bytes(self._buffer))

    def _append(self, piece: bytes) -> None:
        """Buffer a part of a line; of an oversized line, only its two ends."""
        self._buffer += piece
        if self._head is None and len(self._buffer) > self._max_bytes:
            self._head = bytes(self._buffer[:_KEPT_BYTES])
        if self._head is not None:
            self._buffer = self._buffer[-_KEPT_BYTES:]


class LineSink(Protocol):
    """Writes lines."""

    async def send_line(self, line: bytes) -> None:
        """Write one line; `line` has no line end.

        Raises:
            BrokenResourceError: the client has closed its end.
        """
        ...


class LineMessageReader(MessageReader):
    """Reads messages. Answers an invalid line with an error and goes on with the next."""

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        writer: LineSink,
        *,
        line_bytes: int,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`read` returns available input, and nothing at the end of input; then `on_end` is called."""
        self._read = read
        self._on_end = on_end
        self._writer = writer
        self._line_bytes = line_bytes
        self._lines = LineReader(line_bytes)
        self._ready: list[bytes | OversizedLine] = []
        self._allows_batches = False
        self._is_at_end = False

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            while self._ready:
                line = self._ready.pop()
                if isinstance(line, OversizedLine):
                    fault = f"line too long: {self._line_bytes} bytes at most"
                    await self._refuse(types.INVALID_REQUEST, fault, line.request_id)
                elif (message := await self._parse(line)) is not None:
                    return message
            if self._is_at_end:
                raise StopAsyncIteration
            await self._fill()

    async def aclose(self) -> None:
        """Stop reading."""
        self._is_at_end = True
        self._ready.clear()

    async def _fill(self) -> None:
        data = await self._read()
        if not data:
            self._is_at_end = True
            self._on_end()
            rest = self._lines.rest()
            self._ready = [rest] if isinstance(rest, OversizedLine) or rest.strip() else []
            return
        # Reversed, so that pop() returns them in order.
        self._ready = list(self._lines.feed(data))[::-1]

    async def _parse(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            if self._allows_batches and (batch := _batch_in(line)) is not None:
                await self._split_batch(batch)
            else:
                await self._refuse_line(line, error)
            return None
        return SessionMessage(message) if await self._accept(message, line) else None

    async def _accept(self, message: types.JSONRPCMessage, line: bytes) -> bool:
        if isinstance(message, types.JSONRPCNotification) and b'"id"' in line and "id" in json.loads(line):
            # The SDK treats a request whose id is null or a fraction as a notification; its sender would wait for ever.
            await self._refuse(types.INVALID_REQUEST, "an id must be text or a whole number", None)
            return False
        if isinstance(message, types.JSONRPCRequest) and message.method == "initialize":
            self._allows_batches = (message.params or {}).get("protocolVersion") == BATCH_REVISION
        return True

    async def _refuse_line(self, line: bytes, error: ValidationError) -> None:
        wrong = [one["msg"] for one in error.errors(include_input=False) if one["type"] == "json_invalid"]
        fault, request_id = _diagnose(line)
        if not wrong:
            await self._refuse(types.INVALID_REQUEST, fault, request_id)
        elif "recursion limit" in wrong[0]:
            await self._refuse(types.PARSE_ERROR, "nested too deeply; about 200 levels is the most", request_id)
        else:
            await self._refuse(types.PARSE_ERROR, "not valid JSON in UTF-8", request_id)

    async def _split_batch(self, batch: list[Any]) -> None:
        """Handle the messages of a batch as if they had come one by one; each gets its own response."""
        if not 1 <= len(batch) <= MAX_BATCHED:
            await self._refuse(types.INVALID_REQUEST, f"a batch has 1 to {MAX_BATCHED} messages", None)
        elif not all(isinstance(one, dict) for one in batch):
            await self._refuse(types.INVALID_REQUEST, "a batch holds messages, which are objects", None)
        elif any(one.get("method") == "initialize" for one in batch):
            await self._refuse(types.INVALID_REQUEST, "initialize can't be part of a batch", None)
        else:
            self._ready += [json.dumps(one).encode() for one in reversed(batch)]

    async def _refuse(self, code: int, message: str, request_id: str | int | None) -> None:
        logger.warning("rejected a line from the client: %s", message)
        answer = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
        try:
            await self._writer.send_line(json.dumps(answer).encode("utf-8"))
        except anyio.BrokenResourceError:
            logger.debug("the client has closed its end")


def _batch_in(line: bytes) -> list[Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _diagnose(line: bytes) -> tuple[str, str | int | None]:
    """Return a sentence about an invalid line, and its id if it can be found."""
    try:
        value: Any = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return "not a JSON-RPC message", None
    if isinstance(value, list):
        return "this revision has no batches; send one message per line", None
    if not isinstance(value, dict):
        return "not a JSON-RPC message: must be an object", None
    request_id = _valid_id(value.get("id"))
    if value.get("jsonrpc") != "2.0":
        return 'not a JSON-RPC message: jsonrpc must be "2.0"', request_id
    return "not a JSON-RPC message: needs a method as text and, if any, params as an object", request_id


def _valid_id(value: object) -> str | int | None:
    """Return an id that can be sent back, or None: a lone surrogate is not valid UTF-8, and readers fail on it."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return None
    return value
