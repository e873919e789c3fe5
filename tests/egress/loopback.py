"""A small internet on loopback: a listed server, two canaries that nothing may reach, a resolver, and a proxy."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

from coretools.egress.allow_list import AllowList
from coretools.egress.connection import ConnectionLimits
from coretools.egress.connector import ConnectLimits, Connector, Decision
from coretools.egress.proxy import EgressProxy

LISTED, CANARY, HIDDEN = "127.0.0.2", "127.0.0.3", "127.0.0.4"
"""The listed server; a canary whose address is allowed, so that only names keep it apart; one that nothing allows."""

LIMITS = ConnectionLimits(drain_seconds=20)
"""Generous, for a busy machine: clients of the tests read their answers and close."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A server that counts its connections and keeps what they sent."""

    connections: int = 0
    received: bytearray = field(default_factory=bytearray)


@dataclass
class Internet:
    """Where tests send their requests, and what has arrived."""

    port: int
    """Of every server."""
    proxy: EgressProxy
    address: tuple[str, int]
    """Of the proxy."""
    servers: Mapping[str, Server]
    looked_up: list[str]

    @property
    def reached_canaries(self) -> int:
        return self.servers[CANARY].connections + self.servers[HIDDEN].connections

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address)

    async def send(self, data: bytes, *, ends: bool = True) -> bytes:
        """Send data to the proxy and return everything that it answers."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            if ends:
                writer.write_eof()
            async with asyncio.timeout(20):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def reasons(self, data: bytes) -> list[str]:
        """Send data, and return why it was refused."""
        before = self.proxy.refusals.count
        await self.send(data)
        return [refusal.reason for refusal in self.proxy.refusals.since(before)]


def connect_to(authority: str | bytes) -> bytes:
    text = authority.encode("utf-8", "surrogateescape") if isinstance(authority, str) else authority
    return b"CONNECT " + text + b" HTTP/1.1\r\n\r\nhello"


def get(url: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {url} HTTP/1.1", *fields, "", ""]).encode("utf-8")


def socks(kind: int, address: bytes, port: int, *, command: int = 1) -> bytes:
    name = bytes((len(address),)) + address if kind == 3 else address
    return b"\5\1\0" + bytes((5, command, 0, kind)) + name + struct.pack(">H", port) + b"hello"


def greeting(name: str | None) -> bytes:
    """The first message of a TLS client."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("no peer, no handshake")


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Server) -> None:
    """Answer http with a short page, and send everything else back."""
    first = await reader.read(65536)
    server.received += first
    if b" HTTP/1.1\r\n" in first:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
        writer.write_eof()
        while piece := await reader.read(65536):
            server.received += piece
        return
    writer.write(first)
    while piece := await reader.read(65536):
        server.received += piece
        writer.write(piece)
        await writer.drain()


@asynccontextmanager
async def loopback(
    names: Mapping[str, Sequence[str]] | None = None,
    *,
    entries: Sequence[str] = (),
    limits: ConnectionLimits = LIMITS,
    decide: Decision | None = None,
    respond: Callable[[asyncio.StreamReader, asyncio.StreamWriter, Server], Awaitable[None]] = answer,
    most: int = 128,
) -> AsyncIterator[Internet]:
    """Start the servers and a proxy that admits `good.example`, `*.wild.example` and `entries`, on the servers' port.

    Names that `names` does not have lead to the canary with the allowed address. `{port}` in an entry is the port.
    """
    known = {"good.example": [LISTED], "a.wild.example": [LISTED], "x.a.wild.example": [LISTED], **(names or {})}
    looked_up: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        looked_up.append(name)
        found = known.get(name, [CANARY])
        return found.pop(0).split(",") if isinstance(found, list) and len(found) > 1 else found[0].split(",")

    async with AsyncExitStack() as stack:
        servers: dict[str, Server] = {}
        listeners = _listeners()
        for host, listener in listeners.items():
            servers[host] = server = Server()
            listening = await asyncio.start_server(_counted(server, respond), sock=listener)
            stack.push_async_callback(_stop, listening)
        port = listeners[LISTED].getsockname()[1]
        listed = ["good.example:{port}", "*.wild.example:{port}", f"{LISTED}:{{port}}", f"{CANARY}:{{port}}", *entries]
        allowed = AllowList.parse(entry.format(port=port) for entry in listed)
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        address = listener.getsockname()
        connector = Connector(
            allowed, resolver=resolve, decide=decide, limits=ConnectLimits(resolve_seconds=5, address_seconds=5)
        )
        proxy = EgressProxy(listener, connector, limits=limits, most=most)
        stack.push_async_callback(proxy.aclose)
        yield Internet(port, proxy, address, servers, looked_up)


def _listeners() -> dict[str, socket.socket]:
    """Listen on one port at every address; another program may have a port at one of them."""
    while True:
        with ExitStack() as undo, suppress(OSError):
            found: dict[str, socket.socket] = {}
            for host in (LISTED, CANARY, HIDDEN, "127.0.0.1"):
                port = found[LISTED].getsockname()[1] if found else 0
                found[host] = undo.enter_context(socket.create_server((host, port)))
            undo.pop_all()
            return found


def _counted(
    server: Server, respond: Callable[[asyncio.StreamReader, asyncio.StreamWriter, Server], Awaitable[None]]
) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        try:
            await respond(reader, writer, server)
        except ConnectionError:
            pass
        finally:
            writer.close()

    return serve


async def _stop(server: asyncio.Server) -> None:
    server.close()
