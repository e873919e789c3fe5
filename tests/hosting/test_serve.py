"""An author's registry served by the public functions: in process, streams, sockets, HTTP (docs/specs/api.md)."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
import uvicorn
from anyio.abc import SocketStream
from mcp import Client, MCPError

from coretools.errors import BadSetting
from coretools.hosting.serve import HttpOptions, ServeOptions, build, http_app, serve_streams
from coretools.operations.call import Call
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry
from coretools.operations.server_info import ServerInfo
from coretools.protocol.mcp_apps import View, Views
from coretools.services.interface import Services
from coretools.services.memory import MemoryServices
from tests.checkout import TREE
from tests.protocol.line_client import Over
from tests.protocol.peer import ANSWER_SECONDS, HANDSHAKE, Peer
from tests.starting import warm

ERAS = ("legacy", "auto")
AT_ONCE = 5
SECONDS = 30


def commands() -> Registry:
    registry = Registry()

    @registry.tool(Effect.READ)
    async def walk(name: str, steps: int, call: Call) -> str:
        """Walk, and say each step."""
        for step in range(1, steps + 1):
            await call.progress(step, steps, f"{name} at {step}")
            await anyio.lowlevel.checkpoint()
        return f"{name} is there"

    @registry.tool(Effect.ADD)
    async def visit(services: Services) -> str:
        """Count the visits."""
        count = int(await services.values.get("visits") or b"0") + 1
        await services.values.set("visits", str(count).encode())
        return f"visit {count}"

    @registry.tool(Effect.CHANGE)
    def forget(name: str, call: Call) -> str:
        """Forget somebody."""
        return f"{name} who? (by {call.channel})"

    return registry


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


async def walked(client: Client, name: str, steps: int = 3) -> list[str]:
    """The notifications of a call."""
    seen: list[str] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")

    result = await client.call_tool("walk", {"name": name, "steps": steps}, progress_callback=note)
    assert text_of(result) == f"{name} is there"
    return seen


@contextlib.asynccontextmanager
async def listening(path: Path, options: ServeOptions | None = None) -> AsyncIterator[None]:
    server = build(commands())
    async with await anyio.create_unix_listener(path) as listener:

        async def connected(stream: SocketStream) -> None:
            open_ones.append(stream)
            await serve_streams(server, stream, stream, options=options)
            open_ones.remove(stream)
            all_gone.set()

        open_ones: list[SocketStream] = []
        all_gone = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, connected)
            yield
            # Clients have left by now. anyio reports an error if it is cancelled at the moment in which they leave.
            while open_ones:
                await all_gone.wait()
                all_gone = anyio.Event()
            tasks.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def over_http(registry: Registry, http: HttpOptions | None = None) -> AsyncIterator[str]:
    app = http_app(registry, http=http)
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, [bound])
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
        server.should_exit = True


@pytest.mark.parametrize("mode", ERAS)
async def test_a_registry_is_served_as_declared(mode: str) -> None:
    """api-1: with its own name and instructions, everything that agents may use, output schemas too."""
    options = ServeOptions(info=ServerInfo(name="walks", version="7", instructions="walk on"))
    async with Client(build(commands(), options), mode=mode) as client:
        listed = await client.list_tools()
        assert [one.name for one in listed.tools] == ["walk", "visit", "forget"]
        assert (client.server_info.name, client.server_info.version) == ("walks", "7")
        assert client.instructions == "walk on"
        assert text_of(await client.call_tool("forget", {"name": "Eve"})) == "Eve who? (by mcp)"


@pytest.mark.parametrize("mode", ERAS)
async def test_a_selection_filters_lists_and_calls(mode: str) -> None:
    """api-1: the options are those of our own servers."""
    options = ServeOptions(selection=Selection(profile="all", read_only=True))
    async with Client(build(commands(), options), mode=mode) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["walk"]
        with pytest.raises(MCPError, match="the server is read-only"):
            await client.call_tool("forget", {"name": "Eve"})


async def test_a_protocol_extension_can_be_served_too() -> None:
    """api-1: in the SDK's form; for instance a page that shows the results of an author's tool."""
    view = View(tool="walk", uri="ui://walk", description="The way", page=lambda: "<!doctype html><p>a way</p>")
    async with Client(build(commands(), ServeOptions(extensions=(Views((view,)),)))) as client:
        page = (await client.read_resource("ui://walk")).contents[0]
        assert "io.modelcontextprotocol/ui" in (client.server_capabilities.extensions or {})
    assert isinstance(page, types.TextResourceContents)
    assert "a way" in page.text


def test_an_invalid_registry_is_refused_before_anybody_connects() -> None:
    """api-2: with both sources of a collision."""
    registry = Registry()

    @registry.tool(Effect.READ)
    def one() -> str:
        """One."""
        return ""

    other = Registry()
    other.context("a").tool(Effect.READ)(one)
    registry.merge(other)
    other = Registry()

    @other.tool(Effect.READ)
    def a_one() -> str:
        """Another."""
        return ""

    collides = Registry()
    collides.merge(other)
    collides.context("a").tool(Effect.READ)(one)
    with pytest.raises(BadSetting, match=r"a_one: .*a_one and .*one"):
        build(collides)
    with pytest.raises(BadSetting, match="threads=0"):
        ServeOptions(threads=0)


@pytest.mark.parametrize("mode", ERAS)
async def test_clients_on_a_unix_socket_share_services_and_nothing_else(mode: str, tmp_path: Path) -> None:
    """api-5, api-6: concurrently, on one server; each receives its own progress only."""
    received: dict[str, list[str]] = {}
    visits: list[str] = []

    async def visitor(name: str) -> None:
        stream = await anyio.connect_unix(tmp_path / "socket")
        async with Client(Over(stream), mode=mode) as client:
            ready.append(name)
            if len(ready) == AT_ONCE:
                everybody.set()
            await everybody.wait()
            received[name] = await walked(client, name)
            visits.append(text_of(await client.call_tool("visit", {})))

    ready: list[str] = []
    everybody = anyio.Event()
    with anyio.fail_after(SECONDS):
        async with listening(tmp_path / "socket"), anyio.create_task_group() as tasks:
            for number in range(AT_ONCE):
                tasks.start_soon(visitor, f"client{number}")
    assert len(received) == AT_ONCE
    for name, seen in received.items():
        assert seen
        assert all(message.startswith(name) for message in seen)
    assert sorted(visits) == [f"visit {number + 1}" for number in range(AT_ONCE)]


async def test_a_client_that_disconnects_affects_no_other(tmp_path: Path) -> None:
    """api-6: its calls are cancelled, those of others go on."""
    registry = Registry()
    waiting, cancelled = anyio.Event(), anyio.Event()

    @registry.tool(Effect.READ)
    async def wait() -> str:
        """Wait."""
        try:
            waiting.set()
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    server = build(registry)

    async def connected(stream: SocketStream) -> None:
        await serve_streams(server, stream, stream)

    with anyio.fail_after(SECONDS):
        async with (
            await anyio.create_unix_listener(tmp_path / "socket") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, connected)
            stream = await anyio.connect_unix(tmp_path / "socket")
            async with Client(Over(await anyio.connect_unix(tmp_path / "socket"))) as stays:
                async with Client(Over(stream)) as leaves, anyio.create_task_group() as calls:
                    calls.start_soon(leaves.call_tool, "wait", {})
                    await waiting.wait()
                    calls.cancel_scope.cancel()
                await cancelled.wait()
                assert [one.name for one in (await stays.list_tools()).tools] == ["wait"]
            tasks.cancel_scope.cancel()


HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


async def test_an_object_stream_carries_one_message_of_text_in_each_item() -> None:
    """api-4: such as a WebSocket; line ends between the parts of JSON do not matter, and bytes are accepted too."""
    to_server, read = anyio.create_memory_object_stream[Any](16)
    write, from_server = anyio.create_memory_object_stream[str](16)
    with anyio.fail_after(SECONDS):
        async with to_server, from_server, anyio.create_task_group() as tasks:
            tasks.start_soon(serve_streams, commands(), read, write)
            await to_server.send(json.dumps(HELLO, indent=2))
            assert json.loads(await from_server.receive())["result"]["serverInfo"]["name"] == "coretools"
            await to_server.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
            await to_server.send(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).encode())
            listed = json.loads(await from_server.receive())
            assert listed["id"] == 2
            assert len(listed["result"]["tools"]) == 3
            await to_server.aclose()
            with pytest.raises(anyio.EndOfStream):
                await from_server.receive()


async def test_what_is_written_is_sent_whole_when_the_server_is_cancelled() -> None:
    """api-4: no message is torn, and none that was written is lost to a client that reads."""
    to_server, read = anyio.create_memory_object_stream[str](1)
    write, from_server = anyio.create_memory_object_stream[str](0)
    with anyio.fail_after(SECONDS):
        async with to_server, from_server, anyio.create_task_group() as tasks:
            tasks.start_soon(serve_streams, commands(), read, write)
            await to_server.send(json.dumps(HELLO))
            while not write.statistics().tasks_waiting_send:
                await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                assert json.loads(await from_server.receive())["id"] == 1


async def test_a_server_that_is_cancelled_does_not_wait_for_a_client_that_never_reads() -> None:
    """api-4: the rest is dropped after a bounded time."""
    to_server, read = anyio.create_memory_object_stream[str](1)
    write, from_server = anyio.create_memory_object_stream[str](0)
    with anyio.fail_after(SECONDS):
        async with to_server, from_server, anyio.create_task_group() as tasks:
            tasks.start_soon(serve_streams, commands(), read, write)
            await to_server.send(json.dumps(HELLO))
            while not write.statistics().tasks_waiting_send:
                await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"what?", types.PARSE_ERROR, None),
        (b"[]", types.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":3,"method":5}', types.INVALID_REQUEST, 3),
        (b'{"jsonrpc":"2.0","id":4,"method":"m","params":{"x":"' + b"x" * 2000 + b'"}}', types.INVALID_REQUEST, 4),
        (b"\xff\xfe", types.PARSE_ERROR, None),
    ],
    ids=["no JSON", "a batch", "no message", "too long", "no UTF-8"],
)
@pytest.mark.parametrize("kind", ["bytes", "objects"])
async def test_a_malformed_line_is_answered_and_the_next_one_is_read(
    line: bytes, code: int, request_id: object, kind: str, tmp_path: Path
) -> None:
    """api-4: as on stdio, with its limit."""
    options = ServeOptions(line_bytes=1000)
    with anyio.fail_after(SECONDS):
        if kind == "bytes":
            async with listening(tmp_path / "socket", options), await anyio.connect_unix(tmp_path / "socket") as stream:
                await stream.send(line + b"\n" + json.dumps(HELLO).encode() + b"\n")
                buffered = b""
                while buffered.count(b"\n") < 2:
                    buffered += await stream.receive()
                first, second = (json.loads(one) for one in buffered.splitlines())
        else:
            to_server, read = anyio.create_memory_object_stream[bytes](16)
            write, from_server = anyio.create_memory_object_stream[str](16)
            async with from_server, anyio.create_task_group() as tasks:

                async def serve() -> None:
                    await serve_streams(commands(), read, write, options=options)

                tasks.start_soon(serve)
                async with to_server:
                    await to_server.send(line)
                    await to_server.send(json.dumps(HELLO).encode())
                    first, second = [json.loads(await from_server.receive()) for _ in range(2)]
    assert (first["error"]["code"], first.get("id")) == (code, request_id)
    assert second["id"] == 1


async def test_a_client_that_does_not_read_costs_bounded_memory(tmp_path: Path) -> None:
    """api-4: the writer waits; the connection ends when the client disconnects, whatever was not sent."""
    registry = Registry()
    written: list[int] = []

    @registry.tool(Effect.READ)
    async def flood() -> str:
        """Say much."""
        written.append(1)
        return "x" * 1_000_000

    ended = anyio.Event()

    server = build(registry)

    async def connected(stream: SocketStream) -> None:
        await serve_streams(server, stream, stream)
        ended.set()

    with anyio.fail_after(SECONDS):
        async with (
            await anyio.create_unix_listener(tmp_path / "socket") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, connected)
            stream = await anyio.connect_unix(tmp_path / "socket")
            await stream.send(json.dumps(HELLO).encode() + b"\n")
            buffered = b""
            while b"\n" not in buffered:
                buffered += await stream.receive()
            for number in range(2, 12):
                call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "flood"}}
                await stream.send(json.dumps(call).encode() + b"\n")
            await anyio.wait_all_tasks_blocked()
            await stream.aclose()
            await ended.wait()
            tasks.cancel_scope.cancel()
    assert written


@pytest.mark.parametrize("mode", ERAS)
async def test_http_serves_both_eras_to_many_clients_at_once(mode: str) -> None:
    """api-7, api-6: over a real socket; each client receives its own progress only, and all share the services."""
    received: dict[str, list[str]] = {}
    visits: list[str] = []

    async def visitor(url: str, name: str) -> None:
        async with Client(url, mode=mode) as client:
            received[name] = await walked(client, name)
            visits.append(text_of(await client.call_tool("visit", {})))

    with anyio.fail_after(SECONDS):
        async with over_http(commands()) as url, anyio.create_task_group() as tasks:
            for number in range(AT_ONCE):
                tasks.start_soon(visitor, url, f"client{number}")
    for name, seen in received.items():
        assert seen
        assert all(message.startswith(name) for message in seen)
    assert sorted(visits) == [f"visit {number + 1}" for number in range(AT_ONCE)]


async def test_http_refuses_a_foreign_host_or_origin_and_too_many_sessions() -> None:
    """api-7: a foreign name that resolves to this machine is refused; 503 above the limit of sessions in use."""
    import httpx2

    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with anyio.fail_after(SECONDS):
        async with over_http(commands(), HttpOptions(sessions=1)) as url, httpx2.AsyncClient() as client:
            foreign = await client.post(url, json=HELLO, headers={**headers, "Host": "evil.example"})
            origin = await client.post(url, json=HELLO, headers={**headers, "Origin": "https://evil.example"})
            first = await client.post(url, json=HELLO, headers=headers)
            opened = {**headers, "Mcp-Session-Id": first.headers["mcp-session-id"]}
            async with client.stream("GET", url, headers=opened):
                second = await client.post(url, json=HELLO, headers=headers)
    assert (foreign.status_code, origin.status_code, first.status_code, second.status_code) == (421, 403, 200, 503)


@pytest.mark.parametrize("mode", ERAS)
async def test_an_added_or_removed_command_shows_while_the_server_runs(mode: str, tmp_path: Path) -> None:
    """api-24: on open connections too; a removed one cannot be called."""
    registry = commands()
    with anyio.fail_after(SECONDS):
        async with Client(build(registry), mode=mode, cache=None) as client:
            registry.remove("forget")
            with pytest.raises(MCPError, match="forget"):
                await client.call_tool("forget", {"name": "Eve"})
            while [one.name for one in (await client.list_tools()).tools] != ["walk", "visit"]:
                await anyio.lowlevel.checkpoint()


async def test_another_store_of_services_can_be_given() -> None:
    """api-19: commands share the services of the options."""
    services = MemoryServices()
    await services.values.set("visits", b"41")
    async with Client(build(commands(), ServeOptions(services=services))) as client:
        assert text_of(await client.call_tool("visit", {})) == "visit 42"


PROGRAM = "tests.hosting.own_program"


@pytest.mark.parametrize(
    ("how", "exit_code"), [("closed", 0), (signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["closed", "TERM", "INT"]
)
def test_on_stdio_the_end_of_the_server_cancels_calls_and_the_process_goes_on(
    how: str | signal.Signals, exit_code: int, tmp_path: Path
) -> None:
    """api-3: on the client's end or a signal; then the streams are the process's own again."""
    process = warm.Popen(
        [sys.executable, "-m", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TREE)},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            peer = Peer(process)
            assert peer.ask("initialize", HANDSHAKE)["result"]["capabilities"]["tools"]
            peer.notify("notifications/initialized")
            peer.send("tools/call", {"name": "wait", "arguments": {}})
            assert process.stderr.readline() == b"waiting\n"
            if isinstance(how, signal.Signals):
                process.send_signal(how)
            else:
                process.stdin.close()
            assert process.wait(ANSWER_SECONDS) == exit_code
            assert b"not for the wire" in process.stderr.read()
            assert process.stdout.read().splitlines()[-1] == b"printed after the end"
        finally:
            process.kill()
    assert (tmp_path / "cleaned").read_text() == "up"
    assert (tmp_path / "after").read_text() == str(exit_code)


@pytest.mark.parametrize("words", [("default",), ("configured",)], ids=lambda words: words[0])
def test_the_log_of_a_program_of_its_own_has_no_credentials(words: tuple[str, ...], tmp_path: Path) -> None:
    """api-27, redaction-10: values of the environment and tokens, in messages and tracebacks."""
    environment = {**os.environ, "PYTHONPATH": str(TREE), "CORETOOLS_DB_PASSWORD": "hunter2-hunter2"}
    process = warm.Popen(
        [sys.executable, "-m", PROGRAM, str(tmp_path), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    with process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            peer = Peer(process)
            peer.start_session()
            assert peer.call("fail")["isError"]
            process.stdin.close()
            assert process.wait(ANSWER_SECONDS) == 0
            log = process.stderr.read().decode()
        finally:
            process.kill()
    assert "hunter2" not in log
    assert "a1B2a1B2" not in log
    assert log.count("[redacted:") >= 2
    assert ("mine: " in log) == ("configured" in words)
