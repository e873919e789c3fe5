"""A client of HTTP written by hand, for load: sockets, one thread, no library, so that the server is what is timed.

Requests are built before the clock starts; responses are kept as they come and checked after it has stopped.
"""

import json
import selectors
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any

from benchmarks.failure import NotMeasured
from benchmarks.stdio_client import ENVELOPE, HANDSHAKE, Era

ANSWER_SECONDS = 120.0
READ_BYTES = 1 << 18

HANDSHAKE_REVISION = "2025-11-25"
STATELESS_REVISION = "2026-07-28"

Address = tuple[str, int]


@dataclass(slots=True)
class Answer:
    """One HTTP response."""

    raw: bytes
    seconds: float
    """From the first byte sent to the last received."""

    @property
    def status(self) -> int:
        """Its HTTP status."""
        return int(self.raw[9:12])

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream of events."""
        return b"text/event-stream" in self.raw.partition(b"\r\n\r\n")[0].lower()

    def header(self, name: str) -> str:
        """The value of a header; empty when it is not there."""
        head = self.raw.partition(b"\r\n\r\n")[0].decode("latin-1")
        for line in head.split("\r\n")[1:]:
            key, _, value = line.partition(": ")
            if key.lower() == name:
                return value
        return ""

    def messages(self) -> list[dict[str, Any]]:
        """The JSON-RPC messages in it."""
        head, _, body = self.raw.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head.lower():
            body = b"".join(_chunks(body))
        if not self.is_stream:
            return [json.loads(body)] if body else []
        lines = body.decode().replace("\r\n", "\n").split("\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ") and len(line) > 6]

    def result(self) -> dict[str, Any]:
        """The result of the request.

        Raises:
            NotMeasured: it was refused.
        """
        messages = self.messages() if self.status == 200 else []
        if not messages or "result" not in messages[-1]:
            raise NotMeasured(f"refused: {self.raw[:700]!r}")
        result: dict[str, Any] = messages[-1]["result"]
        return result

    def text(self) -> str:
        """The text of a tool's result.

        Raises:
            NotMeasured: it failed.
        """
        result = self.result()
        if result.get("isError"):
            raise NotMeasured(f"failed: {result!r}"[:700])
        text: str = result["content"][0]["text"]
        return text


@dataclass(slots=True, eq=False)
class _Connection:
    """One socket and its state."""

    socket: socket.socket
    begun: float = 0.0
    parts: list[bytes] = field(default_factory=list)
    tail: bytes = b""
    missing: int = 0
    """Bytes until the answer is whole; -1: its head is not whole, -2: it ends with the last chunk."""
    index: int = -1
    left: bytes = b""
    """Of the request, not taken yet."""


class Load:
    """Connections to one server, kept alive."""

    def __init__(self, address: Address, connections: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._connections = [_Connection(_connected(address)) for _ in range(connections)]
        for connection in self._connections:
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        self.own_seconds = 0.0
        """Processor time that this client took in its last run: it must not be what the load waits for."""

    def close(self) -> None:
        """Close them."""
        for connection in self._connections:
            connection.socket.close()
        self._selector.close()

    def run(self, requests: Sequence[bytes]) -> list[Answer]:
        """Send all requests, one at a time on each connection; returns the responses in the order of the requests.

        The request of index i goes out on connection i % connections, so that a session stays on its connection.

        Raises:
            NotMeasured: the server closed a connection, or sent nothing for too long.
        """
        count = len(self._connections)
        waiting = [sorted(range(first, len(requests), count), reverse=True) for first in range(count)]
        answers: list[Answer | None] = [None] * len(requests)
        own = process_time()
        open_ones = 0
        for connection, queue in zip(self._connections, waiting, strict=True):
            open_ones += self._next(connection, queue, requests)
        by_socket = dict(zip((id(one) for one in self._connections), waiting, strict=True))
        while open_ones:
            events = self._selector.select(ANSWER_SECONDS)
            if not events:
                raise NotMeasured(f"no answer within {ANSWER_SECONDS:.0f} s")
            for key, mask in events:
                ready: _Connection = key.data
                if mask & selectors.EVENT_WRITE:
                    self._write(ready)
                    continue
                answer = _read(ready)
                if answer is not None:
                    answers[ready.index] = answer
                    open_ones += self._next(ready, by_socket[id(ready)], requests) - 1
        self.own_seconds = process_time() - own
        return [answer for answer in answers if answer is not None]

    def _next(self, connection: _Connection, queue: list[int], requests: Sequence[bytes]) -> int:
        """Send the next request of a connection; returns how many were sent."""
        if not queue:
            return 0
        connection.index = queue.pop()
        connection.parts, connection.tail, connection.missing = [], b"", -1
        connection.begun = perf_counter()
        connection.left = requests[connection.index]
        self._write(connection)
        return 1

    def _write(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.left)
        except BlockingIOError:
            sent = 0
        connection.left = connection.left[sent:]
        wanted = selectors.EVENT_WRITE if connection.left else selectors.EVENT_READ
        if self._selector.get_key(connection.socket).events != wanted:
            self._selector.modify(connection.socket, wanted, connection)


class Caller:
    """Builds the requests of one client to one endpoint."""

    def __init__(self, address: Address, path: str, era: Era, *, token: str = "") -> None:
        self._era = era
        revision = HANDSHAKE_REVISION if era is Era.HANDSHAKE else STATELESS_REVISION
        self._head = [
            f"POST {path} HTTP/1.1",
            f"Host: {address[0]}:{address[1]}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            *([f"Authorization: Bearer {token}"] if token else []),
        ]
        self._revision = f"MCP-Protocol-Version: {revision}"
        self._last_id = 0
        self._session = ""

    @property
    def session(self) -> str:
        """The id of the session, once it is open."""
        return self._session

    def initialize(self) -> bytes:
        """The request that opens a session."""
        return self._request("initialize", HANDSHAKE, is_first=True)

    def opened(self, answer: Answer) -> bytes:
        """Take the session id from that response; returns the notification to send next."""
        answer.result()
        self._session = answer.header("mcp-session-id")
        return self._message({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: dict[str, Any], *, with_progress: bool = False) -> bytes:
        """A call of a tool."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if with_progress:
            params["_meta"] = {"progressToken": self._last_id + 1}
        return self._request("tools/call", params)

    def end(self) -> bytes:
        """The request that ends the session."""
        lines = [self._head[0].replace("POST", "DELETE", 1), *self._head[1:2], *self._head[3:]]
        return _joined([*lines, self._revision, f"Mcp-Session-Id: {self._session}"], b"")

    def _request(self, method: str, params: dict[str, Any], *, is_first: bool = False) -> bytes:
        self._last_id += 1
        extra = []
        if self._era is Era.STATELESS:
            params = {**params, "_meta": {**ENVELOPE, **params.get("_meta", {})}}
            extra = [f"Mcp-Method: {method}", *([f"Mcp-Name: {params['name']}"] if "name" in params else [])]
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        return self._message(message, extra, is_first=is_first)

    def _message(self, message: dict[str, Any], extra: Iterable[str] = (), *, is_first: bool = False) -> bytes:
        body = json.dumps(message, separators=(",", ":")).encode()
        lines = [*self._head, *extra, f"Content-Length: {len(body)}"]
        if not is_first:
            lines.append(self._revision)
        if self._session:
            lines.append(f"Mcp-Session-Id: {self._session}")
        return _joined(lines, body)


def callers(load: Load, address: Address, path: str, era: Era, count: int) -> list[Caller]:
    """This many clients, each with a session of its own if the era has sessions."""
    found = [Caller(address, path, era) for _ in range(count)]
    if era is Era.HANDSHAKE:
        answers = load.run([caller.initialize() for caller in found])
        answers = load.run([caller.opened(answer) for caller, answer in zip(found, answers, strict=True)])
        if any(answer.status != 202 for answer in answers):
            raise NotMeasured("a session was not opened")
    return found


def end_all(load: Load, found: Sequence[Caller]) -> None:
    """End the sessions of these clients.

    Raises:
        NotMeasured: a session was lost.
    """
    if any(answer.status != 200 for answer in load.run([caller.end() for caller in found if caller.session])):
        raise NotMeasured("a session was not ended")


def _joined(lines: Iterable[str], body: bytes) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _connected(address: Address) -> socket.socket:
    made = socket.create_connection(address, ANSWER_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setblocking(False)
    return made


def _read(connection: _Connection) -> Answer | None:
    """Read what arrived; returns the response once it is complete."""
    try:
        data = connection.socket.recv(READ_BYTES)
    except BlockingIOError:
        return None
    except ConnectionError as error:
        raise NotMeasured("a connection was reset") from error
    if not data:
        raise NotMeasured(f"a connection was closed: {b''.join(connection.parts)[:300]!r}")
    connection.parts.append(data)
    if connection.missing == -1:
        whole = b"".join(connection.parts)
        connection.missing = _missing(whole)
        connection.tail = whole[-7:]
    else:
        connection.tail = (connection.tail + data)[-7:]
        if connection.missing > 0:
            connection.missing -= len(data)
    is_over = connection.tail == b"\r\n0\r\n\r\n" if connection.missing == -2 else connection.missing == 0
    if not is_over:
        return None
    return Answer(b"".join(connection.parts), perf_counter() - connection.begun)


def _missing(received: bytes) -> int:
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return -1
    found = head.lower()
    if b"transfer-encoding: chunked" in found:
        return -2
    at = found.find(b"content-length: ")
    if at < 0:
        return 0  # 202 and 204
    return int(found[at + 16 : at + 28].split(b"\r\n", 1)[0]) - len(body)


def _chunks(body: bytes) -> Iterable[bytes]:
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        yield rest[:length]
        body = rest[length + 2 :]
        if not length:
            return
