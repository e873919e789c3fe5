"""Deadlines and limits of connections, and how their bytes are parsed (docs/specs/validation.md), on raw sockets."""

import asyncio
import gc
import random
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from functools import partial
from pathlib import Path

import anyio
import h11
import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from coretools.errors import BadSetting
from coretools.web.common.config import LimitsSection, ServerSection
from coretools.web.connection.connection_slots import ConnectionSlots
from coretools.web.connection.deadlines import MOST_DISCARDED, TimedProtocol, protocol_of
from coretools.web.connection.tls import tls_context, warn_of_key
from coretools.web.validation.request_head import fault_in
from tests.web.certificates import write_certificate
from tests.web.raw_peer import Recorder, asked, connected, respond, served, serves, until

QUICK = LimitsSection(header_seconds=0.4, body_seconds=0.4, write_seconds=0.4, keep_alive_seconds=0.4)
GET = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /%s HTTP/1.1\r\nHost: a\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


def test_the_private_names_of_uvicorn_exist() -> None:
    """validation-20: the names of uvicorn that are not public and are used here."""
    for name in (
        "connection_made", "connection_lost", "data_received", "eof_received", "send_400_response", "shutdown",
        "on_response_complete", "_unset_keepalive_if_required", "timeout_keep_alive_handler",
    ):  # fmt: skip
        assert callable(getattr(H11Protocol, name)), name
    assert "keep_alive" in RequestResponseCycle.__init__.__code__.co_names
    assert issubclass(protocol_of(LimitsSection()), H11Protocol)


async def test_the_private_state_of_uvicorn_exists() -> None:
    """validation-20: attributes, as an app finds them on its connection during a request."""
    found: list[TimedProtocol] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.extend(running.state.connections)  # type: ignore[arg-type]
        await respond(send)

    async with served(app) as running, connected(running.port) as raw:
        await raw.send(GET % b"x")
        await raw.answer()
    (one,) = found
    for name in ("app", "conn", "cycle", "flow", "headers", "loop", "scope", "timeout_keep_alive", "transport"):
        assert getattr(one, name) is not None, name
    for name in ("disconnected", "keep_alive", "message_event", "response_complete", "waiting_for_100_continue"):
        assert hasattr(one.cycle, name), name
    assert one.ws_protocol_class is None
    assert hasattr(one, "timeout_keep_alive_task")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\nX: y"], ids=["none", "line", "half"])
async def test_an_incomplete_header_has_a_deadline(sent: bytes) -> None:
    """validation-1: slow loris; a client that sent nothing gets no response, others 408."""
    app = Recorder()
    async with served(app, QUICK) as running:
        answer = await asked(running.port, sent)
        assert answer.startswith(b"HTTP/1.1 408 ") if sent else not answer
        assert await serves(running.port)
    assert app.paths == ["/next"]


async def test_a_trickling_header_does_not_extend_its_deadline() -> None:
    """validation-1: the deadline counts from the first byte."""
    async with served(Recorder(), QUICK) as running, connected(running.port) as raw:
        ended = anyio.Event()

        async def trickle() -> None:
            while not ended.is_set():
                assert await serves(running.port)  # a byte for each request of another client
                await raw.push(b"X")

        await raw.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trickle)
            assert (await raw.rest()).startswith(b"HTTP/1.1 408 ")
            ended.set()


async def test_the_second_request_of_a_connection_has_the_same_deadline() -> None:
    """validation-1: from its first byte; until then the keep-alive timeout counts, which ends silently."""
    async with served(Recorder(), QUICK) as running:
        async with connected(running.port) as raw:
            await raw.send(GET % b"one")
            assert (await raw.answer()).body == b"/one"
            await raw.send(b"GET /two HT")
            assert (await raw.rest()).startswith(b"HTTP/1.1 408 ")
        async with connected(running.port) as raw:
            await raw.send(GET % b"one")
            assert (await raw.answer()).body == b"/one"
            assert await raw.rest() == b""


@pytest.mark.parametrize("framing", [b"Content-Length: 10\r\n\r\n12345", b"Transfer-Encoding: chunked\r\n\r\n5\r\n12"])
async def test_an_incomplete_body_has_a_deadline(framing: bytes) -> None:
    """validation-2: 408; the app receives a disconnect."""
    heard: list[str] = []
    ended = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "http.request":
            pass
        heard.append(message["type"])
        await respond(send)  # an app that ignores the disconnect
        ended.set()

    async with served(app, QUICK) as running:
        answer = await asked(running.port, POST % b"x" + framing)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert answer.count(b"HTTP/1.1") == 1
        with anyio.fail_after(25):
            await ended.wait()
    assert heard == ["http.disconnect"]


async def test_a_slow_app_is_waited_for() -> None:
    """validation-2: deadlines apply to what the client sends; a response may take longer than all of them."""
    go_on = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await go_on.wait()
        await respond(send)

    async with served(app, QUICK) as running, connected(running.port) as slow:
        await slow.send(POST % b"slow" + b"Content-Length: 1\r\n\r\nx")
        await asked(running.port, b"")  # as long as a header may take
        await asked(running.port, b"G")
        go_on.set()
        assert (await slow.answer()).status == 200


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    """validation-3: its response is freed and its app ended; others are served meanwhile."""
    ended = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/next":
            await respond(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            for _ in range(1024):
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        finally:
            ended.set()

    async with served(app, QUICK) as running, connected(running.port, receive_buffer=4096) as raw:
        await raw.send(GET % b"x")
        assert await serves(running.port)
        with anyio.fail_after(50):
            await ended.wait()
        await until(lambda: running.connections == 0)


async def test_an_app_that_sends_small_pieces_waits_for_a_client_that_reads_nothing() -> None:
    """validation-32: the write buffer is bounded, also if the app itself never awaits anything."""
    waiting: list[int] = []
    ended = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        (one,) = running.state.connections
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            for _ in range(20_000):
                await send({"type": "http.response.body", "body": b"x" * 1024, "more_body": True})
                waiting.append(one.transport.get_write_buffer_size())
        finally:
            ended.set()

    async with served(app, QUICK) as running, connected(running.port, receive_buffer=4096) as raw:
        await raw.send(GET % b"x")
        with anyio.fail_after(50):
            await ended.wait()
        assert max(waiting) < 256 * 1024
        await until(lambda: running.connections == 0)


async def test_header_and_body_of_a_response_are_sent_together() -> None:
    """validation-32: in one piece, so that the client wakes once."""
    async with served(Recorder()) as running, connected(running.port) as raw:
        await raw.send(GET % b"x")
        piece = await raw.some()
        assert piece.startswith(b"HTTP/1.1 200 ")
        assert piece.endswith(b"\r\n\r\n/x")


async def test_a_client_that_reads_nothing_of_a_whole_response_is_cut_off() -> None:
    """validation-3: also if the app has finished."""
    async with served(Recorder(size=16_000_000), QUICK) as running:
        async with connected(running.port, receive_buffer=4096) as raw:
            await raw.send(GET % b"x")
            await until(lambda: running.connections == 1)
            await until(lambda: running.connections == 0)
            received = await raw.rest()
        assert len(received) < 16_000_000
        assert await serves(running.port)


async def test_a_client_that_reads_slowly_is_not_cut_off() -> None:
    """validation-3: slow but steady."""
    size = 8_000_000
    limits = LimitsSection(header_seconds=0.03, write_seconds=0.4)
    async with served(Recorder(size=size), limits) as running, connected(running.port, receive_buffer=1 << 18) as raw:
        await raw.send(GET % b"x")
        received = 0
        while received < size:
            received += len(await raw.some(65536 * 4))
            await asked(running.port, b"")  # takes as long as a header may
        assert received > size


async def test_beyond_the_connection_limit_a_client_is_refused_and_the_next_free_slot_is_used() -> None:
    """validation-4: 503, with Retry-After."""
    async with served(Recorder(), LimitsSection(connections=3)) as running:
        async with connected(running.port) as first, connected(running.port), connected(running.port):
            await until(lambda: running.connections == 3)
            answer = await asked(running.port, b"")
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after" in answer
            await first.send(GET % b"one")
            assert (await first.answer()).body == b"/one"
        await until(lambda: running.connections == 0)
        assert await serves(running.port)


async def test_one_address_has_no_more_than_its_share() -> None:
    """validation-5: the slots of one address leave room for others."""
    async with served(Recorder(), LimitsSection(connections=8), shared=()) as running:
        async with connected(running.port, source="127.0.0.2"), connected(running.port, source="127.0.0.2"):
            await until(lambda: running.connections == 2)
            async with connected(running.port, source="127.0.0.2") as third:
                assert (await third.rest()).startswith(b"HTTP/1.1 503 ")
            assert await serves(running.port)
        await until(lambda: running.connections == 0)


def test_addresses_shared_by_many_clients_have_no_share() -> None:
    """validation-5: loopback, sockets without an address, declared proxies; an IPv6 /64 network is one address."""
    slots = ConnectionSlots(8, shared=("127.0.0.0/8", "10.0.0.7"))
    for address in ("127.0.0.1", "10.0.0.7", "::ffff:10.0.0.7", None):
        assert [slots.acquire(address), slots.acquire(address), slots.acquire(address)] == [
            "",
            "",
            "",
        ] or slots.taken == 8
        while slots.taken:
            slots.release("")
    assert [slots.acquire(f"2001:db8::{number}") for number in range(3)] == ["2001:db8::/64", "2001:db8::/64", None]
    assert slots.acquire("2001:db8:0:1::1") is not None
    assert slots.acquire("fe80::1%eth0") is not None
    slots.release("2001:db8::/64")
    assert slots.acquire("2001:db8::9") == "2001:db8::/64"
    assert ConnectionSlots(1).acquire("192.0.2.1") == "192.0.2.1"  # a share is at least one
    with pytest.raises(BadSetting, match=r"proxy\.example"):
        ConnectionSlots(8, shared=("proxy.example",))


BODY = b"0\r\n\r\n"

AMBIGUOUS = {
    "length-twice": POST % b"x" + b"Content-Length: 0\r\nContent-Length: 36\r\n\r\n" + SMUGGLED,
    "length-twice-same": POST % b"x" + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
    "length-list": POST % b"x" + b"Content-Length: 0, 0\r\n\r\n" + SMUGGLED,
    "length-plus": POST % b"x" + b"Content-Length: +0\r\n\r\n" + SMUGGLED,
    "length-hex": POST % b"x" + b"Content-Length: 0x0\r\n\r\n" + SMUGGLED,
    "length-negative": POST % b"x" + b"Content-Length: -1\r\n\r\n" + SMUGGLED,
    "length-empty": POST % b"x" + b"Content-Length:\r\n\r\n" + SMUGGLED,
    "length-huge": POST % b"x" + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n" + SMUGGLED,
    "coding-twice": POST % b"x" + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY + SMUGGLED,
    "coding-other": POST % b"x" + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + BODY + SMUGGLED,
    "coding-identity": POST % b"x" + b"Transfer-Encoding: identity\r\n\r\n" + SMUGGLED,
    "coding-prefix": POST % b"x" + b"Transfer-Encoding: xchunked\r\n\r\n" + BODY + SMUGGLED,
    "coding-vertical-tab": POST % b"x" + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + BODY + SMUGGLED,
    "space-before-colon": POST % b"x" + b"Content-Length : 36\r\n\r\n" + SMUGGLED,
    "folded-length": POST % b"x" + b"Content-Length:\r\n 36\r\n\r\n" + SMUGGLED,
    "folded-coding": POST % b"x" + b"Transfer-Encoding: chunked\r\n , identity\r\n\r\n" + BODY + SMUGGLED,
    "folded-first": b"POST /x HTTP/1.1\r\n Host: a\r\n\r\n" + SMUGGLED,
    "bare-line-feeds": b"POST /x HTTP/1.1\nHost: a\nContent-Length: 0\n\n" + SMUGGLED,
    "one-bare-line-feed": POST % b"x" + b"X: y\nContent-Length: 36\r\n\r\n" + SMUGGLED,
    "bare-return": POST % b"x" + b"X: y\rContent-Length: 36\r\n\r\n" + SMUGGLED,
    "nul": POST % b"x" + b"X: a\0b\r\n\r\n" + SMUGGLED,
    "control": POST % b"x" + b"X: a\x01b\r\n\r\n" + SMUGGLED,
    "no-name": POST % b"x" + b": x\r\n\r\n" + SMUGGLED,
    "no-colon": POST % b"x" + b"Content-Length 36\r\n\r\n" + SMUGGLED,
    "no-host": b"POST /x HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
    "host-twice": POST % b"x" + b"Host: b\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
    "http-0.9": b"GET /x\r\n\r\n" + SMUGGLED,
    "other-version": b"POST /x HTTP/11.1\r\nHost: a\r\n\r\n" + SMUGGLED,
    "lower-case-version": b"POST /x http/1.1\r\nHost: a\r\n\r\n" + SMUGGLED,
    "two-spaces": b"POST  /x HTTP/1.1\r\nHost: a\r\n\r\n" + SMUGGLED,
    "space-in-path": b"POST /x /y HTTP/1.1\r\nHost: a\r\n\r\n" + SMUGGLED,
    "beyond-ascii-in-path": b"POST /\xff HTTP/1.1\r\nHost: a\r\n\r\n" + SMUGGLED,
    "line-before": b"\r\n" + SMUGGLED,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64 + b"\r\n\r\n" + SMUGGLED,
    "http-2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0",
    "proxy-line": b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + SMUGGLED,
}


async def test_an_ambiguous_header_is_refused() -> None:
    """validation-6: no request on that connection is executed, and the next client is served."""
    for sent in AMBIGUOUS.values():
        app = Recorder()
        async with served(app) as running:
            answer = await asked(running.port, sent)
            assert answer.split(b" ")[1] in (b"400", b"501", b"505"), answer
            assert answer.count(b"HTTP/1.1 ") == 1, sent
            assert b'"kind"' in answer, sent
            assert await serves(running.port), sent
        assert app.paths == ["/next"], sent


CHUNKED = POST % b"x" + b"Transfer-Encoding: chunked\r\n\r\n"
BROKEN = {
    "no-number": CHUNKED + b"x\r\nab\r\n0\r\n\r\n" + SMUGGLED,
    "negative": CHUNKED + b"-2\r\nab\r\n0\r\n\r\n" + SMUGGLED,
    "prefix": CHUNKED + b"0x2\r\nab\r\n0\r\n\r\n" + SMUGGLED,
    "overflow": CHUNKED + b"f" * 32 + b"\r\nab\r\n0\r\n\r\n" + SMUGGLED,
    "too-short": CHUNKED + b"1\r\nab\r\n0\r\n\r\n" + SMUGGLED,
    "bare-line-feed": CHUNKED + b"2\nab\n0\n\n" + SMUGGLED,
    "feed-in-extension": CHUNKED + b"2;a\nb\r\nab\r\n0\r\n\r\n" + SMUGGLED,
    "giant-extension": CHUNKED + b"2;" + b"a" * 300_000,
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN.keys())
async def test_malformed_chunks_are_refused(sent: bytes) -> None:
    """validation-6: neither the request nor what follows it is executed."""
    app = Recorder()
    async with served(app) as running:
        answer = await asked(running.port, sent)
        assert answer.split(b" ")[1] in (b"400", b"431"), answer
        assert await serves(running.port)
    assert app.paths == ["/next"]


async def test_many_small_chunks_are_refused_before_they_are_read() -> None:
    """validation-7: all at once, or trickling; parsing that costs a hundred times the bytes delays no other client."""
    app = Recorder()
    async with served(app) as running:
        for _ in range(2):
            assert (await asked(running.port, CHUNKED + b"1\r\nx\r\n" * 40_000)).startswith(b"HTTP/1.1 400 ")
        async with connected(running.port) as raw:
            await raw.send(CHUNKED)
            for _ in range(200):
                await raw.push(b"1\r\nx\r\n" * 100)
            assert (await raw.rest()).startswith(b"HTTP/1.1 400 ")
        async with connected(running.port) as raw:  # of a size that a real client uses
            await raw.send(CHUNKED + b"40\r\n" + b"x" * 64 + b"\r\n" + b"20\r\n" + b"y" * 32 + b"\r\n0\r\n\r\n")
            assert (await raw.answer()).status == 200
    assert app.seen == [("POST", "/x", b"x" * 64 + b"y" * 32)]


BEHIND = {
    "request": GET % b"one" + SMUGGLED,
    "behind-a-body": POST % b"one" + b"Content-Length: 3\r\n\r\nabc" + SMUGGLED,
    "behind-chunks": POST % b"one" + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "garbage": POST % b"one" + b"Content-Length: 3\r\n\r\nabcdef\0\xff\r\n\r\n",
    "with-upgrade": GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n") % b"one" + SMUGGLED,
    "with-close": GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") % b"one" + SMUGGLED,
    "with-both-lengths": POST % b"one" + b"Content-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY + SMUGGLED,
    "websocket": b"GET /one HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + SMUGGLED,
}


@pytest.mark.parametrize("sent", BEHIND.values(), ids=BEHIND.keys())
async def test_bytes_behind_a_request_are_not_executed(sent: bytes) -> None:
    """validation-8: the request is answered, nothing else is executed, and the connection closes after the response."""
    app = Recorder()
    async with served(app) as running:
        answer = await asked(running.port, sent)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"/one")
        assert await serves(running.port)
    assert app.paths == ["/one", "/next"]


async def test_bytes_behind_a_request_are_bounded_and_do_not_hide_a_disconnect() -> None:
    """validation-8: they are dropped during the response; a disconnect is seen, too many close the connection."""
    ends: list[str] = []
    began = ended = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        began.set()
        ends.append((await receive())["type"])
        ended.set()

    for flood in (b"x" * 1000, b"x" * 1_000_000):
        began, ended = anyio.Event(), anyio.Event()
        async with served(app) as running:
            async with connected(running.port) as raw:
                await raw.send(GET % b"one" + SMUGGLED)
                await began.wait()
                await raw.push(flood)
                if len(flood) > 1000:
                    await raw.rest()
            await ended.wait()
            await until(lambda: running.connections == 0)
    assert ends == ["http.disconnect"] * 2


async def test_an_early_response_to_a_large_request_arrives_and_closes_the_connection() -> None:
    """validation-9: the client gets it although it goes on sending; the rest is dropped, and bounded."""
    app = _EarlyResponder()
    async with served(app, LimitsSection(body_bytes=200_000)) as running:
        for framing in (b"Content-Length: 100000", b"Transfer-Encoding: chunked", b"Content-Length: 9\r\n" + EXPECT):
            async with connected(running.port) as raw:
                await raw.send(POST % b"x" + framing + b"\r\n\r\n" + b"5\r\na")
                answer = await raw.answer()
                assert (answer.status, answer.headers["connection"]) == (413, "close")
                await raw.push(b"a" * 99_900 + SMUGGLED)
                assert await raw.rest() == b""
        async with connected(running.port) as raw:
            await raw.send(POST % b"x" + b"Content-Length: 100000000\r\n\r\n")
            assert (await raw.answer()).status == 413
            await raw.push(b"a" * 10_000_000)
            await raw.rest()
        await until(lambda: running.connections == 0)
    assert app.count == 4


EXPECT = b"Expect: 100-continue"


@pytest.mark.parametrize("seed", range(10))
async def test_a_connection_goes_on_after_an_early_response_to_a_small_request(seed: int) -> None:
    """validation-9: the rest of a body is not parsed as a request, what follows is, wherever the bytes are split."""
    chance = random.Random(seed)
    app = _EarlyResponder()
    async with served(app) as running, connected(running.port) as raw:
        rest = b""
        for count in range(1, 6):
            size = chance.choice([1, 30, 5_000, MOST_DISCARDED])
            body = (SMUGGLED * (size // len(SMUGGLED) + 1))[:size]
            sent = rest + POST % b"x" + b"Content-Length: %d\r\n\r\n" % size
            cut = chance.randrange(1, len(sent))
            await raw.send(sent[:cut])
            await raw.send(sent[cut:])
            answer = await raw.answer()
            assert (answer.status, app.count, "connection" in answer.headers) == (413, count, False)
            cut = chance.randrange(size)
            await raw.send(body[:cut])
            rest = body[cut:]  # in one piece with the next request
        assert running.connections == 1


async def test_the_rest_of_a_small_body_and_an_idle_connection_have_their_deadlines() -> None:
    """validation-9, validation-2: a client that was answered keeps its slot no longer than others."""
    async with served(_EarlyResponder(), QUICK) as running:
        for behind in (b"", b"abc"):
            async with connected(running.port) as raw:
                await raw.send(POST % b"x" + b"Content-Length: 3\r\n\r\n")
                assert (await raw.answer()).status == 413
                await raw.send(behind)
                assert await raw.rest() == b""
        await until(lambda: running.connections == 0)


class _EarlyResponder:
    """Responds without reading."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.count += 1
        await respond(send, b"no", status=413)


@pytest.mark.parametrize(
    "sent",
    [
        GET.replace(b"\r\n\r\n", b"\r\nX: " + b"y" * 20_000 + b"\r\n\r\n") % b"x",
        GET.replace(b"\r\n\r\n", b"\r\nX: " + b"y" * 500_000) % b"x",
        GET.replace(b"\r\n\r\n", b"\r\nX: y" * 10_000 + b"\r\n\r\n") % b"x",
        GET.replace(b"\r\n\r\n", b"\r\nX: y" * 80 + b"\r\n\r\n") % b"x",
        b"GET /" + b"x" * 30_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"G" * 300_000,
    ],
    ids=["long", "endless", "ten-thousand", "eighty", "path", "no-line"],
)
async def test_a_header_that_is_too_long_is_refused(sent: bytes) -> None:
    """validation-10: in bytes and in fields, whole or not, before it is parsed."""
    app = Recorder()
    async with served(app) as running:
        answer = await asked(running.port, sent)
        assert answer.startswith(b"HTTP/1.1 431 "), answer
        assert await serves(running.port)
    assert app.paths == ["/next"]


async def test_a_split_request_is_parsed_like_a_whole_one() -> None:
    """validation-6: wherever TCP splits it."""
    whole = POST % b"x" + b"Content-Length: 11\r\nX:\ty z\r\n\r\nhello\r\nworl"
    app = Recorder()
    async with served(app) as running, connected(running.port) as raw:
        for seed in range(20):
            rest = whole
            while rest:
                count = random.Random(seed + len(rest)).randint(1, 9)
                await raw.send(rest[:count])
                rest = rest[count:]
            assert (await raw.answer()).status == 200
    assert app.seen == [("POST", "/x", b"hello\r\nworl")] * 20


def test_an_accepted_header_is_accepted_by_h11_with_the_same_fields() -> None:
    """validation-6: an accepted header has one reading: as many fields as lines, each with the bytes of its line."""
    for seed in range(300):
        source = random.Random(seed)
        whole = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nAccept: b, c\r\nX-A:  d\t\r\n\r\n"
        mutated = bytearray(whole)
        for _ in range(source.randint(0, 3)):
            at = source.randrange(len(mutated))
            mutated[at : at + source.randint(0, 1)] = source.choice(
                [b"\r", b"\n", b" ", b"\t", b":", b"\0", b",", b"\r\n "]
            )
        head = bytes(mutated)
        if fault_in(head, most_bytes=1000) is not None or not head.endswith(b"\r\n\r\n"):
            return
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(head)
        try:
            request = connection.next_event()
        except h11.RemoteProtocolError:
            return
        if isinstance(request, h11.Request):
            lines = head.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
            assert [value for _, value in request.headers] == [
                line.partition(b":")[2].strip(b" \t") for line in lines
            ], seed


async def test_no_state_of_a_connection_is_left() -> None:
    """validation-4: after every kind of end no slot, no timer and no connection is left."""
    app = Recorder()
    async with served(app, QUICK) as running:
        for sent in (b"", b"G", GET % b"x", POST % b"x" + b"Content-Length: 9\r\n\r\n", b"\0", CHUNKED + b"zz\r\n"):
            async with connected(running.port) as raw:
                await raw.send(sent)
            await asked(running.port, sent)
        await until(lambda: running.connections == 0)
        assert not running.state.connections
        assert await serves(running.port)


def _referenced(*kinds: type) -> int:
    """Objects of these types that are still referenced."""
    return sum(isinstance(one, kinds) for one in gc.get_objects())


def _asked_over_tls(port: int, trusting: ssl.SSLContext, *, is_clean: bool) -> bytes:
    """What a connection of its own receives; an unclean client leaves in the middle of the response."""
    with (
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        trusting.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        secured.sendall(GET.replace(b"Host", b"Connection: close\r\nHost") % b"x")
        return b"".join(iter(lambda: secured.recv(65_536), b"")) if is_clean else b""


@pytest.mark.parametrize("is_secured", [True, False], ids=["TLS", "plain"])
async def test_connections_are_freed_without_the_garbage_collector(
    certificate: ServerSection, is_secured: bool
) -> None:
    """validation-35: with TLS each would keep 256 KiB until the collector runs, which is rare."""
    trusting = ssl.create_default_context(cafile=certificate.tls_certificate)
    tls = tls_context(certificate) if is_secured else None
    bad: list[bytes] = [b"", b"\x16\x03\x01\x02\x00", GET % b"x", POST % b"x" + b"Content-Length: 9\r\n\r\n", b"\0"]
    full = QUICK.model_copy(update={"connections": 1})
    app = Recorder(size=2_000_000)
    async with served(app, QUICK, tls=tls) as running, served(app, full, tls=tls) as other:
        gc.collect()
        gc.disable()
        try:
            for sent in bad:
                async with connected(running.port) as raw:
                    await raw.push(sent)
                await asked(running.port, sent)
            for is_clean in (True, False) if is_secured else ():
                await anyio.to_thread.run_sync(partial(_asked_over_tls, running.port, trusting, is_clean=is_clean))
            async with connected(other.port):
                await until(lambda: other.connections == 1)
                await asked(other.port, b"")  # is refused
            await until(lambda: not running.connections and not other.connections)
            await until(lambda: not _referenced(running.protocol, other.protocol, SSLProtocol, RequestResponseCycle))
        finally:
            gc.enable()


async def test_the_server_ends_although_a_client_keeps_sending() -> None:
    """validation-9: the shutdown does not wait for bytes that are only dropped."""
    async with served(_EarlyResponder()) as running, connected(running.port) as raw:
        await raw.send(POST % b"x" + b"Content-Length: 50000\r\n\r\n")
        assert (await raw.answer()).status == 413
        for one in list(running.state.connections):
            one.shutdown()
        with anyio.fail_after(50):
            await until(lambda: running.connections == 0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ServerSection:
    """A self-signed certificate for this machine."""
    made = write_certificate(tmp_path_factory.mktemp("tls"))
    return ServerSection(tls_certificate=str(made.path), tls_key=str(made.key))


async def test_tls_works_and_its_handshake_has_the_deadline_of_a_header(certificate: ServerSection) -> None:
    """validation-1, validation-4: a connection that sends nothing, or half a handshake, takes a slot and loses it."""
    app = Recorder(size=200_000)
    trusting = ssl.create_default_context(cafile=certificate.tls_certificate)
    async with served(app, QUICK, tls=tls_context(certificate)) as running:
        for sent in (b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
            async with connected(running.port) as raw:
                await raw.push(sent)
                await raw.rest()
            await until(lambda: running.connections == 0)
        with anyio.fail_after(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trusting)
            for path in (b"one", b"two"):
                writer.write(GET % path)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 ")
                await reader.readexactly(200_004)
            writer.write(GET.partition(b"HTTP")[0] % b"three")
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
            writer.close()
            await writer.wait_closed()
        await until(lambda: running.connections == 0)
    assert app.paths == ["/one", "/two"]


async def test_the_shutdown_waits_for_no_idle_tls_connection(certificate: ServerSection) -> None:
    """http-18: a pool reads only when it uses a connection. What was sent arrives, and the end of stream too."""
    trusting = ssl.create_default_context(cafile=certificate.tls_certificate)
    patient = LimitsSection(header_seconds=600, keep_alive_seconds=600)
    size = 50_000
    async with served(Recorder(size=size), patient, tls=tls_context(certificate)) as running:
        with (
            socket.create_connection(("127.0.0.1", running.port), 20) as plain,
            anyio.fail_after(50),
            await anyio.to_thread.run_sync(
                lambda: trusting.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
            ) as secured,
        ):
            await anyio.to_thread.run_sync(secured.sendall, GET % b"one")
            await until(lambda: any(one.cycle and one.cycle.response_complete for one in running.state.connections))
            for one in list(running.state.connections):
                one.shutdown()
            await until(lambda: running.connections == 0)
            read = bytearray()
            while piece := await anyio.to_thread.run_sync(secured.recv, 65_536):
                read += piece
    assert len(read.partition(b"\r\n\r\n")[2]) == size + 4, "without its close_notify the read above would have failed"


async def test_the_shutdown_meets_a_tls_connection_that_was_just_lost(certificate: ServerSection) -> None:
    """http-18: asyncio closes its transport one turn of the event loop before it notifies the protocol."""
    trusting = ssl.create_default_context(cafile=certificate.tls_certificate)
    async with served(Recorder(), tls=tls_context(certificate)) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trusting)
        writer.write(GET % b"one")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        (one,) = running.state.connections
        writer.transport.abort()
        await until(one.transport.is_closing)
        one.shutdown()
        await until(lambda: running.connections == 0)


async def test_beyond_the_connection_limit_no_tls_handshake_begins(certificate: ServerSection) -> None:
    """validation-4: the connection is closed at once; a handshake costs more than a slot."""
    limits = LimitsSection(connections=1)
    async with served(Recorder(), limits, tls=tls_context(certificate)) as running:
        async with connected(running.port):
            await until(lambda: running.connections == 1)
            assert await asked(running.port, b"") == b""
        await until(lambda: running.connections == 0)


def test_a_certificate_that_can_not_be_used_ends_the_start(certificate: ServerSection, tmp_path: Path) -> None:
    """validation-4: no file, no certificate, another key, an encrypted key."""
    assert tls_context(ServerSection()) is None
    path, key = certificate.tls_certificate, certificate.tls_key
    locked = write_certificate(tmp_path, password=b"secret")
    for section in (
        ServerSection(tls_certificate="/nowhere", tls_key=key),
        ServerSection(tls_certificate=key, tls_key=path),
        ServerSection(tls_certificate=path, tls_key=""),
        ServerSection(tls_certificate=str(locked.path), tls_key=str(locked.key)),
    ):
        with pytest.raises(BadSetting, match=r"server\.tls_certificate"):
            tls_context(section)


def test_a_world_readable_key_is_warned_of(certificate: ServerSection, caplog: pytest.LogCaptureFixture) -> None:
    """validation-4: not refused, because containers get secrets this way."""
    key = Path(certificate.tls_key)
    warn_of_key(certificate)
    assert "every user" not in caplog.text
    key.chmod(0o644)
    warn_of_key(certificate)
    key.chmod(0o600)
    assert f"{key}: every user of this machine can read it" in caplog.text


async def test_what_never_reaches_the_app_is_counted() -> None:
    """observability-1: by kind: no free slot, a malformed header, a header that times out."""
    counted: list[str] = []
    limits = LimitsSection(connections=1)  # enough time for the first connection on any machine
    async with served(Recorder(), limits, refused=counted.append) as running, connected(running.port) as raw:
        await until(lambda: running.connections == 1)
        assert (await asked(running.port, b"")).startswith(b"HTTP/1.1 503 ")
        await raw.push(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * limits.header_bytes)
        assert (await raw.answer()).status == 431
    async with served(Recorder(), QUICK, refused=counted.append) as running:
        assert (await asked(running.port, b"GET")).startswith(b"HTTP/1.1 408 ")
    assert counted == ["too-many-connections", "header-too-long", "too-late"]


async def test_bad_requests_write_nothing_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """validation-6: malformed bytes and upgrades are not logged; an application's error still is."""

    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("a bug")

    async with served(Recorder()) as running:
        for data in (
            b"no request\r\n\r\n",
            b"GET / HTTP/1.1\r\nFoo bar\r\n\r\n",
            POST % b"x" + b"Upgrade: websocket\r\n\r\n",
        ):
            await asked(running.port, data + SMUGGLED)
        await asked(
            running.port, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
        )
        assert not caplog.records
    async with served(fails) as running:
        await asked(running.port, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert "a bug" in caplog.text
