"""A client that sends exactly given bytes, and an app that records the requests that reached it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from coretools.web.common.config import LimitsSection
from coretools.web.connection.deadlines import protocol_of
from tests.process.tree import until

SECONDS = 50

Answering = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class RawConnection:
    """One connection. It reads only on request: other bytes wait at the server."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._read = b""

    async def send(self, data: bytes) -> None:
        with anyio.fail_after(SECONDS):
            await self._loop.sock_sendall(self._socket, data)

    async def push(self, data: bytes) -> bool:
        """Send until the other side resets the connection; whether it took everything."""
        with anyio.fail_after(SECONDS):
            try:
                await self._loop.sock_sendall(self._socket, data)
            except ConnectionError:
                return False
            return True

    def end(self) -> None:
        """Shut down the sending side."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    @property
    def is_reset(self) -> bool:
        """Whether the server reset the connection; reported once."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    async def some(self, most: int = 65536) -> bytes:
        """Read what there is; nothing at the end."""
        with anyio.fail_after(SECONDS):
            try:
                return await self._loop.sock_recv(self._socket, most)
            except ConnectionResetError:
                return b""

    async def _more(self) -> None:
        more = await self.some()
        assert more, f"the connection ended after {self._read[:200]!r}"
        self._read += more

    async def answer(self, *, has_body: bool = True) -> Answer:
        """Return the next response; a chunked one is read to its end."""
        with anyio.fail_after(SECONDS):
            head = await self._until(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            status = int(first.split(" ")[1])
            if headers.get("transfer-encoding") == "chunked" and has_body:
                return Answer(status, headers, await self._chunks())
            return Answer(status, headers, await self._exactly(int(headers.get("content-length", "0")) * has_body))

    async def _until(self, end: bytes) -> bytes:
        while end not in self._read:
            await self._more()
        found, _, self._read = self._read.partition(end)
        return found

    async def _exactly(self, count: int) -> bytes:
        while len(self._read) < count:
            await self._more()
        found, self._read = self._read[:count], self._read[count:]
        return found

    async def _chunks(self) -> bytes:
        body = b""
        while count := int(await self._until(b"\r\n"), 16):
            body += await self._exactly(count)
            await self._until(b"\r\n")
        await self._until(b"\r\n")
        return body

    async def rest(self) -> bytes:
        """Return everything until the server closes its end, or resets the connection."""
        while more := await self.some():
            self._read += more
        return self._read


@asynccontextmanager
async def connected(
    port: int, *, receive_buffer: int | None = None, source: str = "127.0.0.1"
) -> AsyncIterator[RawConnection]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.bind((source, 0))
        connection.setblocking(False)
        with anyio.fail_after(SECONDS):
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        yield RawConnection(connection)


async def asked(port: int, data: bytes) -> bytes:
    """Send bytes, and return everything until the server closes the connection."""
    async with connected(port) as raw:
        await raw.push(data)
        return await raw.rest()


@dataclass
class Recorder:
    """An app that reads a whole request, records it, and answers with its path."""

    seen: list[tuple[str, str, bytes]] = field(default_factory=list)
    size: int = 0
    """Size of the response, in addition to the path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.seen.append((scope["method"], scope["path"], body))
        await respond(send, scope["path"].encode() + b"." * self.size)

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _ in self.seen]


async def respond(send: Send, body: bytes = b"ok", *, status: int = 200) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True)
class Served:
    port: int
    state: ServerState
    protocol: Any

    @property
    def connections(self) -> int:
        taken: int = self.protocol.slots.taken
        return taken


@asynccontextmanager
async def served(app: ASGIApp, limits: LimitsSection | None = None, **options: Any) -> AsyncIterator[Served]:
    """Serve an app with our protocol class in uvicorn, on a loopback socket, until the end of the block."""
    protocol = protocol_of(limits or LimitsSection(), **options)
    config = uvicorn.Config(app, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    make: Any = partial(config.http_protocol_class, config=config, server_state=state, app_state={}, _loop=loop)
    server = await loop.create_server(make, "127.0.0.1", 0, backlog=1024)
    try:
        yield Served(server.sockets[0].getsockname()[1], state, protocol)
    finally:
        server.close()
        for task in state.tasks:
            task.cancel()
        for connection in list(state.connections):
            connection.transport.abort()
        await until(lambda: not state.tasks and not state.connections)


async def serves(port: int) -> bool:
    """Whether another client is served."""
    async with connected(port) as raw:
        await raw.send(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
        return (await raw.answer()).status == 200
