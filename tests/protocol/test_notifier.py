"""Progress and messages of a call, to clients that read and to one that does not (docs/specs/workstation.md)."""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import urlsplit

import anyio
import mcp_types as types
import pytest
from anyio.lowlevel import checkpoint
from mcp import Client
from mcp.server.lowlevel import Server
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage

from coretools.operations.call import Call
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, tool
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.notifier import LOGGER, MAX_MESSAGES
from coretools.protocol.server import ServerInfo, build_server
from tests.protocol.http_peer import listening
from tests.protocol.peer import ENVELOPE, HANDSHAKE

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
BOUND_SECONDS = 60
STEPS_OF_A_WRITE = 20
"""Turns of the event loop, from a command to the socket: faster messages are dropped before it."""
LEVELS: tuple[types.LoggingLevel, ...] = ("debug", "info", "warning", "error")


class Talkative:
    def __init__(self) -> None:
        self.finished = anyio.Event()
        self.go_on = anyio.Event()
        self.arrived = anyio.Event()
        self.left: asyncio.Task[None] | None = None

    @tool(Effect.READ)
    async def advance(self, call: Call, steps: int = 1000) -> str:
        """Report every step."""
        for done in range(steps):
            await call.progress(done + 1, steps, f"step {done + 1}")
        self.finished.set()
        return "there"

    @tool(Effect.READ)
    async def advance_and_wait(self, call: Call) -> str:
        """Report a step, and wait."""
        await call.progress(1, 2)
        await self.go_on.wait()
        return "there"

    @tool(Effect.READ)
    async def leave_behind(self, call: Call) -> str:
        """Leave a task that goes on reporting."""

        async def tell() -> None:
            await self.go_on.wait()
            await call.progress(1, 2)
            await call.log("warning", "late")
            self.finished.set()

        self.left = asyncio.create_task(tell())
        return "there"

    @tool(Effect.READ)
    async def say_levels(self, call: Call) -> str:
        """Log a message at each level."""
        for level in ("debug", "info", "warning", "error"):
            await call.log(level, f"a {level}")  # type: ignore[arg-type]  # each is a level
        return "done"

    @tool(Effect.READ)
    async def advance_and_say(self, call: Call) -> str:
        """Report steps and messages in turns."""
        await call.log("info", "before")
        await self._pause()
        for done in (1, 2):
            await call.progress(done, 3, f"step {done}")
            await self._pause()
            await call.log("info", f"after {done}")
            await self._pause()
        await call.progress(3, 3, "step 3")
        await call.log("info", "too late for progress")
        return "done"

    @tool(Effect.READ)
    async def say_much(self, call: Call) -> str:
        """Log more than anybody reads."""
        for number in range(5 * MAX_MESSAGES):
            await call.log("warning", str(number))
        self.finished.set()
        await self.go_on.wait()
        return "done"

    @tool(Effect.READ)
    async def say_odd(self, call: Call) -> str:
        """Report names and numbers that JSON or UTF-8 cannot carry."""
        await call.progress(float("nan"), 2)
        await call.progress(1, 2, "caf\u00e9 \udcff")
        await call.log("error", "\udcff")
        await call.progress(float("inf"))
        return "done"

    @tool(Effect.READ)
    async def shout(self, call: Call) -> str:
        """Report more than the buffers of a socket hold, unless it is bounded."""
        for _ in range(1000):
            await call.log("warning", "x" * 4000)
            for _ in range(STEPS_OF_A_WRITE):
                await checkpoint()
        self.finished.set()
        await self.go_on.wait()
        return "done"

    @tool(Effect.READ)
    def answer(self) -> str:
        """Answer at once."""
        return "here"

    async def _pause(self) -> None:
        """Let what was sent arrive."""
        with anyio.fail_after(BOUND_SECONDS):
            await self.arrived.wait()
        self.arrived = anyio.Event()


def served(talkative: Talkative) -> Server[Any]:
    registry = Registry()
    registry.add_set("talkative", talkative)
    catalog = LiveCatalog(registry, Selection(profile="all"))
    return build_server(catalog, Dispatcher(threads=2), ServerInfo())


class ReceivedMessages:
    """What a client received."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float | None, str | None]] = []
        self.messages: list[types.LoggingMessageNotificationParams] = []

    async def step(self, done: float, total: float | None, message: str | None) -> None:
        self.steps.append((done, total, message))

    async def message(self, params: types.LoggingMessageNotificationParams) -> None:
        self.messages.append(params)

    @property
    def texts(self) -> list[object]:
        return [one.data for one in self.messages]

    @property
    def increases(self) -> bool:
        return all(one[0] < after[0] for one, after in itertools.pairwise(self.steps))


@asynccontextmanager
async def client(mode: str, heard: ReceivedMessages, **given: Any) -> AsyncIterator[Client]:
    server = served(given.pop("talkative", Talkative()))
    async with Client(server, mode=mode, logging_callback=heard.message, cache=None, **given) as connected:
        yield connected


# Progress


async def test_a_client_that_does_not_take_progress_blocks_no_call() -> None:
    """workstation-14: the result comes half a second after the command has ended, and other calls at once."""
    stuck = anyio.Event()

    async def step(done: float, total: float | None, message: str | None) -> None:
        stuck.set()
        await anyio.sleep_forever()

    talkative = Talkative()
    async with client("auto", ReceivedMessages(), talkative=talkative) as connected, anyio.create_task_group() as tasks:

        async def advance() -> None:
            await connected.call_tool("advance", {}, progress_callback=step)
            tasks.cancel_scope.cancel()

        with anyio.fail_after(BOUND_SECONDS):
            tasks.start_soon(advance)
            await stuck.wait()
            answered = await connected.call_tool("answer", {})
            assert getattr(answered.content[0], "text", "") == "here"
            await talkative.finished.wait()
            await anyio.sleep_forever()


@ERAS
async def test_a_client_that_does_not_read_blocks_no_command(mode: str) -> None:
    """workstation-14: only the newest progress waits; when the peer reads, it gets the first and the last."""
    talkative = Talkative()
    with anyio.fail_after(BOUND_SECONDS):
        async with raw(talkative, mode) as (send, receive):
            await send("tools/call", {"name": "advance", "arguments": {}}, token="t")
            await talkative.finished.wait()
            steps = []
            while (message := await receive()).get("method") == "notifications/progress":
                steps.append(message["params"])
    expected = [one["progress"] for one in steps]
    # One waits, one is being sent, and one is in the stream.
    assert (expected[0], expected[-1]) == (1, 1000)
    assert expected == sorted(set(expected))
    assert len(expected) <= 4
    assert {one["progressToken"] for one in steps} == {"t"}
    assert message["result"]["content"][0]["text"] == "there"


@ERAS
async def test_the_last_progress_is_sent_before_the_result(mode: str) -> None:
    """workstation-14: however soon after the one before it."""
    heard = ReceivedMessages()
    async with client(mode, heard) as connected:
        for steps in (1, 2, 50):
            await connected.call_tool("advance", {"steps": steps}, progress_callback=heard.step)
            assert heard.steps[-1] == (steps, steps, f"step {steps}")


@ERAS
async def test_a_cancelled_call_sends_no_more_progress(mode: str) -> None:
    """workstation-14: its sending task ends with it."""
    heard, was_notified = ReceivedMessages(), anyio.Event()

    async def step(done: float, total: float | None, message: str | None) -> None:
        await heard.step(done, total, message)
        was_notified.set()

    async with client(mode, heard) as connected:
        async with anyio.create_task_group() as tasks:

            async def advance() -> None:
                await connected.call_tool("advance_and_wait", {}, progress_callback=step)

            tasks.start_soon(advance)
            with anyio.fail_after(BOUND_SECONDS):
                await was_notified.wait()
            tasks.cancel_scope.cancel()
        assert getattr((await connected.call_tool("answer", {})).content[0], "text", "") == "here"
    assert heard.steps == [(1, 2, None)]


@ERAS
async def test_invalid_numbers_and_odd_names_break_nothing(mode: str) -> None:
    """workstation-14, workstation-7: NaN and infinity are no progress; odd names are escaped."""
    heard = ReceivedMessages()
    async with client(mode, heard, log_level="debug") as connected:
        await connected.call_tool("say_odd", {}, progress_callback=heard.step)
    assert heard.steps[0][:2] == (1, 2)
    assert heard.steps[-1][2] in ("caf\u00e9 \\udcff", "\\udcff")
    assert heard.texts == ["\\udcff"]


# Messages


@ERAS
async def test_log_messages_are_the_message_of_the_progress(mode: str) -> None:
    """workstation-15: which then increases by the smallest step, and not at all once the work is complete."""
    heard, talkative = ReceivedMessages(), Talkative()

    async def step(done: float, total: float | None, message: str | None) -> None:
        await heard.step(done, total, message)
        talkative.arrived.set()

    async with client(mode, heard, talkative=talkative) as connected:
        await connected.call_tool("advance_and_say", {}, progress_callback=step)
    assert [message for _, _, message in heard.steps] == [
        "before",
        "step 1",
        "after 1",
        "step 2",
        "after 2",
        "step 3",
    ]
    assert [round(done, 6) for done, _, _ in heard.steps] == [0, 1, 1, 2, 2, 3]
    assert heard.increases


async def test_a_handshake_client_gets_messages_from_its_level_on() -> None:
    """workstation-16: `info` until it sets one (logging/setLevel); its own level, not that of another session."""
    heard, other = ReceivedMessages(), ReceivedMessages()
    server = served(Talkative())
    async with (
        Client(server, mode="legacy", logging_callback=heard.message) as one,
        Client(server, mode="legacy", logging_callback=other.message) as two,
    ):
        await one.call_tool("say_levels", {})
        assert [message.level for message in heard.messages] == ["info", "warning", "error"]
        assert {message.logger for message in heard.messages} == {LOGGER}
        for level, seen in (("debug", 4), ("notice", 2), ("error", 1), ("emergency", 0)):
            heard.messages.clear()
            await one.set_logging_level(level)  # type: ignore[arg-type]  # each is a level
            await one.call_tool("say_levels", {})
            assert len(heard.messages) == seen
        await two.call_tool("say_levels", {})
    assert other.texts == ["a info", "a warning", "a error"]


@pytest.mark.parametrize("level", [None, *LEVELS])
async def test_a_stateless_client_gets_messages_only_if_its_request_asks(
    level: types.LoggingLevel | None,
) -> None:
    """workstation-16: by `_meta`, from that level on."""
    heard = ReceivedMessages()
    async with client("auto", heard, log_level=level) as connected:
        await connected.call_tool("say_levels", {})
    wanted = () if level is None else LEVELS[LEVELS.index(level) :]
    assert [message.level for message in heard.messages] == list(wanted)


async def test_unread_messages_are_bounded_and_counted() -> None:
    """workstation-16: the oldest are dropped, and the next one states how many."""
    talkative = Talkative()
    with anyio.fail_after(BOUND_SECONDS):
        async with raw(talkative, "legacy") as (send, receive):
            await send("tools/call", {"name": "say_much", "arguments": {}})
            await talkative.finished.wait()
            talkative.go_on.set()
            texts = []
            while (message := await receive()).get("method") == "notifications/message":
                texts.append(message["params"]["data"])
    assert texts[0] == "0"
    assert texts[-1] == str(5 * MAX_MESSAGES - 1)
    assert len(texts) <= MAX_MESSAGES + 5
    [noted] = [text for text in texts if text.startswith("[")]
    assert noted.startswith(f"[{5 * MAX_MESSAGES - len(texts)} earlier messages were dropped]")


async def test_serving_shows_no_deprecation_warnings(recwarn: pytest.WarningsRecorder) -> None:
    """workstation-16: whoever runs the server cannot change the eras of its clients."""
    heard = ReceivedMessages()
    async with client("auto", heard, log_level="debug") as connected:
        await connected.call_tool("say_levels", {})
    async with client("legacy", heard) as connected:
        await connected.call_tool("say_levels", {})
    assert [str(warning.message) for warning in recwarn.list if "deprecated" in str(warning.message)] == []


@asynccontextmanager
async def raw(talkative: Talkative, mode: str) -> AsyncIterator[Any]:
    """A connection over unbuffered streams: what is not received is not sent."""
    server = served(talkative)
    streams = create_client_server_memory_streams()
    async with streams as ((read, write), server_streams), anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, *server_streams, server.create_initialization_options())
        number = 0

        async def send(method: str, params: dict[str, Any], token: str | None = None) -> None:
            nonlocal number
            number += 1
            meta = dict(ENVELOPE) if mode == "auto" else {}
            meta |= {"progressToken": token} if token else {}
            request = types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params={**params, "_meta": meta})
            await write.send(SessionMessage(request))

        async def receive() -> dict[str, Any]:
            message: SessionMessage | Exception = await read.receive()
            assert isinstance(message, SessionMessage)
            return message.message.model_dump(mode="json", exclude_unset=True)

        if mode == "legacy":
            await send("initialize", HANDSHAKE)
            await receive()
        yield send, receive
        tasks.cancel_scope.cancel()


# HTTP


async def test_an_unread_response_does_not_block_its_session() -> None:
    """workstation-16: over a real socket with a small buffer, in the era that has one writer for a session."""
    talkative = Talkative()
    async with listening(served(talkative).streamable_http_app()) as url:
        address = urlsplit(url)
        assert address.port is not None
        async with RawPost(address.port) as first:
            session = await first.start()
        async with RawPost(address.port, session) as initialized:
            await initialized.notify("notifications/initialized")
        async with RawPost(address.port, session) as unread:
            await unread.send(7, "tools/call", {"name": "shout", "arguments": {}})
            with anyio.fail_after(BOUND_SECONDS):
                await talkative.finished.wait()
            async with RawPost(address.port, session) as other:
                await other.send(8, "tools/call", {"name": "answer", "arguments": {}})
                assert b"here" in await other.receive_until(b"here")


class RawPost:
    """One POST over its own socket, written by hand: what is not requested is not read."""

    def __init__(self, port: int, session: str = "") -> None:
        self._port = port
        self._session = session
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    async def __aenter__(self) -> Self:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)
        await asyncio.get_running_loop().sock_connect(self._socket, ("127.0.0.1", self._port))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._socket.close()

    async def start(self) -> str:
        await self.send(1, "initialize", HANDSHAKE)
        head = await self.receive_until(b"\r\n\r\n")
        [line] = [line for line in head.split(b"\r\n") if line.lower().startswith(b"mcp-session-id:")]
        return line.split(b":")[1].strip().decode()

    async def notify(self, method: str) -> None:
        await self._post({"jsonrpc": "2.0", "method": method})
        await self.receive_until(b"\r\n\r\n")

    async def send(self, number: int, method: str, params: dict[str, Any]) -> None:
        await self._post({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    async def receive_until(self, mark: bytes) -> bytes:
        data = b""
        with anyio.fail_after(BOUND_SECONDS):
            while mark not in data:
                data += await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        return data

    async def _post(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *([f"Mcp-Session-Id: {self._session}", "MCP-Protocol-Version: 2025-11-25"] if self._session else []),
        ]
        written = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        await asyncio.get_running_loop().sock_sendall(self._socket, written)


async def test_notifications_after_the_end_of_a_call_are_dropped() -> None:
    """workstation-14: and leave no task that waits for ever."""
    talkative = Talkative()
    async with Client(served(talkative), mode="legacy") as client:
        await client.call_tool("leave_behind")
        before = len(asyncio.all_tasks())
        with anyio.fail_after(BOUND_SECONDS):
            talkative.go_on.set()
            await talkative.finished.wait()
            assert talkative.left is not None
            await talkative.left
        await checkpoint()
        assert len(asyncio.all_tasks()) == before - 1  # the notifier's task has ended
