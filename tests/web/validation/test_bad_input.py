"""Hostile input against a whole server in a process of its own: the right answer, and everything as before.

After each kind of harm the next good call of both eras is answered, the process has no more descriptors than before,
and its memory has not grown (docs/specs/validation.md).
"""

import json
import random
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from coretools.web.auth.hashed_tokens import create_token
from tests.web.http_mcp_client import ACCEPT, ENVELOPE, LATEST, STATELESS, HttpMcpClient, messages_in
from tests.web.http_server_peer import HttpServer, http_server
from tests.web.raw_peer import Answer, connected, until

SECONDS = 50
MOST_GROWTH = 96 * 1024 * 1024
"""Bytes of memory. A leak of any of the things below would be more: they are hundreds of megabytes, or thousands."""

SETTINGS = """
[server]
drain_seconds = 1

[limits]
header_seconds = 3
body_seconds = 3
write_seconds = 2
keep_alive_seconds = 20
failures_per_minute = 100000

[auth]
tokens = "{tokens}"

[roles.default]
requests_per_second = 0
"""

TOKENS = ("ann", "ben")


@dataclass(frozen=True)
class Target:
    """The server, its tokens, and the files that an attack could change."""

    server: HttpServer
    root: Path
    tokens: dict[str, str]

    @property
    def port(self) -> int:
        return int(urlsplit(self.server.url).port or 0)

    @property
    def memory(self) -> int:
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.server.process.pid}/fd").iterdir()))

    @property
    def log_bytes(self) -> int:
        """The size of the log, which grows with each completed request."""
        return self.server.log.stat().st_size

    def head(self, line: str = "POST /mcp", *, token: str = "ann", **headers: str) -> bytes:
        """A header without its end, of the handshake era."""
        fields = {
            "Host": f"127.0.0.1:{self.port}",
            "Authorization": f"Bearer {self.tokens.get(token, token)}",
            **ACCEPT,
        }
        if line.startswith("POST"):
            fields["Content-Type"] = "application/json"
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        return f"{line} HTTP/1.1\r\n".encode() + b"".join(
            f"{name}: {value}\r\n".encode() for name, value in fields.items() if value
        )

    def posted(self, body: bytes, **headers: str) -> bytes:
        """A whole request."""
        return self.head(**headers) + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("bad-input")
    root = folder / "root"
    root.mkdir()
    (root / "a.txt").write_text("in the root\n")
    (root / "large.txt").write_text("0123456789abcde\n" * 750_000)
    (root / "page.txt").write_text("0123456789abcde\n" * 16_000)
    tokens = {name: create_token(str(folder / "tokens"), name=name, role="default")[1] for name in TOKENS}
    settings = folder / "http.toml"
    settings.write_text(SETTINGS.format(tokens=folder / "tokens"))
    with http_server(folder, "--root", root, "--config", settings, "--profile", "all") as server:
        yield Target(server, root, tokens)
    log = server.log.read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 2000 :][:6000]


@asynccontextmanager
async def unharmed(target: Target) -> AsyncIterator[None]:
    """Check that the block leaves no descriptors and no memory behind."""
    await good_calls(target)
    await one_command(target)
    descriptors, memory = target.descriptors, target.memory
    yield
    await good_calls(target)
    await until(lambda: target.descriptors <= descriptors)
    assert target.memory - memory < MOST_GROWTH


async def good_calls(target: Target, name: str = "ann") -> None:
    """One call of each era, answered correctly."""
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        mcp_client = HttpMcpClient(http, target.server.url, token=target.tokens[name])
        assert (await mcp_client.initialize()).status_code == 200
        for answer in (
            await mcp_client.call("read_file", path="a.txt"),
            await mcp_client.stateless("tools/call", "read_file", arguments={"path": "a.txt"}),
        ):
            assert answer.status_code == 200
            assert "in the root" in json.dumps(messages_in(answer)[-1]["result"])
        assert (await http.delete(mcp_client.url, headers=mcp_client.headers())).status_code in (200, 204)


async def one_command(target: Target) -> None:
    """Run one command, so that the preforked processes and their sockets exist."""
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        mcp_client = HttpMcpClient(http, target.server.url, token=target.tokens["ann"])
        answer = await mcp_client.stateless("tools/call", "run_command", arguments={"command": "true"})
        assert messages_in(answer)[-1]["result"]["_meta"]["coretools/facts"]["exit_code"] == 0


async def one(target: Target, data: bytes) -> Answer:
    """Return the response on a connection of its own."""
    async with connected(target.port) as raw:
        await raw.push(data)
        return await raw.answer()


def is_small_and_quiet(answer: Answer, target: Target) -> None:
    """Whether a response reveals no internals and repeats nothing that was sent."""
    assert len(answer.body) < 8192, answer.body[:2000]
    for inside in (b"Traceback", b"site-packages", b'.py"', str(target.root.parent).encode(), b"pydantic"):
        assert inside not in answer.body, answer.body


def session_bodies() -> list[dict[str, Any]]:
    """Harmless requests of the handshake era."""

    def of(method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}

    return [
        of("ping"), of("tools/list"), of("resources/list", cursor="x"),
        of("prompts/get", name="x", arguments={"a": "b"}),
        of("tools/call", name="read_file", arguments={"path": "a.txt", "limit": 10}, _meta={"progressToken": "t"}),
        of("tools/call", name="list_directory", arguments={"path": "."}),
        of("resources/read", uri="file:///a.txt"), of("logging/setLevel", level="info"),
        of("completion/complete", ref={"type": "ref/prompt", "name": "x"}, argument={"name": "a", "value": "b"}),
        of("initialize", protocolVersion=LATEST, capabilities={}, clientInfo={"name": "x", "version": "1"}),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "reason": "x"}},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
        {"jsonrpc": "2.0", "id": 7, "result": {}},
        {"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "x"}},
    ]  # fmt: skip


JUNK: list[Any] = [
    None, True, False, 0, -1, 2**53, 2**63 - 1, -(2**63), 1.5, 1e308, "", "x", "\0", "../../etc/passwd", "é😀\u202e",
    "A" * 250, "B" * 20_000, [], {}, [[]], {"": None}, [None] * 500, {"a": {"b": {"c": []}}}, {"$ref": "#"},
    list(range(2000)), "\ud7ff\uffff", "2026-07-28", "file:///etc/passwd", "http://127.0.0.1:1/",
]  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every position in a message."""
    if at:
        yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*at, key))


def mutated(body: dict[str, Any], source: random.Random) -> bytes:
    """A message with one error in it, or in its bytes."""
    copy = json.loads(json.dumps(body))
    for _ in range(source.randint(1, 2)):
        *path, last = source.choice(list(places(copy)))
        holder = copy
        for key in path:
            holder = holder[key]
        if source.random() < 0.2:
            del holder[last]
        else:
            holder[last] = deepcopy(source.choice(JUNK))
        if not copy:
            break
    data = bytearray(json.dumps(copy, ensure_ascii=source.random() < 0.5).encode("utf-8", "surrogatepass"))
    if source.random() < 0.3:
        for _ in range(source.randint(1, 3)):
            at = source.randint(0, len(data))
            data[at : at + source.randint(0, 3)] = source.randbytes(source.randint(0, 3))
    return bytes(data)


@pytest.mark.parametrize("era", ["session", "stateless"])
@pytest.mark.parametrize("seed", range(4))
async def test_fuzzed_messages_are_answered_one_by_one(target: Target, era: str, seed: int) -> None:
    """validation-26: no message causes a server error, none goes unanswered, none reveals internals."""
    source = random.Random(f"{era} {seed}")
    async with unharmed(target), httpx2.AsyncClient(timeout=SECONDS) as http:
        mcp_client = HttpMcpClient(http, target.server.url, token=target.tokens["ben"])
        await mcp_client.initialize()
        opened: set[str] = set()
        async with connected(target.port) as raw:
            for _ in range(150):
                base = source.choice(session_bodies())
                headers = dict(mcp_client.headers())
                if era == "stateless":
                    base = stateless_body(base)
                    headers = {**mcp_client.headers(), "MCP-Protocol-Version": STATELESS, "Mcp-Method": base["method"]}
                    headers.pop("Mcp-Session-Id")
                    if "name" in base.get("params", {}):
                        headers["Mcp-Name"] = base["params"]["name"]
                elif base.get("method") == "initialize":
                    headers.pop("Mcp-Session-Id", None)
                names = {name.replace("-", "_"): value for name, value in headers.items() if name != "Authorization"}
                sent = mutated(base, source)
                await raw.send(target.posted(sent, token="ben", **names))
                answer = await raw.answer()
                assert answer.status < 500, (sent, answer)
                assert answer.headers.get("connection") != "close", (sent, answer)
                opened |= {answer.headers.get("mcp-session-id", mcp_client.session)} - {mcp_client.session}
                if answer.status >= 400:
                    is_small_and_quiet(answer, target)
        for session in (*opened, mcp_client.session):
            await http.delete(mcp_client.url, headers={**mcp_client.headers(), "Mcp-Session-Id": session})


def stateless_body(body: dict[str, Any]) -> dict[str, Any]:
    if "method" not in body:
        return {"jsonrpc": "2.0", "id": 7, "method": "server/discover", "params": {"_meta": ENVELOPE}}
    return {**body, "params": {**body["params"], "_meta": {**ENVELOPE, **body["params"].get("_meta", {})}}}


LONG = "L" * 200_000
ECHOES: dict[str, Any] = {
    "id": {"id": LONG},
    "method": {"method": LONG},
    "name": {"params": {"name": LONG, "arguments": {}}},
    "argument": {"params": {"name": "read_file", "arguments": {LONG[:1000]: 1, "path": "a.txt"}}},
    "value": {"params": {"name": "read_file", "arguments": {"path": LONG}}},
    "type": {"params": {"name": "read_file", "arguments": {"path": "a.txt", "limit": LONG}}},
    "uri": {"method": "resources/read", "params": {"uri": "file:///" + LONG}},
    "no-uri": {"method": "resources/read", "params": {"uri": LONG}},
    "cursor": {"method": "tools/list", "params": {"cursor": LONG}},
    "level": {"method": "logging/setLevel", "params": {"level": LONG}},
    "params": {"params": LONG},
    "key": {LONG[:1000]: LONG},
    "version": {"method": "initialize", "params": {"protocolVersion": LONG, "capabilities": {}, "clientInfo": {}}},
    "completion": {"method": "completion/complete", "params": {"ref": {"type": LONG}, "argument": {"name": LONG}}},
    "jsonrpc": {"jsonrpc": LONG},
}


@pytest.mark.parametrize("era", ["session", "stateless"])
async def test_no_answer_repeats_more_than_a_bounded_piece_of_a_request(target: Target, era: str) -> None:
    """validation-26: a megabyte in any position does not come back."""
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        mcp_client = HttpMcpClient(http, target.server.url, token=target.tokens["ann"])
        await mcp_client.initialize()
        for place, change in ECHOES.items():
            base: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}} | change
            headers = mcp_client.headers()
            if era == "stateless":
                if isinstance(base["params"], dict):
                    base["params"] = {**base["params"], "_meta": ENVELOPE}
                headers |= {"MCP-Protocol-Version": STATELESS, "Mcp-Method": base["method"][:100]}
            answer = await http.post(mcp_client.url, json=base, headers=headers)
            assert len(answer.content) < 8192, (place, len(answer.content), answer.text[:300])
            assert answer.status_code < 500, (place, answer.text[:300])
        await http.delete(mcp_client.url, headers=mcp_client.headers())


def evil_call(target: Target) -> bytes:
    """A request that would create a file in the root."""
    made = {"name": "create_directory", "arguments": {"path": "smuggled"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**made, "_meta": ENVELOPE}}
    return target.posted(
        json.dumps(body).encode(), MCP_Protocol_Version=STATELESS, Mcp_Method="tools/call", Mcp_Name="create_directory"
    )


async def test_a_refusal_that_no_app_sees_is_in_the_metrics(target: Target) -> None:
    """observability-1: the protocol answers it."""
    await one(target, b"GET /mcp HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000)
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        page = (await http.get(target.server.url.removesuffix("/mcp") + "/metrics")).text
    assert 'coretools_refusals_total{reason="header-too-long"}' in page


async def test_the_file_can_be_created(target: Target) -> None:
    """validation-6: otherwise the test below proves nothing."""
    assert (await one(target, evil_call(target))).status == 200
    (target.root / "smuggled").rmdir()


async def test_nothing_is_smuggled(target: Target) -> None:
    """validation-6, validation-8, validation-16: a second request within the first is never executed."""
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    evil = evil_call(target)
    head = target.head()
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(ping), ping)
    length = b"Content-Length: %d\r\n" % len(ping)
    async with unharmed(target):
        for sent in (
            head + length + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + evil,
            head
            + b"Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n" % (len(chunks) + len(evil))
            + chunks
            + evil,
            head + length + length.replace(b"40", b"%d" % (40 + len(evil))) + b"\r\n" + ping + evil,
            head + length + b"\r\n" + ping + evil,
            head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + evil,
            head + b"Transfer-Encoding: \tchunked\r\nTransfer-Encoding: x\r\n\r\n" + chunks + evil,
            head + b"X: y\r\n Transfer-Encoding: chunked\r\n" + length + b"\r\n" + ping + evil,
            head + b"X: y\nContent-Length: 0\r\n" + length + b"\r\n" + ping + evil,
            head + length + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + ping + evil,
            target.head("GET /mcp") + b"Content-Length: %d\r\n\r\n" % len(evil) + evil,
            target.head("DELETE /mcp")
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + b"%x\r\n" % len(evil)
            + evil
            + b"\r\n0\r\n\r\n",
            head + b"Expect: 100-continue\r\n" + length + b"\r\n" + ping + evil,
            head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks[:-2] + b"X: y\r\n\r\n" + evil,
            head + b"Transfer-Encoding: chunked\r\n\r\n0;" + b"a" * 100 + b"\r\n\r\n" + evil,
        ):
            async with connected(target.port) as raw:
                await raw.push(sent)
                answer = (await raw.rest()).partition(b"\r\n\r\n")[2]
                assert answer.count(b"HTTP/1.1 2") <= 1
    assert not (target.root / "smuggled").exists()


async def test_batches_and_other_json_are_refused(target: Target) -> None:
    """validation-23: 400, with an error of JSON-RPC."""
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    async with unharmed(target):
        for body in (
            b"[" + ping + b"]",
            b"[" + b",".join([ping] * 1000) + b"]",
            b"[]",
            b"1",
            b'""',
            b"null",
            b"",
            b"{}x",
        ):
            for headers in ({}, {"MCP_Protocol_Version": STATELESS, "Mcp_Method": "ping"}):
                answer = await one(target, target.posted(body, **headers))
                assert answer.status == 400
                assert json.loads(answer.body)["error"]["code"] in (-32700, -32600)


async def test_one_id_twice_in_a_session_mixes_nothing_up(target: Target) -> None:
    """validation-26: both requests end, and the session goes on."""
    async with unharmed(target), httpx2.AsyncClient(timeout=SECONDS) as http:
        mcp_client = HttpMcpClient(http, target.server.url, token=target.tokens["ann"])
        await mcp_client.initialize()
        answers: list[httpx2.Response] = []

        async def ask(path: str) -> None:
            params = {"name": "read_file", "arguments": {"path": path}}
            answers.append(await mcp_client.post({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}))

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(ask, "a.txt")
                    tasks.start_soon(ask, "missing.txt")
        assert len(answers) == 20
        assert all(answer.status_code < 500 for answer in answers)
        assert (await mcp_client.call("read_file", path="a.txt")).status_code == 200
        await http.delete(mcp_client.url, headers=mcp_client.headers())


async def test_a_session_of_another_principal_is_unknown(target: Target) -> None:
    """validation-26: 404 for every method, as for an id that does not exist; the owner's session is unaffected."""
    async with unharmed(target), httpx2.AsyncClient(timeout=SECONDS) as http:
        mcp_client = HttpMcpClient(http, target.server.url, token=target.tokens["ann"])
        await mcp_client.initialize()
        await mcp_client.call("read_file", path="a.txt")
        bodies = []
        for session in (mcp_client.session, "0" * 32, "x", "é".encode().decode("latin-1"), "a" * 4000):
            for line in ("POST /mcp", "GET /mcp", "DELETE /mcp"):
                for event in ("", "1", f"{mcp_client.session}-1", "x" * 4000):
                    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}' if line.startswith("POST") else b""
                    head = target.head(line, token="ben", Mcp_Session_Id="", Last_Event_ID=event)
                    head += b"Mcp-Session-Id: " + session.encode("latin-1") + b"\r\n"
                    answer = await one(target, head + b"Content-Length: %d\r\n\r\n" % len(ping) + ping)
                    assert answer.status in (400, 404, 405), (session, line, event, answer)
                    message = json.loads(answer.body)
                    assert message.pop("id") == (1 if ping else None)
                    bodies.append(json.dumps(message))
        assert len(set(bodies)) == 1, set(bodies)
        assert (await mcp_client.call("read_file", path="a.txt")).status_code == 200
        await http.delete(mcp_client.url, headers=mcp_client.headers())


async def test_thousands_of_unknown_sessions_and_events_are_not_stored(target: Target) -> None:
    """validation-26: each is answered 404."""
    source = random.Random(5)
    async with unharmed(target), connected(target.port) as raw:
        for number in range(1000):
            line = "GET /mcp" if number % 3 else "DELETE /mcp"
            names = {
                "Mcp_Session_Id": f"{source.getrandbits(128):032x}",
                "Last_Event_ID": f"{source.getrandbits(64):x}",
            }
            await raw.send(target.head(line, **names) + b"\r\n")
            assert (await raw.answer()).status == 404


@pytest.mark.parametrize("token", ["ann", "nobody"])
async def test_bodies_of_a_hundred_megabytes_are_refused(target: Target, token: str) -> None:
    """validation-15, validation-22: declared and in chunks; of unauthorized callers, none is read."""
    expected = (413, 401) if token == "ann" else (413, 401, 401)
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    async with unharmed(target):
        async with connected(target.port) as raw:
            await raw.send(target.head(token=token) + b"Content-Length: 104857600\r\n\r\n")
            assert (await raw.answer()).status == expected[0]
            for _ in range(100):
                await raw.push(b" " * 1_000_000)
        async with connected(target.port) as raw:
            await raw.send(target.head(token=token) + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(200):
                await raw.push(chunk * 8)
            assert (await raw.answer()).status == (413 if token == "ann" else 401)


async def test_ten_thousand_headers_are_refused(target: Target) -> None:
    """validation-10: short ones, long ones, of one name and of many."""
    async with unharmed(target):
        for lines in (
            b"X: y\r\n" * 10_000,
            b"".join(b"X-%d: y\r\n" % number for number in range(10_000)),
            b"X: " + b"y" * 1_000_000 + b"\r\n",
            b"Cookie: a=b\r\n" * 100,
        ):
            assert (await one(target, target.head("GET /mcp") + lines + b"\r\n")).status == 431


async def test_five_hundred_silent_connections_keep_nobody_out(target: Target) -> None:
    """validation-1, validation-4: nothing, half a header, half a body: good calls go on, and these connections end."""
    half = target.head() + b"Content-Length: 100\r\n\r\n{"
    async with unharmed(target):
        sockets = []
        try:
            for number in range(500):
                one_more = socket.create_connection(("127.0.0.1", target.port), timeout=SECONDS)
                sockets.append(one_more)
                one_more.sendall((b"", target.head()[:40], half)[number % 3])
            await good_calls(target)
            for each in sockets:
                await anyio.to_thread.run_sync(each.recv, 65536)
        finally:
            for each in sockets:
                each.close()


@pytest.mark.parametrize("behind", [b"garbage\0\xff", b"\r\n\r\n", b"GET /mcp HTTP/1.1\r\n", b"{}" * 500_000])
async def test_garbage_behind_a_body_changes_nothing(target: Target, behind: bytes) -> None:
    """validation-8: the request is answered, the rest is ignored."""
    params = {"name": "read_file", "arguments": {"path": "a.txt"}, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {"MCP_Protocol_Version": STATELESS, "Mcp_Method": "tools/call", "Mcp_Name": "read_file"}
    async with unharmed(target), connected(target.port) as raw:
        await raw.push(target.posted(body, **headers) + behind)
        answer = await raw.rest()
        assert answer.count(b"HTTP/1.1 ") <= 1
        if len(behind) < 1000:
            assert b"in the root" in answer


async def test_a_client_that_never_reads_is_cut_off(target: Target) -> None:
    """validation-3: its buffers are freed; other calls are answered meanwhile."""
    # Larger than what the server's own buffer takes; the answer of a tool is not.
    uri = "coretools://files/page.txt"
    params = {"uri": uri, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}).encode()
    headers = {"MCP_Protocol_Version": STATELESS, "Mcp_Method": "resources/read", "Mcp_Name": uri}
    async with unharmed(target), connected(target.port, receive_buffer=4096) as raw:
        is_reset = False
        # The socket buffers hold some megabytes, so it sends requests until nothing more is accepted.
        while not is_reset:
            logged = target.log_bytes
            is_reset = not await raw.push(target.posted(body, **headers))
            if not is_reset:
                await until(lambda: target.log_bytes != logged or raw.is_reset)  # noqa: B023  # awaited in this turn
                is_reset = raw.is_reset


@pytest.mark.parametrize(
    "path", ["//mcp", "/mcp/../metrics", "/%6dcp", "/mcp/%2e%2e/metrics", "/./metrics", "/mcp/", "/MCP"]
)
async def test_no_trick_with_a_path_leads_anywhere(target: Target, path: str) -> None:
    """validation-18: 404, before the endpoint is reached."""
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    for line in (f"GET {path}", f"POST {path}"):
        body = ping if line.startswith("POST") else b""
        answer = await one(target, target.head(line) + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert answer.status == 404
        is_small_and_quiet(answer, target)


@pytest.mark.parametrize("seed", range(3))
async def test_random_bytes_are_answered_or_dropped(target: Target, seed: int) -> None:
    """validation-6: on the connection, and with a mutated header: at most one answer, never an accidental success."""
    source = random.Random(seed)
    good = target.posted(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', token="nobody")
    async with unharmed(target):
        for _ in range(60):
            data = bytearray(good if source.random() < 0.8 else source.randbytes(source.randint(1, 2000)))
            for _ in range(source.randint(1, 8)):
                at = source.randint(0, len(data))
                data[at : at + source.randint(0, 4)] = source.choice(
                    [b"\r\n", b"\n", b"\r", b" ", b":", b"\0", b"%", source.randbytes(3), b"Content-Length: 1\r\n", b""]
                )
            async with connected(target.port) as raw:
                await raw.push(bytes(data) + b"\r\n\r\n")
                raw.end()
                answer = await raw.rest()
            assert answer.count(b"HTTP/1.1 ") <= 1
            assert not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202", b"HTTP/1.1 500")), answer
