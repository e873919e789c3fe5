"""HTTP/1.1 requests to one host: streamed bodies, no redirects, no cookies, no compression; h11 parses.

Each request has a connection of its own, to an address that was judged (`coretools.egress.connector`).
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import h11

from coretools.config.remote_urls import RemoteUrl
from coretools.egress.connector import Connector
from coretools.errors import Unreachable

PIECE_BYTES = 64 * 1024
HEAD_BYTES = 64 * 1024
"""Longest head of a response."""

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

    def __init__(self, url: RemoteUrl, connector: Connector, *, authorities: str = "") -> None:
        """`authorities`: a file with trusted certificates, by default those of the system."""
        self._url = url
        self._connector = connector
        self._authorities = authorities

    @asynccontextmanager
    async def request(
        self, method: str, target: str, headers: Headers, body: bytes | AsyncIterator[bytes] = b""
    ) -> AsyncIterator[Response]:
        """Send a request and yield its response. A body of unknown length is sent in chunks.

        Raises:
            Unreachable: no connection, an invalid certificate, or an answer that is not HTTP.
        """
        reader, writer = await self._connect()
        try:
            connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
            is_whole = isinstance(body, bytes)
            length = ("Content-Length", str(len(body))) if isinstance(body, bytes) else ("Transfer-Encoding", "chunked")
            common = [("Host", self._url.authority), ("User-Agent", "git/coretools"), ("Connection", "close")]
            sent = [*common, *headers, *([] if is_whole and not body else [length])]
            head = h11.Request(method=method, target=target, headers=sent)
            with suppress(ConnectionError):  # a server may answer before it has read everything
                await _send(connection, writer, head, body)
            yield await _receive(connection, reader)
        except h11.ProtocolError as error:
            raise Unreachable(f"{self._url.authority}: the answer is not HTTP") from error
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


async def _send(
    connection: h11.Connection, writer: asyncio.StreamWriter, head: h11.Request, body: bytes | AsyncIterator[bytes]
) -> None:
    writer.write(connection.send(head) or b"")
    if isinstance(body, bytes):
        writer.write(connection.send(h11.Data(data=body)) or b"" if body else b"")
    else:
        async for piece in body:
            writer.write(connection.send(h11.Data(data=piece)) or b"")
            await writer.drain()
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()


async def _receive(connection: h11.Connection, reader: asyncio.StreamReader) -> Response:
    while True:
        event = await _next(connection, reader)
        if isinstance(event, h11.Response):
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
            return Response(event.status_code, headers, _body(connection, reader))
        if not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError("no response")


async def _body(connection: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while isinstance(event := await _next(connection, reader), h11.Data):
        yield bytes(event.data)


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(PIECE_BYTES))
    return event
