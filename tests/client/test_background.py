"""Servers that stay connected in the background (docs/specs/client.md)."""

import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from anyio import to_thread
from anyio.abc import SocketStream, TaskGroup, TaskStatus
from mcp.client.session import ClientRequestContext

from coretools.cli.main import main
from coretools.cli.mcp.completion import complete_line
from coretools.client.approval.decisions import launch_digest
from coretools.client.background import client as background_client
from coretools.client.common.errors import ProtocolViolation
from coretools.client.configuration.server_entries import ServerEntry, load_configuration
from coretools.client.connection.background_socket import as_line, ask, connect, socket_path
from coretools.client.connection.background_stream import MAX_NOTIFICATIONS, MAX_WAITING, Outbox
from coretools.client.connection.options import ConnectionOptions, State
from coretools.client.connection.server_connection import Connection
from coretools.client.connection.server_requests import Callbacks
from coretools.client.hub import open_hub
from coretools.errors import CoreError, DeadlinePassed, Unreachable
from tests.checkout import TREE
from tests.client.peers import EventLog, misbehaving, wait_gone
from tests.client.remote import OnlyOld, echo_server, served
from tests.variables import variables

Captured = pytest.CaptureFixture[str]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TRIP = '{"city":"Rome","days":3,"by":"train","insured":false}'
WAYS = ("ok", "junk", "dies", "killed", "twice", "flood", "malformed", "many", "endless", "escapes", "hangs", "fails")


@contextmanager
def made_home() -> Iterator[Path]:
    """The home directory of a user, short enough for a socket; at the end nothing of it is left."""
    home = Path(tempfile.mkdtemp(prefix="ct", dir="/tmp"))
    (home / "project" / ".git").mkdir(parents=True)
    names = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "XDG_STATE_HOME": None, "XDG_CONFIG_HOME": None}
    with variables(**names, CODEX_HOME=None, SECRET="horse-battery-staple"), chdir(home / "project"):
        yield home
        background_client.request(dict(os.environ), {"do": "stop", "keys": None}, 30)
    shutil.rmtree(home)


@pytest.fixture
def home() -> Iterator[Path]:
    """Has nothing in the background yet."""
    with made_home() as path:
        yield path


@pytest.fixture(scope="module")
def shared_home() -> Iterator[Path]:
    """One background process for several tests."""
    with made_home() as path:
        yield path


@pytest.fixture
def shared(shared_home: Path) -> Iterator[Path]:
    environment = {"HOME": str(shared_home), "XDG_RUNTIME_DIR": str(shared_home)}
    with variables(**environment), chdir(shared_home / "project"):
        yield shared_home


@pytest.fixture
def events(tmp_path: Path) -> Iterator[EventLog]:
    log = EventLog(tmp_path)
    yield log
    log.close()


def configured(home: Path, servers: Mapping[str, Any]) -> dict[str, ServerEntry]:
    path = home / ".config" / "coretools" / "mcp.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))
    return {entry.name: entry for entry in load_configuration(os.getcwd(), dict(os.environ)).effective}


def typed(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["mcp", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in background_client.running_servers(dict(os.environ))}


def background_pid() -> int:
    answer = background_client.request(dict(os.environ), {"do": "status"}, 30)
    assert answer is not None
    return int(answer["pid"])


def test_later_lines_use_the_servers_of_the_background(home: Path, capsys: Captured) -> None:
    """client-24, client-25: one start for many lines; what is another entry is started for the line alone."""
    log = home / "log"
    log.write_text("")
    servers = {
        "ok": misbehaving("ok", str(log)) | {"env": {"A": "${VALUE:-}"}},
        "other": misbehaving("ok"),
        "exits": misbehaving("exits"),
        "absent": {"command": "no-such-program"},
    }
    configured(home, servers)
    assert typed("start") == 69
    written = capsys.readouterr()
    assert written.out == "started   ok\nstarted   other\n"
    assert "server 'exits': it ended with exit code 4" in written.err
    assert "server 'absent': no-such-program: not found" in written.err
    pid = background_pid()
    path = Path(socket_path(dict(os.environ)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.getsid(pid) == pid
    assert typed("call", "ok", "echo", "text=a", "--yes") == 0
    assert typed("call", "ok", "echo", "text=b") == 77  # approvals are those of the line
    assert typed("start", "ok") == 0
    assert "kept      ok" in capsys.readouterr().out
    assert complete_line(["mcp", "call", "ok", ""]) == 0  # completion-9
    assert capsys.readouterr().out == "echo\t\n"
    assert log.read_text().count("started") == 1
    with variables(VALUE="another"):
        assert typed("call", "ok", "echo", "text=c", "--yes") == 0
    assert log.read_text().count("started") == 2
    capsys.readouterr()
    assert typed("list", "--output", "json") == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)["servers"]}
    assert listed["ok"]["background"] == {
        "state": "ready",
        "since": rows()["ok"]["since"],
        "error": None,
        "changed": False,
    }
    assert listed["exits"]["background"] is None
    assert typed("list") == 0
    assert f"ready since {rows()['ok']['since']}" in capsys.readouterr().out
    assert typed("restart", "ok") == 0
    assert log.read_text().count("started") == 3
    given = ("call", "ok", "echo", "text=d", "--yes")
    for count, words in enumerate(((*given, "--root", "."), (*given, "--sampling", "true")), 4):
        assert typed(*words) == 0  # the one in the background was told of neither
        assert log.read_text().count("started") == count
    assert typed("start", "ok", "--sampling", "true") == 0
    assert typed(*given, "--sampling", "true") == 0
    assert log.read_text().count("started") == 6
    configured(home, {"ok": servers["ok"], "other": misbehaving("fails"), "new": misbehaving("ok")})
    assert typed("call", "other", "echo", "text=d", "--yes") == 1  # the entry has changed: it is not used
    capsys.readouterr()
    assert typed("refresh") == 0
    assert dict(reversed(one.split()) for one in capsys.readouterr().out.splitlines()) == {
        "ok": "kept",
        "other": "restarted",
        "new": "started",
    }
    configured(home, {"ok": servers["ok"]})
    assert typed("refresh") == 0
    assert list(rows()) == ["ok"]
    assert typed("stop", "new") == 64
    assert "no server 'new' runs in the background; there are: ok" in capsys.readouterr().err
    assert typed("stop", "ok") == 0
    assert wait_gone(pid)
    assert not path.exists()
    assert typed("stop") == 0
    written = capsys.readouterr()
    assert written.out == "stopped   ok\n"
    assert "no server runs in the background" in written.err
    path.mkdir()
    assert typed("start", "ok") == 74
    assert f"{path}: cannot be written" in capsys.readouterr().err
    path.rmdir()


class Answering:
    """Answers each question with a city."""

    def callbacks(self, server: str) -> Callbacks:
        assert server

        async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
            assert context.request_id is not None
            assert params.message
            return types.ElicitResult(action="accept", content={"city": "Rome"})

        return Callbacks(elicitation=elicit)


async def text_of(connection: Connection, tool: str, arguments: dict[str, Any]) -> str:
    return (await connection.call(tool, arguments)).content[0].text  # type: ignore[union-attr]


async def attached_hub(tasks: TaskGroup, entry: ServerEntry, environment: dict[str, str]) -> Connection:
    """Attach once more, until the tasks are cancelled."""

    async def run(*, task_status: TaskStatus[Connection]) -> None:
        launch = background_client.attach(environment, entry)
        assert launch is not None
        async with open_hub([entry], environment, attached={entry.name: launch}) as connections:
            await connections[entry.name].wait_settled()
            task_status.started(connections[entry.name])
            await anyio.sleep_forever()

    connection: Connection = await tasks.start(run)
    return connection


def started(home: Path, servers: Mapping[str, Any], **more: Any) -> dict[str, ServerEntry]:
    """Start servers in the background, without the command line."""
    entries = configured(home, servers)
    for entry in entries.values():
        answer = begin(entry, **more)
        assert answer.get("state") == "ready", answer
    return entries


def begin(entry: ServerEntry, idle_seconds: float = 60) -> dict[str, Any]:
    environment = dict(os.environ)
    wanted = {
        "do": "start",
        "name": entry.name,
        "directory": os.getcwd(),
        "config": None,
        "environment": environment,
        "inputs": {},
        "digest": launch_digest(entry, environment),
        "samples": False,
        "follows": False,
        "confined": [],
        "unconfined": [],
        "replaces": False,
        "connect_seconds": None,
    }
    return background_client.start(environment, wanted, idle_seconds)


async def test_bad_servers_harm_no_other_through_the_background(shared: Path, events: EventLog) -> None:
    """client-11, client-24: death, silence, floods, 10,000 tools; the message names the server, the others continue."""
    servers = {way: misbehaving(way, events.path) for way in WAYS}
    servers["hangs"]["tool_timeout_sec"] = 1
    entries = started(shared, servers)
    attached = {name: background_client.attach(dict(os.environ), entry) for name, entry in entries.items()}
    assert all(attached.values())
    outcomes: dict[str, str | CoreError] = {}

    async def use(connection: Connection) -> None:
        try:
            assert await connection.wait_settled() is State.READY, connection.error
            await connection.tools()
            result = await connection.call("echo", {"text": "hello"})
            outcomes[connection.name] = result.content[0].text  # type: ignore[union-attr]
        except CoreError as error:
            outcomes[connection.name] = error

    launches = {name: launch for name, launch in attached.items() if launch is not None}
    with anyio.fail_after(60):
        async with (
            open_hub(entries.values(), dict(os.environ), attached=launches) as connections,
            anyio.create_task_group() as tasks,
        ):
            for connection in connections.values():
                tasks.start_soon(use, connection)
    answered = {name for name, outcome in outcomes.items() if outcome == "hello"}
    assert answered == {"ok", "junk", "twice", "flood", "many", "fails"}
    expected: list[tuple[str, type[CoreError], str]] = [
        ("dies", Unreachable, "it ended with exit code 3; its last words on standard error: about to die"),
        ("killed", Unreachable, "it was ended by SIGKILL"),
        ("malformed", ProtocolViolation, "sent an answer that the protocol does not allow: content"),
        ("endless", ProtocolViolation, "its list of tools does not end"),
        ("hangs", DeadlinePassed, "call echo: no answer within 1 s"),
    ]
    for name, kind, text in expected:
        outcome = outcomes[name]
        assert isinstance(outcome, kind), (name, outcome)
        assert str(outcome).startswith(f"server {name!r}: ")
        assert text in str(outcome)
    events.wait_for("cancelled")
    assert "junk" in rows()
    assert "no messages, the first: 'listening on port 80" in rows()["junk"]["remarks"][0]


def test_a_client_that_vanishes_cancels_its_call(shared: Path, events: EventLog) -> None:
    """client-25: and only its own; several clients use a server at a time, with the same ids."""
    entry = started(shared, {"hangs": misbehaving("hangs", events.path)})["hangs"]
    wanted = {"do": "attach", "key": entry.key, "digest": launch_digest(entry, dict(os.environ))}
    clients = [attached_socket(wanted) for _ in range(2)]
    for client in clients:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {}}}
        client.sendall(as_line({"message": call}))
        events.wait_for("called")
    clients[0].close()
    events.wait_for("cancelled")
    assert events.rest() == ""
    answer = ask(clients[1], {"message": {"jsonrpc": "2.0", "id": 2, "method": "ping"}}, 30)
    assert answer == {"message": {"jsonrpc": "2.0", "id": 2, "result": {}}}
    clients[1].close()
    events.wait_for("cancelled")
    for nonsense in (b"x" * 100 + b"\n", b"[]\n", b'{"do": "fly"}\n', b'{"do": "start"}\n', b'{"do": "attach"}\n', b""):
        with connected() as client:
            client.sendall(nonsense)
            client.shutdown(socket.SHUT_WR)
            client.settimeout(30)
            with suppress(ConnectionResetError):
                client.recv(1000)
    assert rows()["hangs"]["state"] == "ready"


def connected() -> socket.socket:
    client = connect(socket_path(dict(os.environ)))
    assert client is not None
    return client


def attached_socket(wanted: Mapping[str, Any]) -> socket.socket:
    client = connected()
    assert ask(client, wanted, 30) == {"attached": True}
    answer = ask(client, {"do": "begin"}, 30)
    assert answer is not None
    assert answer["version"] == "2025-11-25"
    return client


async def test_questions_and_remote_servers_through_the_background(shared: Path) -> None:
    """client-24, client-25: of both eras; a question reaches the line whose call is under way."""
    program = [str(TREE / "tests" / "client" / name) for name in ("asking.py", "sdk_asking.py")]
    async with (
        served(echo_server().streamable_http_app()) as stateless,
        served(OnlyOld(echo_server().streamable_http_app())) as old,
    ):
        servers = {
            "asking": {"command": sys.executable, "args": [program[0]]},
            "sdk": {"command": sys.executable, "args": [program[1]]},
            "remote": {"type": "http", "url": f"{stateless}/mcp"},
            "old": {"type": "http", "url": f"{old}/mcp"},
        }
        entries = await to_thread.run_sync(started, shared, servers)
        launches = {name: background_client.attach(dict(os.environ), entry) for name, entry in entries.items()}
        options = ConnectionOptions(server_requests=Answering())
        attached = {name: launch for name, launch in launches.items() if launch is not None}
        assert set(attached) == set(servers)
        environment = dict(os.environ)
        async with open_hub(entries.values(), environment, options=options, attached=attached) as connections:
            for connection in connections.values():
                assert await connection.wait_settled() is State.READY, connection.error
            versions = {name: connection.protocol_version for name, connection in connections.items()}
            modern = "2026-07-28"
            assert versions == {"asking": "2025-11-25", "sdk": modern, "remote": modern, "old": "2025-11-25"}
            for name in ("remote", "old"):
                assert await text_of(connections[name], "echo", {"text": "hello"}) == "hello"
                await connections[name].ping()
            assert await text_of(connections["sdk"], "book", {}) == TRIP
            question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": SCHEMA}}
            answer = json.loads(await text_of(connections["asking"], "ask", question))
            assert answer == {"action": "accept", "content": {"city": "Rome"}}
            async with anyio.create_task_group() as tasks:  # of two lines with calls, none is asked
                other = await attached_hub(tasks, entries["asking"], environment)
                tasks.start_soon(other.call, "wait", question)
                await text_of(connections["asking"], "ask", {})
                answer = json.loads(await text_of(connections["asking"], "ask", question))
                assert answer == {"action": "cancel"}
                tasks.cancel_scope.cancel()


def test_a_killed_background_leaves_nothing_behind(home: Path, events: EventLog, capsys: Captured) -> None:
    """client-24: its servers end, its socket is replaced; a full disk stops no server; two starts give one process."""
    server_entry = misbehaving("noisy", events.path) | {"env": {"API_TOKEN": "${SECRET}"}}
    entry = configured(home, {"noisy": server_entry})["noisy"]
    full = subprocess.run(
        [sys.executable, "-m", "coretools.cli.main", "mcp", "start"],
        cwd=home / "project",
        env={**os.environ, "PYTHONPATH": str(TREE)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)),
        check=False,
        capture_output=True,
        text=True,
    )
    assert full.returncode == 0, full.stderr
    server = int(events.wait_for("started"))
    assert typed("call", "noisy", "echo", "text=hello", "--yes") == 0
    assert capsys.readouterr().out == "hello\n"
    assert typed("logs") == 0
    assert len(capsys.readouterr().out.replace("\\x1b", "-")) <= 65  # what the limit leaves of a line
    pid = background_pid()
    os.kill(pid, signal.SIGKILL)
    assert wait_gone(pid)
    assert wait_gone(server)
    assert Path(socket_path(dict(os.environ))).exists()
    assert rows() == {}
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda _: begin(entry, idle_seconds=5), range(2)))
    assert sorted(answer["was_running"] for answer in answers) == [False, True]
    events.wait_for("started")
    assert events.rest() == ""
    pid = answers[0]["pid"]
    assert typed("logs") == 0
    text = capsys.readouterr().out
    assert "[redacted:" in text
    assert "horse" not in text
    assert "\x1b" not in text
    assert text.splitlines()[-1].endswith(" stderr last line")
    (log,) = (home / ".local/state/coretools/mcp-logs").iterdir()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert wait_gone(pid)  # nobody used it for five seconds


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_gets_no_answer(shared: Path) -> None:
    """client-24: even if the file system lets him connect."""
    started(shared, {"ok": misbehaving("ok")})
    path = socket_path(dict(os.environ))
    shared.chmod(0o755)
    Path(path).parent.chmod(0o755)
    Path(path).chmod(0o666)
    program = (
        "import os, socket, sys\nos.setuid(65534)\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(30)\n"
        's.connect(sys.argv[1])\ns.sendall(b\'{"do":"status"}\\n\')\nprint(s.recv(100))'
    )
    answer = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    shared.chmod(0o700)
    assert answer.stdout == "b''\n" or "reset" in answer.stderr.lower() or "BrokenPipe" in answer.stderr


async def test_a_client_that_does_not_read_is_bounded() -> None:
    """client-25: notifications are dropped, answers are not; with too many of them it is cut off."""
    outbox = Outbox()
    near, far = socket.socketpair()
    near.setblocking(False)
    notification = types.JSONRPCNotification(jsonrpc="2.0", method="n", params={"x": "x" * 100_000})
    for _ in range(100):
        outbox.put(notification)
    outbox.put(types.JSONRPCResponse(jsonrpc="2.0", id=1, result={}))
    outbox.close(b"the end\n")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.send_all, await SocketStream.from_socket(near))
        found = await to_thread.run_sync(lambda: far.makefile("rb").read())
    *notifications, answer, last = found.splitlines()
    assert MAX_NOTIFICATIONS / 100_000 - 1 < len(notifications) < MAX_NOTIFICATIONS / 100_000 + 1
    assert b'"id":1' in answer
    assert last == b"the end"
    far.close()
    outbox = Outbox()
    near, far = socket.socketpair()
    near.setblocking(False)
    for number in range(MAX_WAITING // 4_000_000 + 1):
        outbox.put(types.JSONRPCResponse(jsonrpc="2.0", id=number, result={"x": "x" * 4_000_000}))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.send_all, await SocketStream.from_socket(near))
        assert await to_thread.run_sync(far.recv, 10) == b""
    far.close()
