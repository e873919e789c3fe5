"""The stdio transport on real pipes: lines, limits, slow clients, disconnects (docs/specs/workstation.md)."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from coretools.protocol.stdio.lines import LineMessageReader, LineReader, OversizedLine
from coretools.protocol.stdio.transport import DescriptorReader, LineWriter


def stdio_reader(
    fd: int, writer: LineWriter, *, line_bytes: int, on_end: Callable[[], None] = lambda: None
) -> LineMessageReader:
    return LineMessageReader(DescriptorReader(fd).read, writer, line_bytes=line_bytes, on_end=on_end)


@dataclass
class PipeEnds:
    """A pair of pipes: the client's ends are `send_fd` and `answers_fd`."""

    read_fd: int
    send_fd: int
    answers_fd: int
    write_fd: int

    def close(self) -> None:
        for fd in (self.read_fd, self.send_fd, self.answers_fd, self.write_fd):
            with suppress(OSError):
                os.close(fd)


@pytest.fixture
def ends() -> Iterator[PipeEnds]:
    read_fd, send_fd = os.pipe()
    answers_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    ends = PipeEnds(read_fd, send_fd, answers_fd, write_fd)
    yield ends
    ends.close()


def answers(ends: PipeEnds) -> list[dict[str, object]]:
    os.set_blocking(ends.answers_fd, False)
    data = b""
    with suppress(BlockingIOError):
        while piece := os.read(ends.answers_fd, 65536):
            data += piece
    return [json.loads(line) for line in data.splitlines()]


def cut(pieces: list[bytes], most: int) -> list[bytes | None]:
    lines = LineReader(most)
    cut = [line for piece in pieces for line in lines.feed(piece)]
    return [None if isinstance(line, OversizedLine) else line for line in cut]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\nc", b"\n"], [b"ab", b"c"]),
        ([b"\n\n"], [b"", b""]),
        ([b"12345678\n"], [b"12345678"]),
        ([b"123456789\nok\n"], [None, b"ok"]),
        ([b"12345", b"6789", b"0" * 1000, b"x\nok\n"], [None, b"ok"]),
        ([b"1234567", b"89\nok\n"], [None, b"ok"]),
        ([b"123456789" * 3, b"\n", b"123456789\n", b"ok\n"], [None, None, b"ok"]),
    ],
)
def test_lines_are_split_and_one_over_the_limit_is_reported_once(
    pieces: list[bytes], expected: list[bytes | None]
) -> None:
    """workstation-4: the limit applies however a line arrives."""
    assert cut(pieces, 8) == expected


def test_a_line_over_the_limit_is_not_buffered() -> None:
    """workstation-4: an error, not memory."""
    lines = LineReader(1024)
    for _ in range(1000):
        assert len(list(lines.feed(b"x" * 65536))) <= 1
    rest = lines.rest()
    assert isinstance(rest, OversizedLine)
    assert len(rest.head) + len(rest.tail) <= 1024


@pytest.mark.parametrize(
    ("line", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":"%s"}}', 7),
        (b'{ "jsonrpc": "2.0", "id": "a-b", "method": "m", "params": {"x": "%s"}}\r', "a-b"),
        (b'{"id":8,"method":"m","params":{"x":"%s"}}', 8),
        (b'{"method":"m","params":{"x":"%s"},"jsonrpc":"2.0","id":9}', 9),
        (b'{"method":"m","params":{"x":"%s"},"id":-1,"jsonrpc":"2.0"}', -1),
        (b'{"method":"m","params":{"x":"%s","id":3}}', None),
        (b'{"method":"m","params":{"x":"%s,\\"id\\":3}"}}', None),
        (b'{"method":"m","params":{"id":3,"x":"%s"}}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m","params":{"x":"%s"}}', None),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"m","params":{"x":"%s"}}', None),
    ],
)
@pytest.mark.parametrize("ending", [b"\n", b""], ids=["line end", "end of input"])
async def test_a_request_over_the_limit_gets_its_own_error(
    ends: PipeEnds, line: bytes, request_id: object, ending: bytes
) -> None:
    """workstation-4: its sender would wait for ever without the id; ids inside the message are ignored."""
    os.write(ends.send_fd, line.replace(b"%s", b"x" * 5000) + ending)
    os.close(ends.send_fd)
    with anyio.fail_after(60):
        async with LineWriter(ends.write_fd) as writer:
            with pytest.raises(anyio.EndOfStream):
                await stdio_reader(ends.read_fd, writer, line_bytes=4096).receive()
    [answer] = answers(ends)
    assert answer["id"] == request_id
    assert "line too long" in str(answer["error"])


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":%b%b}}' % (b"[" * 300, b"]" * 300), -32700, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\xff"}}', -32700, 7),
        (b'{"jsonrpc":"2.0","id":8,"method":"ping","params":{"a":"\\ud800"}}', -32700, 8),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"5", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":"x","method":5}', -32600, "x"),
        (b'{"jsonrpc":"2.0","id":2,"method":"ping","params":[]}', -32600, 2),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b"x" * 5000, -32600, None),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_malformed_line_is_answered_and_the_next_one_is_read(
    ends: PipeEnds, line: bytes, code: int, request_id: object
) -> None:
    """workstation-5: one error each, with the id if it can be read, and the server goes on."""
    limit = 4096 if line.startswith(b"xxx") else 1_000_000
    good = b'{"jsonrpc":"2.0","id":99,"method":"ping"}'
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, os.write, ends.send_fd, line + b"\n\n" + good + b"\n")
        with anyio.fail_after(60):
            async with LineWriter(ends.write_fd) as writer:
                message = await stdio_reader(ends.read_fd, writer, line_bytes=limit).receive()
    assert isinstance(message, SessionMessage)
    assert isinstance(message.message, types.JSONRPCRequest)
    assert message.message.id == 99
    [answer] = answers(ends)
    assert answer["id"] == request_id
    assert isinstance(answer["error"], dict)
    assert answer["error"]["code"] == code


async def test_a_notification_with_a_nested_id_is_still_one(ends: PipeEnds) -> None:
    """workstation-5: only an id of the message itself makes it a request."""
    os.write(ends.send_fd, b'{"jsonrpc":"2.0","method":"notifications/x","params":{"id":1}}\n')
    message = await stdio_reader(ends.read_fd, LineWriter(ends.write_fd), line_bytes=1000).receive()
    assert isinstance(message, SessionMessage)
    assert isinstance(message.message, types.JSONRPCNotification)


async def test_the_end_of_input_is_detected_and_an_unterminated_last_line_is_read(ends: PipeEnds) -> None:
    """workstation-6: nothing that the client sent is lost."""
    at_end = anyio.Event()
    os.write(ends.send_fd, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    os.close(ends.send_fd)
    reader = stdio_reader(ends.read_fd, LineWriter(ends.write_fd), line_bytes=1000, on_end=at_end.set)
    assert isinstance(await reader.receive(), SessionMessage)
    assert at_end.is_set()
    with pytest.raises(anyio.EndOfStream):
        await reader.receive()


async def test_input_from_a_file_is_read_to_its_end(tmp_path: Path, ends: PipeEnds) -> None:
    """workstation-6: a regular file cannot be polled and is read all the same."""
    path = tmp_path / "requests"
    path.write_bytes(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n' * 3)
    fd = os.open(path, os.O_RDONLY)
    try:
        read = [item async for item in stdio_reader(fd, LineWriter(ends.write_fd), line_bytes=1000)]
    finally:
        os.close(fd)
    assert len(read) == 3


async def test_responses_are_never_torn_even_if_their_senders_are_cancelled(ends: PipeEnds) -> None:
    """workstation-7: a slow reader gets whole lines, in the order in which they were sent."""
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": "x" * 200_000}}).encode()
    received = bytearray()

    def read_all() -> None:
        while piece := os.read(ends.answers_fd, 4096):
            received.extend(piece)

    async with anyio.create_task_group() as group:
        async with LineWriter(ends.write_fd) as writer:
            async with anyio.create_task_group() as senders:
                for _ in range(40):
                    senders.start_soon(writer.send_line, line)
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
                senders.cancel_scope.cancel()
            group.start_soon(anyio.to_thread.run_sync, read_all)
        os.close(ends.write_fd)
    whole = received.split(b"\n")
    assert whole[-1] == b""
    assert len(whole) > 1
    assert all(bytes(one) == line for one in whole[:-1])


async def test_a_closed_client_is_an_error_for_senders_and_no_hang(ends: PipeEnds) -> None:
    """workstation-7: the server notices that nobody reads."""
    os.close(ends.answers_fd)
    with anyio.fail_after(60):
        async with LineWriter(ends.write_fd) as writer:
            await writer.send_line(b"{}")
            with pytest.raises(anyio.BrokenResourceError):
                await writer.send_line(b"{}")


async def test_unsent_responses_do_not_delay_the_end(ends: PipeEnds) -> None:
    """workstation-8: a client that never reads cannot keep the server alive."""
    with anyio.fail_after(60):
        async with LineWriter(ends.write_fd) as writer:
            await writer.send_line(b"x" * 500_000)
