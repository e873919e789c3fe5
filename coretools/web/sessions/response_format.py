"""The format of responses in the handshake era: JSON if nothing streams, otherwise an event stream.

The SDK answers every request of that era with a stream, or every one with JSON, which loses progress and questions.
This module buffers the beginning of a stream. If the response comes first, it is sent as JSON. If another message comes
first or the call takes longer, the stream is sent, with the event id from which a client can resume it.

A cancelled request gets no response (basic/utilities/cancellation, "Behavior Requirements"). The SDK still ends its
stream with an error, which is stored for clients that come back and removed from what is sent.
"""

import asyncio
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coretools.web.common.events import is_stream

BUFFER_SECONDS = 0.5
"""A call that takes longer streams, so its client gets an event id to resume from."""

_RESPONSE = re.compile(rb'\{"jsonrpc":"2\.0","id":(?:-?\d+|"(?:[^"\\]|\\.)*"),"(?:result|error)":')
"""The beginning of a response as the SDK writes it; a request or notification has its method there."""

_CANCELLED = re.compile(
    rb'\{"jsonrpc":"2\.0","id":(?:-?\d+|"(?:[^"\\]|\\.)*"),"error":\{"code":-32800,"message":"Request cancelled"\}\}'
)
"""The error that the SDK writes for a cancelled request."""

_DATA = b"data: "
_RETRY = re.compile(rb"retry: \d+")
"""Follows the data of a stream's first event since revision 2025-11-25."""


class ResponseFormatMiddleware:
    """Buffers the beginning of each response to a POST of the handshake era."""

    def __init__(self, app: ASGIApp, *, buffer_seconds: float = BUFFER_SECONDS) -> None:
        self._app = app
        self._buffer_seconds = buffer_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        buffered = _BufferedResponse(send, self._buffer_seconds)
        try:
            await self._app(scope, receive, buffered.send)
        finally:
            buffered.stop()


class _BufferedResponse:
    """The response to one request."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self._waiting: list[Message] = []
        self._is_open = False
        """Whether messages are passed on at once."""
        self._is_done = False
        """Whether the response was sent as JSON, so nothing more may follow."""
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._release: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        """Send or buffer one message of the application."""
        async with self._lock:
            if self._is_done:
                return
            if self._is_open:
                await self._send(without_cancelled(message))
            elif message["type"] == "http.response.start":
                await self._begin(message)
            else:
                await self._buffer(message)

    def stop(self) -> None:
        """Stop buffering; the request is over."""
        for running in (self._timer, self._release):
            if running is not None:
                running.cancel()

    async def _begin(self, message: Message) -> None:
        if message["status"] != 200 or not is_stream(message):
            self._is_open = True
            await self._send(message)
            return
        self._waiting.append(message)
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._time_is_over)

    async def _buffer(self, message: Message) -> None:
        self._waiting.append(message)
        data = _data_of(message.get("body", b""))
        if data is None or not _RESPONSE.match(data):
            # The first event is empty and only carries the id. Anything else needs a stream.
            if data or data is None or not message.get("more_body", False):
                await self._open()
            return
        self._is_done = True
        start = self._waiting[0]
        if _CANCELLED.fullmatch(data):
            await self._send(start)  # an empty stream, without even an event id to resume from
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        kept = [(name, value) for name, value in start["headers"] if name not in _OF_STREAMS]
        headers = [*kept, (b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def _time_is_over(self) -> None:
        self._release = asyncio.get_running_loop().create_task(self._open_late())

    async def _open_late(self) -> None:
        async with self._lock:
            if not self._is_done:
                await self._open()

    async def _open(self) -> None:
        self._is_open = True
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            await self._send(message)


def without_cancelled(message: Message) -> Message:
    """Return a message of a stream, emptied if it is the error for a cancelled request."""
    data = _data_of(message["body"]) if message["type"] == "http.response.body" and message.get("body") else None
    return {**message, "body": b""} if data is not None and _CANCELLED.fullmatch(data) else message


def without_cancelled_response(send: Send) -> Send:
    """Return a `send` for a JSON response; the error for a cancelled request becomes an empty stream."""
    waiting: list[Message] = []

    async def answering(message: Message) -> None:
        if message["type"] == "http.response.start":
            waiting.append(message)
            return
        start = waiting.pop() if waiting else None
        if start is not None and _CANCELLED.fullmatch(message.get("body", b"")):
            kept = [(name, value) for name, value in start["headers"] if name not in _OF_STREAMS]
            start = {**start, "headers": [*kept, (b"content-type", b"text/event-stream")]}
            message = {**message, "body": b""}
        if start is not None:
            await send(start)
        await send(message)

    return answering


_OF_STREAMS = (b"content-type", b"content-length", b"x-accel-buffering", b"connection", b"cache-control")


def _data_of(body: bytes) -> bytes | None:
    """Return the data of the only event in a chunk, as one line; None if the chunk is different."""
    at = body.find(_DATA)
    if at < 0 or (at and body[at - 1 : at] != b"\n"):
        return None if body.strip() else b""
    end = body.find(b"\r\n", at)
    rest = body[end:].strip(b"\r\n") if end >= 0 else b""
    if rest and not _RETRY.fullmatch(rest):
        return None
    return body[at + len(_DATA) : end if end >= 0 else None]
