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
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from coretools.cli.main import main
from coretools.client import background_client
from coretools.client.background_socket import as_line, ask, connect, key_of, socket_path
from coretools.client.configuration import ServerEntry, load_configuration
from coretools.client.connection import Connection
from coretools.client.connection_options import State
from coretools.client.decisions import launch_digest
from coretools.client.errors import ProtocolViolation
from coretools.client.hub import open_hub
from coretools.errors import CoreError, DeadlinePassed, Unreachable
from tests.checkout import TREE
from tests.client.peers import EventLog, misbehaving, wait_gone
from tests.variables import variables

Captured = pytest.CaptureFixture[str]

WAYS = ("ok", "junk", "dies", "killed", "twice", "flood", "malformed", "many", "endless", "escapes", "hangs", "fails")


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a path that is short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="ct", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def home(short: Path) -> Iterator[Path]:
    """The home directory of a user who has nothing in the background before and after the test."""
    (short / "project" / ".git").mkdir(parents=True)
    names = {"HOME": str(short), "XDG_RUNTIME_DIR": str(short), "XDG_STATE_HOME": None, "XDG_CONFIG_HOME": None}
    with variables(**names, CODEX_HOME=None, SECRET="horse-battery-staple"), chdir(short / "project"):
        yield short
        background_client.request(dict(os.environ), {"do": "stop", "keys": None}, 30)


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
    assert log.read_text().count("started") == 1
    assert "kept      ok" in capsys.readouterr().out
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
    assert capsys.readouterr().out == "stopped   ok\n"


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
        "replaces": False,
        "connect_seconds": None,
    }
    return background_client.start(environment, wanted, idle_seconds)


async def test_bad_servers_harm_no_other_through_the_background(home: Path, events: EventLog) -> None:
    """client-11, client-24: death, silence, floods, 10,000 tools; the message names the server, the others continue."""
    servers = {way: misbehaving(way, events.path) for way in WAYS}
    servers["hangs"]["tool_timeout_sec"] = 1
    entries = started(home, servers)
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


def test_a_client_that_vanishes_cancels_its_call(home: Path, events: EventLog) -> None:
    """client-25: and only its own; several clients use a server at a time, with the same ids."""
    entry = started(home, {"hangs": misbehaving("hangs", events.path)})["hangs"]
    wanted = {"do": "attach", "key": key_of(entry), "digest": launch_digest(entry, dict(os.environ))}
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


def test_a_killed_background_leaves_nothing_behind(home: Path, events: EventLog, capsys: Captured) -> None:
    """client-24: its servers end, its socket is replaced; a full disk stops no server; two starts give one process."""
    server_entry = misbehaving("noisy", events.path) | {"env": {"API_TOKEN": "${SECRET}"}}
    entry = configured(home, {"noisy": server_entry})["noisy"]
    full = subprocess.run(
        [sys.executable, "-m", "coretools.cli.main", "mcp", "start"],
        cwd=home / "project",
        env={**os.environ, "PYTHONPATH": str(TREE)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        check=False,
        capture_output=True,
        text=True,
    )
    assert full.returncode == 0, full.stderr
    server = int(events.wait_for("started"))
    assert typed("call", "noisy", "echo", "text=hello", "--yes") == 0
    assert capsys.readouterr().out == "hello\n"
    assert typed("logs") == 0
    assert capsys.readouterr().out == ""
    pid = background_pid()
    os.kill(pid, signal.SIGKILL)
    assert wait_gone(pid)
    assert wait_gone(server)
    assert Path(socket_path(dict(os.environ))).exists()
    assert rows() == {}
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda _: begin(entry, idle_seconds=1), range(2)))
    assert sorted(answer["was_running"] for answer in answers) == [False, True]
    events.wait_for("started")
    assert events.rest() == ""
    pid = background_pid()
    assert typed("logs") == 0
    text = capsys.readouterr().out
    assert "[redacted:" in text
    assert "horse" not in text
    assert "\x1b" not in text
    assert text.splitlines()[-1].endswith(" stderr last line")
    (log,) = (home / ".local/state/coretools/mcp-logs").iterdir()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert wait_gone(pid)  # nobody used it for a second


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_gets_no_answer(home: Path) -> None:
    """client-24: even if the file system lets him connect."""
    started(home, {"ok": misbehaving("ok")})
    path = socket_path(dict(os.environ))
    home.chmod(0o755)
    Path(path).parent.chmod(0o755)
    Path(path).chmod(0o666)
    program = (
        "import os, socket, sys\nos.setuid(65534)\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(30)\n"
        's.connect(sys.argv[1])\ns.sendall(b\'{"do":"status"}\\n\')\nprint(s.recv(100))'
    )
    answer = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert answer.stdout == "b''\n" or "reset" in answer.stderr.lower() or "BrokenPipe" in answer.stderr
