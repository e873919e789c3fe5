"""HTTP/1.1 requests to one host: streamed bodies, no redirects, no cookies, no compression; h11 parses.

Each request has a connection of its own, to an address that was judged (`coretools.egress.connector`).
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import h11
from anyio import move_on_after

from coretools.config.remote_urls import RemoteUrl
from coretools.egress.connector import Connector
from coretools.errors import Unreachable

PIECE_BYTES = 64 * 1024
HEAD_BYTES = 64 * 1024
"""Longest head of a response."""

T = TypeVar("T")

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Response:
    """The head of a response, and its body as it arrives."""

    status: int
    headers: dict[str, str]
    """By name in lower case; of several the last."""
    body: AsyncIterator[bytes]


class HttpClient:
    """Sends requests to the host of one URL."""

    def __init__(self, url: RemoteUrl, connector: Connector, *, authorities: str = "", idle_seconds: float) -> None:
        """`authorities`: a file with trusted certificates, by default those of the system.

        `idle_seconds`: how long the server may take to accept or to send a single byte.
        """
        self._url = url
        self._connector = connector
        self._authorities = authorities
        self._idle_seconds = idle_seconds

    @asynccontextmanager
    async def request(
        self, method: str, target: str, headers: Headers, body: bytes | AsyncIterator[bytes] = b""
    ) -> AsyncIterator[Response]:
        """Send a request and yield its response. A body of unknown length is sent in chunks.

        Raises:
            Unreachable: no connection, an invalid certificate, or an answer that is not HTTP.
        """
        reader, writer = await self._connect()
        wire = _Wire(
            h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES), reader, writer, self._idle_seconds
        )
        try:
            is_whole = isinstance(body, bytes)
            length = ("Content-Length", str(len(body))) if isinstance(body, bytes) else ("Transfer-Encoding", "chunked")
            common = [("Host", self._url.authority), ("User-Agent", "git/coretools"), ("Connection", "close")]
            sent = [*common, *headers, *([] if is_whole and not body else [length])]
            head = h11.Request(method=method, target=target, headers=sent)
            with suppress(ConnectionError):  # a server may answer before it has read everything
                await wire.send(head, body)
            yield await wire.receive()
        except h11.ProtocolError as error:
            raise Unreachable(f"{self._url.authority}: the answer is not HTTP") from error
        except _Silent as error:
            raise Unreachable(
                f"{self._url.authority}: the server was silent for {self._idle_seconds:g} s (transfer_idle_seconds)"
            ) from error
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connected = await self._connector.open(self._url.host, self._url.port)
        context = None
        try:
            if self._url.scheme == "https":
                context = ssl.create_default_context(cafile=self._authorities or None)
                context.minimum_version = ssl.TLSVersion.TLSv1_2
            name = str(self._url.host) if context else None
            return await asyncio.open_connection(sock=connected, ssl=context, server_hostname=name)
        except OSError as error:
            connected.close()
            reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error.strerror or ""
            raise Unreachable(f"{self._url.authority}: no TLS connection ({str(reason)[:200]})") from error


class _Silent(Exception):
    """The server neither accepted nor sent anything for too long."""


@dataclass(frozen=True, slots=True)
class _Wire:
    """One connection, for one request and its response."""

    connection: h11.Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_seconds: float

    async def send(self, head: h11.Request, body: bytes | AsyncIterator[bytes]) -> None:
        """Send a request."""
        self._write(head)
        if not isinstance(body, bytes):
            async for piece in body:
                self._write(h11.Data(data=piece))
                await self._limited(self.writer.drain())
        elif body:
            self._write(h11.Data(data=body))
        self._write(h11.EndOfMessage())
        await self._limited(self.writer.drain())

    async def receive(self) -> Response:
        """Return the head of the response; its body follows as it arrives."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
                return Response(event.status_code, headers, self._body())
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("no response")

    async def _body(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def _next(self) -> object:
        while (event := self.connection.next_event()) is h11.NEED_DATA:
            self.connection.receive_data(await self._limited(self.reader.read(PIECE_BYTES)))
        return event

    def _write(self, event: h11.Event) -> None:
        self.writer.write(self.connection.send(event) or b"")

    async def _limited(self, work: Awaitable[T]) -> T:
        with move_on_after(self.idle_seconds):
            return await work
        raise _Silent
