"""The proxy under clients that flood, stall, vanish or send garbage, and what it tells about what it refused."""

import asyncio
import logging
import os
import random
import socket
import threading
from contextlib import suppress
from dataclasses import replace

import anyio.lowlevel
import pytest

from coretools.egress.acceptor import ConnectionSlots
from coretools.egress.allow_list import AllowList
from coretools.egress.connector import Connector, SystemResolver
from coretools.egress.peer import PIECE_BYTES
from coretools.egress.proxy import EgressProxy
from tests.egress.loopback import HIDDEN, LIMITS, LISTED, Internet, Server, connect_to, get, loopback, socks
from tests.process.tree import until

GARBAGE = 300
MANY, BATCH = 10_000, 100


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def tunnel(net: Internet) -> bytes:
    return f"CONNECT good.example:{net.port} HTTP/1.1\r\n\r\n".encode()


async def idle(net: Internet, before: int = 1 << 20) -> None:
    """Wait until no connection is left, and no more descriptors than before."""
    await until(lambda: not net.proxy.open_connections and descriptors() <= before)


async def works(net: Internet) -> bool:
    return (await net.send(connect_to(f"good.example:{net.port}"))).endswith(b"hello")


async def test_garbage_gets_an_answer_or_a_close_and_reaches_nobody() -> None:
    """network-10: seeded; the next client is served, and no descriptor is left."""
    random_bytes = random.Random(14)
    async with loopback() as net:
        starts = (b"", b"\5", b"\5\1\0", b"\5\1\0\5\1\0\3", b"CONNECT ", b"GET http://good.example", b"\4", b"\x16\3\1")
        whole = [connect_to(f"good.example:{net.port}"), socks(3, b"good.example", net.port), get("http://x/")]
        before = descriptors()
        for number in range(GARBAGE):
            data = bytearray(starts[number % len(starts)] + random_bytes.randbytes(random_bytes.randrange(60)))
            if number % 3 == 0:
                data = bytearray(whole[number % len(whole)])
                data[random_bytes.randrange(len(data) - 5)] = random_bytes.randrange(256)
            await net.send(bytes(data))
        assert net.reached_canaries == 0
        assert await works(net)
        await idle(net, before)


async def test_a_client_that_stalls_is_closed_at_its_deadline_at_every_stage() -> None:
    """network-10"""
    limits = replace(LIMITS, request_seconds=0.1, idle_seconds=0.1, half_closed_seconds=0.1)
    async with loopback(limits=limits) as net:
        stages = [
            *(b"", b"C", b"CONNECT good.example:1 HTTP/1.1\r\n", b"\5", b"\5\1\0", b"\5\1\0\5\1\0\3\x0cgood"),
            *(tunnel(net), f"PUT http://good.example:{net.port}/ HTTP/1.1\r\nContent-Length: 9\r\n\r\n".encode()),
        ]
        before = descriptors()
        await asyncio.gather(*(net.send(stage, ends=False) for stage in stages))
        await idle(net)
        net.proxy._limits = LIMITS  # a busy machine may take longer
        assert await works(net)
        await idle(net, before)


def flood_with_connections(address: tuple[str, int]) -> set[bytes]:
    """Open connections in batches, and return what they were answered."""
    answers = set()
    for _ in range(MANY // BATCH):
        clients = [socket.create_connection(address) for _ in range(BATCH)]
        for client in clients:
            with client, suppress(ConnectionResetError):
                answers.add(client.recv(13))
    return answers


async def test_ten_thousand_connections_leave_the_proxy_usable() -> None:
    """network-10: those beyond the limit are told so at once; all descriptors are freed."""
    async with loopback(most=16) as net:
        before = descriptors()
        held = [await net.connect() for _ in range(16)]
        await until(lambda: net.proxy.open_connections == 16)
        answers = await asyncio.get_running_loop().run_in_executor(None, flood_with_connections, net.address)
        assert answers <= {b"HTTP/1.1 503 ", b""}
        assert net.proxy.open_connections == 16
        for _, writer in held:
            writer.close()
        del held, writer
        await idle(net, before)
        assert await works(net)
        assert [refusal.reason for refusal in net.proxy.refusals.since(0)] == ["busy"]
        assert net.proxy.refusals.count == MANY


async def test_all_proxies_of_a_server_share_a_limit() -> None:
    """network-10"""
    slots = ConnectionSlots(most=1)
    connector = Connector(AllowList.parse(()))
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    addresses = [listener.getsockname() for listener in listeners]
    proxies = [EgressProxy(listener, connector, limits=LIMITS, slots=slots) for listener in listeners]
    try:
        reader, writer = await asyncio.open_connection(*addresses[0])
        await until(lambda: slots.taken == 1)
        async with asyncio.timeout(20):
            reader, second = await asyncio.open_connection(*addresses[1])
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        writer.close()
        second.close()
    finally:
        for proxy in proxies:
            await proxy.aclose()
    assert slots.taken == 0


async def test_a_client_that_vanishes_takes_its_connection_along() -> None:
    """network-10: with a reset, in a tunnel in use, in the middle of a body, and before the answer."""
    gone = asyncio.Event()

    writes = True

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Server) -> None:
        if writes:
            writer.write(b"x" * 4_000_000)
        try:
            while await reader.read(65536):
                pass
        finally:
            gone.set()

    async with loopback(respond=watch) as net:
        before = descriptors()
        put = f"PUT http://good.example:{net.port}/ HTTP/1.1\r\nContent-Length: 99\r\n\r\nabc".encode()
        for start, writes in (  # noqa: B007  # read by the server
            (tunnel(net), True),
            (tunnel(net), False),
            (put, False),
            (socks(3, b"good.example", net.port), False),
        ):
            gone.clear()
            client = socket.create_connection(net.address)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(start)
            await asyncio.get_running_loop().run_in_executor(None, client.recv, 1 if b"PUT" not in start else 0)
            client.close()
            async with asyncio.timeout(20):
                if b"PUT" not in start:
                    await gone.wait()
        await idle(net, before)


async def test_a_side_that_does_not_read_stops_the_other() -> None:
    """network-10: what is not read stays with the sender; the proxy keeps one piece for each direction."""
    sent = 0
    most = 64 * 1024 * 1024

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Server) -> None:
        nonlocal sent
        while sent < most:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    limits = replace(LIMITS, idle_seconds=0.3)
    async with loopback(respond=flood, limits=limits) as net:
        client = socket.create_connection(net.address)
        client.sendall(tunnel(net))
        await until(lambda: net.servers[LISTED].connections == 1)
        await idle(net)  # nobody reads, so nothing moves, and the idle limit ends it
        assert sent < most // 2
        client.close()


async def test_a_fast_transfer_leaves_the_event_loop_to_others() -> None:
    """network-10: every piece is a turn of the loop, on which the server answers other calls."""
    most, turns = 64 << 20, 0
    listener = socket.create_server((LISTED, 0))

    def flood() -> None:
        with listener, listener.accept()[0] as peer:
            peer.recv(100)
            for _ in range(most >> 20):
                peer.sendall(bytes(1 << 20))

    def fetch(address: tuple[str, int], port: int) -> int:
        with socket.create_connection(address) as client:
            client.sendall(f"CONNECT {LISTED}:{port} HTTP/1.1\r\n\r\ngo".encode())
            found, buffer = 0, bytearray(1 << 20)
            while count := client.recv_into(buffer):
                found += count
            return found

    port = listener.getsockname()[1]
    async with loopback(entries=[f"{LISTED}:{port}"]) as net:
        loop = asyncio.get_running_loop()
        flooding, fetching = loop.run_in_executor(None, flood), loop.run_in_executor(None, fetch, net.address, port)
        while not fetching.done():  # counts the turns
            await anyio.lowlevel.checkpoint()
            turns += 1
        await flooding
        assert await fetching > most
        assert turns >= most // PIECE_BYTES


async def test_both_directions_pass_every_byte_and_both_ends() -> None:
    """network-6: 8 MB there and back; a half-closed tunnel goes on in the other direction."""
    data = random.Random(1).randbytes(1 << 20) * 8

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Server) -> None:
        found = await reader.read(-1)
        writer.write(found[::-1])
        await writer.drain()

    async with loopback(respond=collect) as net:
        reader, writer = await net.connect()
        writer.write(tunnel(net))
        async with asyncio.timeout(60):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            writer.write(data)
            writer.write_eof()
            assert await reader.read(-1) == data[::-1]
        writer.close()


RESPONSES = {
    "closed at once": (b"", b"HTTP/1.1 504 "),
    "not http": (b"SSH-2.0-OpenSSH\r\n\r\n\r\n", b"HTTP/1.1 504 "),
    "switching protocols": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", b"HTTP/1.1 504 "),
    "interim only": (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 504 "),
    "a head without end": (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000, b"HTTP/1.1 504 "),
    "interim first": (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\nbody", b"HTTP/1.1 103 "),
    "keep-alive": (
        b"HTTP/1.1 200 OK\r\nKeep-Alive: 5\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
    ),
    "an early answer": (b"HTTP/1.1 413 Too Large\r\n\r\n", b"HTTP/1.1 413 Too Large\r\nConnection: close\r\n\r\n"),
}


async def test_every_answer_of_a_server_ends_the_connection_and_garbage_is_named() -> None:
    """network-7"""
    said = b""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Server) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)

    async with loopback(respond=respond) as net:
        put = f"PUT http://good.example:{net.port}/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc".encode()
        for what, (said, expected) in RESPONSES.items():  # noqa: B007  # read by the server
            assert (await net.send(put, ends=False)).startswith(expected), what


async def test_a_refusal_says_what_was_refused_and_the_key_that_allows_it(caplog: pytest.LogCaptureFixture) -> None:
    """network-11: to the client in the status line, in the log once, and in the list of refusals."""
    async with loopback() as net:
        caplog.set_level(logging.INFO, "coretools.egress")
        cases = {
            "registry.npmjs.org:443": 'network = [..., "npm"]',
            "example.com:443": 'network = [..., "example.com"]',
            "example.com:8443": 'network = [..., "example.com:8443"]',
            "intranet:443": 'network = [..., "intranet:443"]',
            f"{HIDDEN}:{net.port}": f'network = [..., "{HIDDEN}:{net.port}"]',
            "[::1]:443": 'network = [..., "[::1]"]',
        }
        for authority, key in cases.items():
            for _ in range(2):
                line = (await net.send(connect_to(authority))).split(b"\r\n")[0].decode()
                assert line.startswith(f"HTTP/1.1 403 {authority} is not in the operator's list"), line
                assert key in line
        for key, refusal in zip(cases.values(), net.proxy.refusals.since(0), strict=True):
            assert key in refusal.sentence
        assert len([record for record in caplog.records if "refused: network" in record.message]) == len(cases)
        assert net.proxy.refusals.count == 2 * len(cases)
        AllowList.parse(key.split('"')[1] for key in cases.values())  # every suggestion is an entry


async def test_closing_ends_every_connection_also_from_another_thread() -> None:
    """network-10"""
    async with loopback() as net:
        reader, writer = await net.connect()
        writer.write(tunnel(net))
        await reader.readuntil(b"\r\n\r\n")
        thread = threading.Thread(target=net.proxy.close)
        thread.start()
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        thread.join()
        writer.close()
        with pytest.raises(OSError):  # noqa: PT011
            await net.connect()


async def test_a_failed_look_up_and_a_dead_server_are_told_apart() -> None:
    """network-11"""
    async with loopback({"good.example": ["nonsense"]}, entries=["127.0.0.9:{port}"]) as net:
        assert (await net.send(connect_to(f"good.example:{net.port}"))).startswith(b"HTTP/1.1 502 ")
        assert (await net.send(connect_to(f"127.0.0.9:{net.port}"))).startswith(b"HTTP/1.1 504 ")
        assert [one.reason for one in net.proxy.refusals.since(0)] == ["unresolved", "unreachable"]


async def test_the_resolver_of_the_system_answers_and_fails_without_a_crash() -> None:
    """network-4"""
    resolve = SystemResolver()
    assert "127.0.0.1" in await resolve("localhost", 80)
    for name in ("a" * 64, "xn--.invalid", "no-such-host.invalid"):
        with pytest.raises(OSError):  # noqa: PT011
            await resolve(name, 80)
