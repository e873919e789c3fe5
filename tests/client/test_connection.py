"""Connections to real servers, some of which misbehave (docs/specs/client.md)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from coretools.client.common.errors import AuthenticationRequired, ProtocolViolation, SchemaMismatch
from coretools.client.connection.options import State
from coretools.client.connection.server_connection import Connection
from coretools.errors import BadSetting, CannotStart, CoreError, DeadlinePassed, Unreachable
from tests.checkout import TREE
from tests.client.peers import EventLog, hub, misbehaving, wait_gone, workstation
from tests.client.remote import Failing, OnCall, OnlyOld, Refusing, echo_server, served


@pytest.fixture
def events(tmp_path: Path) -> Iterator[EventLog]:
    log = EventLog(tmp_path)
    yield log
    log.close()


async def test_each_server_fails_or_works_on_its_own(tmp_path: Path) -> None:
    """client-10, client-11: junk, death, silence, floods; the message names the server, the others continue."""
    ways = (
        *("ok", "junk", "dies", "killed", "twice", "flood", "malformed", "many", "no-schema", "endless", "exits"),
        *("ends-on-discover", "ignores-unknown", "fails", "escapes"),
        *("error:-32000:db locked", "error:-32001:Connection closed", "error:-32603:broken"),
    )
    servers = {way: misbehaving(way) for way in ways}
    servers |= {"absent": {"command": "no-such-program"}, "wrong": {"command": 5}, "folder": {"command": "/"}}
    outcomes: dict[str, str | CoreError] = {}

    async def use(connection: Connection) -> None:
        try:
            assert await connection.wait_settled() in (State.READY, State.FAILED)
            await connection.tools()
            result = await connection.call("echo", {"text": "hello"})
            outcomes[connection.name] = result.content[0].text  # type: ignore[union-attr]
        except CoreError as error:
            outcomes[connection.name] = error

    with anyio.fail_after(100):
        async with hub(tmp_path, servers) as connections, anyio.create_task_group() as tasks:
            for connection in connections.values():
                tasks.start_soon(use, connection)
    answered = {name for name, outcome in outcomes.items() if outcome == "hello"}
    assert answered == {
        *("ok", "junk", "twice", "flood", "many", "ends-on-discover", "ignores-unknown", "fails", "no-schema")
    }
    expected: list[tuple[str, type[CoreError], str]] = [
        ("dies", Unreachable, "it ended with exit code 3; its last words on standard error: about to die"),
        ("killed", Unreachable, "it was ended by SIGKILL"),
        ("exits", Unreachable, "it ended with exit code 4; its last words on standard error: no API key"),
        ("malformed", ProtocolViolation, "sent an answer that the protocol does not allow: content"),
        ("error:-32000:db locked", ProtocolViolation, "call echo: refused the request: db locked (-32000)"),
        ("error:-32001:Connection closed", ProtocolViolation, "refused the request: Connection closed (-32001)"),
        ("error:-32603:broken", ProtocolViolation, "refused the request: broken (-32603)"),
        ("endless", ProtocolViolation, "its list of tools does not end"),
        ("absent", CannotStart, "no-such-program: not found in PATH"),
        ("folder", CannotStart, "is a directory, not a program"),
        ("wrong", BadSetting, "command: must be text"),
    ]
    for name, kind, text in expected:
        outcome = outcomes[name]
        assert isinstance(outcome, kind), (name, outcome)
        assert str(outcome).startswith(f"server {name!r}: ")
        assert text in str(outcome)


async def test_junk_on_standard_output_is_counted_and_a_line_is_bounded(tmp_path: Path) -> None:
    """client-11: 10,000 tools arrive; a line without an end does not fill the memory."""
    ways = ("junk", "many", "long-line")
    async with hub(tmp_path, {way: misbehaving(way) for way in ways}) as connections:
        await connections["junk"].wait_settled()
        await connections["junk"].ping()
        assert "no messages, the first: 'listening on port 80" in connections["junk"].remarks()[0]
        await connections["many"].wait_settled()
        assert len(await connections["many"].tools()) == 10_000
        assert await connections["long-line"].wait_settled() == State.FAILED
        assert "it wrote a line of more than 16777216 bytes" in str(connections["long-line"].error)


async def test_a_server_that_never_answers_is_given_up_and_ended(tmp_path: Path, events: EventLog) -> None:
    """client-9, client-10: by the deadline of the option, or of its configuration; it ignores TERM."""
    servers = {"mute": misbehaving("mute", events.path) | {"startup_timeout_sec": 0.2}, "ok": misbehaving("ok")}
    async with hub(tmp_path, servers) as connections:
        assert await connections["ok"].wait_settled() == State.READY
        pid = int(await to_thread.run_sync(events.wait_for, "started"))
        assert await connections["mute"].wait_settled() == State.FAILED
        assert isinstance(connections["mute"].error, DeadlinePassed)
        assert str(connections["mute"].error) == "server 'mute': did not answer within 0.2 s"
        assert await to_thread.run_sync(wait_gone, pid)
        await connections["ok"].ping()


async def test_our_own_server_is_of_the_stateless_era(tmp_path: Path) -> None:
    """client-8: what a server says first decides."""
    (tmp_path / "file").write_text("content\n")
    async with hub(tmp_path, {"ours": workstation(tmp_path), "old": misbehaving("ok")}) as connections:
        for connection in connections.values():
            assert await connection.wait_settled() == State.READY, connection.error
            await connection.ping()
        versions = {name: connection.protocol_version for name, connection in connections.items()}
        assert versions == {"ours": "2026-07-28", "old": "2025-11-25"}
        result = await connections["ours"].call("read_file", {"path": "file"})
        assert "content" in str(result.content)


async def test_tools_that_the_file_excludes_are_not_listed(tmp_path: Path) -> None:
    """client-12"""
    servers = {"ours": workstation(tmp_path) | {"includeTools": ["read_file", "x"]}}
    async with hub(tmp_path, servers) as connections:
        await connections["ours"].wait_settled()
        assert [tool.name for tool in await connections["ours"].tools()] == ["read_file"]


@pytest.mark.parametrize("by", ["caller", "deadline"])
async def test_the_end_of_a_call_is_told_to_the_server(tmp_path: Path, events: EventLog, by: str) -> None:
    """client-9: the server can stop its work, and serves the next call."""
    seconds = 0.3 if by == "deadline" else None
    async with hub(tmp_path, {"h": misbehaving("hangs", events.path)}, call_seconds=seconds) as connections:
        connection = connections["h"]
        await connection.wait_settled()
        if by == "deadline":
            with pytest.raises(DeadlinePassed, match=r"server 'h': call echo: no answer within 0\.3 s"):
                await connection.call("echo", {})
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.call, "echo", {})
                await to_thread.run_sync(events.wait_for, "called")
                tasks.cancel_scope.cancel()
        await to_thread.run_sync(events.wait_for, "cancelled")
        await connection.ping()


async def test_the_progress_of_a_call_arrives_before_its_result(tmp_path: Path) -> None:
    """client-9"""
    seen: list[tuple[float, float | None, str | None]] = []

    async def show(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with hub(tmp_path, {"p": misbehaving("progress")}) as connections:
        await connections["p"].wait_settled()
        await connections["p"].call("echo", {"text": "x"}, show)
    assert seen == [(1, 2, "step 1"), (2, 2, "step 2")]


async def test_stopping_one_server_leaves_the_others(tmp_path: Path, events: EventLog) -> None:
    """client-10: also what it started is gone at the end, in whatever process group."""
    servers = {"a": misbehaving("children", events.path), "b": misbehaving("ok")}
    async with hub(tmp_path, servers) as connections:
        for connection in connections.values():
            await connection.wait_settled()
        pids = [int(await to_thread.run_sync(events.wait_for, "started")) for _ in range(2)]
        connections["a"].stop()
        assert await to_thread.run_sync(wait_gone, pids[0])
        await connections["b"].ping()
    for pid in pids:
        assert await to_thread.run_sync(wait_gone, pid)


def test_servers_end_with_a_client_that_is_killed(tmp_path: Path, events: EventLog) -> None:
    """client-10: SIGKILL leaves no time to clean up; the watchdog ends them."""
    program = (
        "import anyio, sys\nfrom pathlib import Path\nfrom tests.client.peers import hub, misbehaving\n"
        "async def main():\n"
        "    servers = {'a': misbehaving('children', sys.argv[1]), 'm': misbehaving('mute', sys.argv[1])}\n"
        "    async with hub(Path(sys.argv[2]), servers):\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)"
    )
    client = subprocess.Popen([sys.executable, "-c", program, events.path, str(tmp_path)], cwd=TREE)
    try:
        pids = [int(events.wait_for("started")) for _ in range(3)]
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    assert all(map(wait_gone, pids))


async def test_remote_servers_speak_both_eras_and_the_old_transport(tmp_path: Path) -> None:
    """client-8: http, sse, and a bare `url` whichever it is."""
    async with (
        served(echo_server().streamable_http_app()) as http,
        served(echo_server().sse_app()) as sse,
    ):
        servers: dict[str, Any] = {
            "http": {"type": "http", "url": f"{http}/mcp"},
            "bare-http": {"url": f"{http}/mcp"},
            "sse": {"type": "sse", "url": f"{sse}/sse"},
            "bare-sse": {"url": f"{sse}/sse"},
        }
        async with hub(tmp_path, servers) as connections:
            for connection in connections.values():
                assert await connection.wait_settled() == State.READY, connection.error
                result = await connection.call("echo", {"text": "hello"})
                assert result.content[0].text == "hello"  # type: ignore[union-attr]
                await connection.ping()
        assert {name: connection.state for name, connection in connections.items()} == dict.fromkeys(
            servers, State.STOPPED
        )


async def test_a_remote_server_that_is_away_for_a_moment_is_tried_again(tmp_path: Path) -> None:
    """client-9: and headers reach it; one that stays away is reported with its address and no secrets."""
    app = Failing(echo_server().streamable_http_app(), status=503, times=2)
    async with served(app) as address:
        headers = {"Authorization": "Bearer token-12345678"}
        servers: dict[str, Any] = {
            "away": {"type": "http", "url": f"{address}/mcp", "headers": headers},
            "gone": {"type": "http", "url": "http://user:secret-word@127.0.0.1:1/mcp?key=secret-word"},
        }
        async with hub(tmp_path, servers, retry_seconds=(0, 0, 0)) as connections:
            assert await connections["away"].wait_settled() == State.READY, connections["away"].error
            assert await connections["gone"].wait_settled() == State.FAILED
            assert isinstance(connections["gone"].error, Unreachable)
            assert "server 'gone': can't be reached at http://127.0.0.1:1" in str(connections["gone"].error)
            assert "secret-word" not in str(connections["gone"].error)
    assert {one[b"authorization"] for one in app.headers} == {b"Bearer token-12345678"}


async def test_an_error_over_http_has_the_status_and_the_servers_message(tmp_path: Path) -> None:
    """client-9, client-11: of a call and of the start; only what says that it can't serve now is out of reach."""
    session_gone = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}
    made_up = "Server returned an error response (-32603)"
    cases: list[tuple[int, Any, type[CoreError], str]] = [
        (400, None, ProtocolViolation, f"answers HTTP 400 Bad Request: {made_up}"),
        (500, None, ProtocolViolation, f"answers HTTP 500 Internal Server Error: {made_up}"),
        (429, None, Unreachable, f"answers HTTP 429 Too Many Requests: {made_up}"),
        (599, None, ProtocolViolation, f"answers HTTP 599: {made_up}"),
        (404, session_gone, Unreachable, "no longer knows the session: Session not found"),
        (200, "cut off", Unreachable, "the connection was lost"),
    ]
    app = OnCall(echo_server().streamable_http_app())
    async with served(OnlyOld(app)) as address, served(Failing(None, status=503, times=9)) as away:
        servers = {str(at): {"type": "http", "url": f"{address}/mcp"} for at in range(len(cases))}
        servers["away"] = {"type": "http", "url": away}
        async with hub(tmp_path, servers, retry_seconds=()) as connections:
            for at, (app.status, app.answer, kind, text) in enumerate(cases):
                assert await connections[str(at)].wait_settled() is State.READY
                with pytest.raises(kind) as failed:
                    await connections[str(at)].call("echo", {"text": "x"})
                assert str(failed.value) == f"server '{at}': call echo: {text}"
            assert await connections["away"].wait_settled() is State.FAILED
            assert isinstance(connections["away"].error, Unreachable)
            assert str(connections["away"].error) == f"server 'away': answers HTTP 503 Service Unavailable: {made_up}"


async def test_a_refused_start_has_the_status_and_the_servers_message(tmp_path: Path) -> None:
    """client-9: from plain text or JSON-RPC; of a server that speaks neither transport the first answer counts."""
    plain = (400, "text/plain; charset=utf-8", "the header X-Tenant is missing\nsee the manual")
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Use POST."}}
    json_rpc, page = (405, "application/json", json.dumps(error)), (405, "text/html", "<h1>no</h1>")
    cases: list[tuple[dict[str, str], tuple[int, str, str], tuple[int, str, str], str]] = [
        ({}, plain, page, "HTTP 400 Bad Request: the header X-Tenant is missing"),
        ({}, page, plain, "HTTP 405 Method Not Allowed: Server returned an error response (-32603)"),
        ({}, plain, (200, "text/html", "<h1>a site</h1>"), "HTTP 400 Bad Request: the header X-Tenant is missing"),
        ({"type": "sse"}, page, json_rpc, "HTTP 405 Method Not Allowed: Use POST."),
        ({"type": "sse"}, plain, page, "HTTP 405 Method Not Allowed"),
    ]
    for entry, post, get, text in cases:
        async with (
            served(Refusing({"POST": post, "GET": get})) as address,
            hub(tmp_path, {"a": entry | {"url": address}}, retry_seconds=()) as connections,
        ):
            assert await connections["a"].wait_settled() is State.FAILED
            assert isinstance(connections["a"].error, ProtocolViolation)
            assert str(connections["a"].error) == f"server 'a': answers {text}"


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_refused_credentials_are_an_error_of_their_own(tmp_path: Path, kind: str) -> None:
    """client-6, client-9: without the credentials."""
    async with served(Failing(None, status=401, times=100)) as address:
        entry = {"type": kind, "url": address, "headers": {"Authorization": "Bearer token-12345678"}}
        async with hub(tmp_path, {"a": entry}, retry_seconds=()) as connections:
            assert await connections["a"].wait_settled() == State.FAILED
            error = connections["a"].error
    assert isinstance(error, AuthenticationRequired)
    assert str(error) == "server 'a': refuses the credentials (HTTP 401); set `headers` in its entry"


async def test_secrets_that_a_server_prints_are_not_repeated(tmp_path: Path) -> None:
    """client-6"""
    program = "import os, sys; sys.exit('cannot log in with ' + os.environ['API_TOKEN'])"
    entry = {"command": sys.executable, "args": ["-c", program], "env": {"API_TOKEN": "horse-battery-staple"}}
    async with hub(tmp_path, {"a": entry}) as connections:
        await connections["a"].wait_settled()
        text = str(connections["a"].error)
    assert "cannot log in with [redacted:" in text
    assert "horse" not in text
    assert os.environ.get("API_TOKEN") is None


async def test_a_result_is_checked_in_bounded_time(tmp_path: Path) -> None:
    """client-13: against the output schema, also if its regular expressions would take for ever."""
    async with hub(tmp_path, {"slow": misbehaving("slow-result")}) as connections:
        slow = connections["slow"]
        assert await slow.wait_settled() is State.READY
        for text, error in (
            ("", "its result has no structured content, although the tool declares an output schema"),
            ("a" * 40 + "b", "declares a schema that can't be used: regex timed out"),
        ):
            with pytest.raises(SchemaMismatch) as refused:
                await slow.call("echo", {"text": text})
            assert str(refused.value) == f"server 'slow': call echo: {error}"
        assert (await slow.call("echo", {"text": "aa"})).structured_content == {"aa": 1}


async def test_what_a_server_requires_and_endless_questions_are_named(tmp_path: Path) -> None:
    """client-10: in words of ours, with the exit code of a refusal or a broken rule."""
    server = {"command": sys.executable, "args": [str(Path(__file__).with_name("stateless_faults.py"))]}
    async with hub(tmp_path, {"it": server}) as connections:
        assert await connections["it"].wait_settled() == State.READY, connections["it"].error
        with pytest.raises(ProtocolViolation, match=r"Not like this \(-32021\).*: sampling, com\.example/maps$"):
            await connections["it"].call("needs", {})
        with pytest.raises(ProtocolViolation, match=r"asked again after each of 10 answers to one request; given up$"):
            await connections["it"].call("endless", {})
