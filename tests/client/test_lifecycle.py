"""Servers are started, stopped, restarted, lost and found again; lists are kept (docs/specs/client.md)."""

import json
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.abc import SocketAttribute, SocketStream, TaskStatus
from mcp.server.mcpserver import Context, MCPServer

from coretools.client.agents import Hub
from coretools.client.common.errors import ProtocolViolation
from coretools.client.connection.options import State
from coretools.client.connection.server_connection import Connection
from coretools.errors import CoreError, InvalidArguments, Unreachable
from tests.client.peers import WAIT_SECONDS, EventLog, hub, misbehaving
from tests.client.remote import Ignoring, OnlyOld, echo_server, served
from tests.variables import variables


@pytest.fixture
def events(tmp_path: Path) -> Iterator[EventLog]:
    log = EventLog(tmp_path)
    yield log
    log.close()


async def until(connection: Connection, state: State) -> None:
    """Wait until a lost connection has settled in a state."""
    with anyio.fail_after(WAIT_SECONDS):
        while await connection.wait_settled() != state:
            await anyio.lowlevel.checkpoint()


async def until_it_answers(connection: Connection) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        while await outcome(connection) != "hello":
            await until(connection, State.READY)


async def outcome(connection: Connection) -> str | CoreError:
    try:
        return (await connection.call("echo", {"text": "hello"})).content[0].text  # type: ignore[union-attr]
    except CoreError as error:
        return error


async def test_a_refresh_follows_the_file_and_servers_are_started_and_stopped_by_name(tmp_path: Path) -> None:
    """client-21: new entries start, changed ones restart, removed ones stop, unchanged ones keep their connection."""
    file = tmp_path / "mcp.json"

    def write(**servers: Any) -> None:
        file.write_text(json.dumps({"servers": servers}))

    log = tmp_path / "log"
    write(same=misbehaving("ok", str(log)), changed=misbehaving("ok"), removed=misbehaving("ok"))
    no_home = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME"))
    with variables(HOME=str(tmp_path), VALUE=None, **no_home), chdir(tmp_path):
        async with Hub.from_config("mcp.json", approve=always) as agent:
            assert len(await agent.tools()) == 3
            write(same=misbehaving("ok", str(log)), changed=misbehaving("fails"), new=misbehaving("exits"), bad={})
            changes = await agent.refresh()
            assert changes == {"same": "kept", "changed": "restarted", "removed": "stopped", "new": "started"}
            assert [tool.name for tool in await agent.tools()] == ["same__echo", "changed__echo"]
            assert agent.states() == {"same": State.READY, "changed": State.READY, "new": State.FAILED}
            assert set(agent.failures) == {"new", "bad"}
            assert (await agent.call("changed__echo", {"text": "x"})).is_error
            await agent.stop("same")
            assert agent.states()["same"] is State.STOPPED
            assert [tool.name for tool in await agent.tools()] == ["changed__echo"]
            assert log.read_text().count("started") == 1
            assert await agent.start("same") is State.READY
            assert await agent.start("same") is State.READY
            assert log.read_text().count("started") == 2
            assert await agent.restart("same") is State.READY
            assert log.read_text().count("started") == 3
            with pytest.raises(InvalidArguments, match="no server 'removed' runs; there are: same, changed, new"):
                await agent.restart("removed")
            file.write_text("{")
            with pytest.raises(CoreError):
                await agent.refresh()
            assert agent.states()["same"] is State.READY


async def always(*_: Any) -> bool:
    return True


async def test_a_local_server_that_died_is_started_again_up_to_a_limit(tmp_path: Path, events: EventLog) -> None:
    """client-22: the state is true at each time; without pauses, as for one line, it is not tried again."""
    way = tmp_path / "way"
    way.write_text("dies")
    servers = {"again": misbehaving(f"@{way}", events.path), "once": misbehaving("dies")}
    async with hub(tmp_path, servers, reconnect_seconds=(0, 0)) as connections:
        again = connections["again"]
        await until(again, State.READY)
        await to_thread.run_sync(events.wait_for, "started")
        way.write_text("ok")
        error = await outcome(again)
        assert isinstance(error, Unreachable)
        assert "it ended with exit code 3" in str(error)
        assert again.state is State.CONNECTING
        answers = [await again.call("echo", {"text": "at once"}) for _ in range(2)]
        assert [one.content[0].text for one in answers] == ["at once"] * 2  # type: ignore[union-attr]
        await to_thread.run_sync(events.wait_for, "started")
        assert again.error is None
        way.write_text("dies")
        again.stop()
    async with hub(tmp_path, servers, reconnect_seconds=(0, 0)) as connections:
        again = connections["again"]
        await until(again, State.READY)
        way.write_text("exits")
        await outcome(again)
        await until(again, State.FAILED)
        assert "it ended with exit code 4" in str(again.error)
        with pytest.raises(Unreachable, match="it ended with exit code 4"):
            await again.ping()
    async with hub(tmp_path, {"once": misbehaving("dies")}) as connections:
        await connections["once"].wait_settled()
        await outcome(connections["once"])
        with pytest.raises(Unreachable, match=r"^server 'once': it ended with exit code 3"):
            await connections["once"].ping()
        assert connections["once"].state is State.FAILED


class Forwarder:
    """An address behind which there is one server, another one, or none."""

    def __init__(self) -> None:
        self.target: int | None = None
        self._connections = anyio.CancelScope()

    def switch(self, address: str | None) -> None:
        """Cut the connections; from now on the server of this address answers."""
        self.target = None if address is None else int(address.rsplit(":", 1)[1])
        self._connections.cancel()

    async def run(self, *, task_status: TaskStatus[str]) -> None:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            port = listener.extra(SocketAttribute.local_port)
            task_status.started(f"http://127.0.0.1:{port}")
            while True:
                with anyio.CancelScope() as self._connections:
                    await listener.serve(self._forward)

    async def _forward(self, client: SocketStream) -> None:
        if self.target is None:
            await client.aclose()
            return
        async with (
            client,
            await anyio.connect_tcp("127.0.0.1", self.target) as server,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._copy, client, server, tasks.cancel_scope)
            await self._copy(server, client, tasks.cancel_scope)

    async def _copy(self, source: SocketStream, target: SocketStream, scope: anyio.CancelScope) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in source:
                await target.send(data)
        scope.cancel()


@pytest.mark.parametrize("stateless", [False, True])
async def test_a_remote_server_that_was_away_is_connected_again(tmp_path: Path, stateless: bool) -> None:
    """client-22: one that has lost the session, and one that can't be reached for a while."""
    async with (
        served(old(stateless)) as first,
        served(old(stateless)) as second,
        anyio.create_task_group() as tasks,
    ):
        forwarder = Forwarder()
        servers = {"r": {"type": "http", "url": f"{await tasks.start(forwarder.run)}/mcp"}}
        forwarder.switch(first)
        async with hub(tmp_path, servers, reconnect_seconds=(0.02,) * 1000, retry_seconds=()) as connections:
            connection = connections["r"]
            assert await connection.wait_settled() == State.READY
            forwarder.switch(None)
            assert isinstance(await outcome(connection), Unreachable)
            forwarder.switch(first)
            await until_it_answers(connection)
            forwarder.switch(second)  # it does not know the session
            await until_it_answers(connection)
        tasks.cancel_scope.cancel()


def old(stateless: bool) -> Any:
    """A server of the older era, unless it is stateless."""
    app = echo_server().streamable_http_app()
    return app if stateless else OnlyOld(app)


async def test_a_list_is_fetched_again_only_when_it_changed(tmp_path: Path, events: EventLog) -> None:
    """client-23: in the older era, by notification."""
    async with hub(tmp_path, {"r": misbehaving("renames", events.path)}) as connections:
        connection = connections["r"]
        await connection.wait_settled()
        for _ in range(3):
            assert [tool.name for tool in await connection.tools()] == ["echo"]
        await connection.call("echo", {"text": "x"})
        assert [tool.name for tool in await connection.tools()] == ["renamed"]
        assert [tool.name for tool in await connection.tools()] == ["renamed"]
        await connection.call("renamed", {"text": "x"})
        await to_thread.run_sync(events.wait_for, "listed")
        await to_thread.run_sync(events.wait_for, "listed")
        connection.stop()
        await connection.wait_ended()
    assert events.rest() == ""


async def test_a_list_of_the_stateless_era_is_kept_by_subscription(tmp_path: Path) -> None:
    """client-23"""
    server = MCPServer("changing")
    fetched: list[str] = []

    @server.tool()
    def echo(text: str) -> str:
        return text

    @server.tool()
    async def change(ctx: Context) -> str:
        server.remove_tool("echo")
        await ctx.notify_tools_changed()
        return "changed"

    async with served(Counting(server.streamable_http_app(), fetched)) as address:
        entry = {"type": "http", "url": f"{address}/mcp"}
        async with hub(tmp_path, {"r": entry}, watches_lists=True) as connections:
            connection = connections["r"]
            await connection.wait_settled()
            with anyio.fail_after(WAIT_SECONDS):
                while True:  # until the subscription is there
                    fetched.clear()
                    await connection.tools()
                    if not fetched:
                        break
            before = connection.tool_changes
            await connection.call("change", {})
            with anyio.fail_after(WAIT_SECONDS):
                while connection.tool_changes == before:
                    await anyio.lowlevel.checkpoint()
            assert [tool.name for tool in await connection.tools()] == ["change"]
            assert fetched == ["tools/list"]


class Counting:
    """Counts the requests for a list."""

    def __init__(self, app: Any, fetched: list[str]) -> None:
        self._app = app
        self._fetched = fetched

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-method") == b"tools/list":
            self._fetched.append("tools/list")
        await self._app(scope, receive, send)


async def test_a_malformed_tool_does_not_hide_the_others(tmp_path: Path) -> None:
    """client-11: it is reported with its number, its name and the reason."""
    async with hub(tmp_path, {"m": misbehaving("one-malformed")}) as connections:
        await connections["m"].wait_settled()
        assert [tool.name for tool in await connections["m"].tools()] == ["echo", "other"]
        first, second = connections["m"].remarks()
    assert first.startswith("left out tools[1] ('bad\\x1b[2J'): inputSchema: ")
    assert second.startswith("left out tools[3] (None): ")


async def test_a_program_that_reads_nothing_is_not_started_twice(tmp_path: Path) -> None:
    """client-8: only one that ends after it has read the first request."""
    logs = {way: tmp_path / way for way in ("exits", "ends-on-discover")}
    async with hub(tmp_path, {way: misbehaving(way, str(log)) for way, log in logs.items()}) as connections:
        for connection in connections.values():
            await connection.wait_settled()
        assert connections["ends-on-discover"].state is State.READY
        assert connections["exits"].state is State.FAILED
    assert {way: log.read_text().count("started") for way, log in logs.items()} == {"exits": 1, "ends-on-discover": 2}


async def test_http_answers_are_bounded_and_a_silent_server_is_recognised(tmp_path: Path) -> None:
    """client-8, client-11: an answer that is too large fails its own request; the next one works."""
    server = MCPServer("large")

    @server.tool()
    def echo(text: str) -> str:
        return "x" * (17 * 1024 * 1024) if text == "large" else text

    async with (
        served(server.streamable_http_app(json_response=True)) as large,
        served(Ignoring(echo_server().streamable_http_app())) as ignoring,
    ):
        servers = {name: {"type": "http", "url": f"{url}/mcp"} for name, url in (("l", large), ("i", ignoring))}
        async with hub(tmp_path, servers, connect_seconds=8) as connections:
            for connection in connections.values():
                assert await connection.wait_settled() == State.READY, connection.error
            with pytest.raises(ProtocolViolation, match="larger than 16777216 bytes"):
                await connections["l"].call("echo", {"text": "large"})
            assert await outcome(connections["l"]) == "hello"
            assert connections["i"].protocol_version == "2025-11-25"
            assert await outcome(connections["i"]) == "hello"
