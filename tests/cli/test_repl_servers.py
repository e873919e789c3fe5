"""The servers of others in the REPL (docs/specs/upstream.md)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import TREE
from tests.cli.terminal import Terminal, terminal
from tests.client.peers import EventLog, misbehaving, wait_gone
from tests.starting import warm
from tests.variables import NO_LOGIN_SHELL

REPL = ("-m", "coretools.cli.main", "repl")
EVIL = "\x1b]0;owned\x07\u202e"


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}


def server(path: str, events: str = os.devnull) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(TREE / "tests" / path), events]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two servers that work and one that does not, and a root."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "notes.txt").write_text("remembered\n")
    configured(tmp_path, {"up": server("app/upstream_server.py"), "bad": {"command": "no-such-program"}})
    return tmp_path


def configured(home: Path, servers: dict[str, Any]) -> None:
    path = home / ".config" / "coretools" / "mcp.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"servers": servers}))


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PYTHONPATH": str(TREE), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "", **NO_LOGIN_SHELL}


def enter(at: Terminal, line: str) -> None:
    at.wait_for("coretools>")
    at.type(f"{line}\r")


def test_their_tools_stand_beside_ours(home: Path) -> None:
    """upstream-10, upstream-11, upstream-12, client-15: messages appear above what is typed; words are completed."""
    with terminal(*REPL, "--root", str(home / "root"), cwd=home, environment=environment(home)) as at:
        at.wait_for("coretools>")
        at.type("read_file no")
        at.wait_for("server 'up' is ready: 10 tools")
        at.wait_for("coretools> read_file no")  # the line is drawn again, and goes on
        at.type("tes.txt\r")
        at.wait_for("remembered")
        at.wait_for("coretools>")
        at.type("/mc\t")
        at.wait_for("p")  # the line may have been drawn before it was completed
        at.type("\r")
        shown = at.wait_for("getIssue")
        assert "no-such-program: not found in PATH" in shown
        at.wait_for("up__read_file")
        at.wait_for("coretools>")
        at.type("getI\t")
        at.wait_for("sue")
        at.type(" text=hello\r")
        assert 'up: getIssue\r\n  text = "hello"' in at.wait_for("number or name: ")
        at.type("always-server\r")
        at.wait_for("what is declared above?")
        at.type("yes\r")
        at.wait_for('{"text": "hello"}')
        at.wait_for("coretools>")
        at.type("echo --te\t")
        at.wait_for("xt")
        at.type(f" '{EVIL[4:9]}'\r")
        at.wait_for('{"text": "owned"}')
        enter(at, "echo")
        at.wait_for("echo: TEXT must be given")
        enter(at, "progress")
        at.wait_for("done")
        result = {"content": [{"type": "text", "text": EVIL}]}
        enter(at, f"result 'result:={json.dumps(result)}'")
        at.wait_for("\\x1b]0;owned\\x07\\u202e")
        enter(at, "die")
        at.wait_for("server 'up': call die: it ended with exit code 3")
        enter(at, "echo again")
        at.wait_for('{"text": "again"}')
        enter(at, "/mcp stop up")
        at.wait_for("server 'up' is stopped")
        enter(at, "echo again")
        at.wait_for("no command 'echo again' here")
        enter(at, "/mcp start up")
        at.wait_for("server 'up' is ready: 10 tools")
        configured(home, {"up": {**server("app/upstream_server.py"), "includeTools": ["echo"]}})
        enter(at, "/mcp refresh up")
        at.wait_for("server 'up' is ready: 1 tools")
        enter(at, "echo again")  # approved for the entry before
        assert 'up: echo\r\n  text = "again"' in at.wait_for("number or name: ")
        at.type("no\r")
        at.wait_for("'up: echo' was not approved")
        configured(home, {})
        enter(at, "/mcp refresh up")
        at.wait_for("server 'up' is no longer configured")
        enter(at, "/mcp start nobody")
        at.wait_for("no server 'nobody' is configured")
        for wrong in ("dance", "stop", "tools a b"):
            enter(at, f"/mcp {wrong}")
            at.wait_for("write /mcp, /mcp start|stop|restart SERVER, /mcp refresh [SERVER] or /mcp tools [SERVER]")
        configured(home, {"many": misbehaving("declares:" + str(home / "tools.json"))})
        (home / "tools.json").write_text(json.dumps([tool(f"tool{number}") for number in range(70)]))
        enter(at, "/mcp refresh")
        at.wait_for("server 'many' is ready: 70 tools")
        enter(at, "/mcp")
        at.wait_for("[10 more; `/mcp tools` lists all")
        enter(at, "/mcp tools many")
        at.wait_for("tool69")
        enter(at, "/mcp refresh")
        at.wait_for("no server's entry has changed")
        enter(at, "tool7 text=x")
        at.wait_for("number or name: ")
        at.type("perhaps\r")
        assert "answers." not in at.wait_for("number or name: ")
        at.type("y\r")
        at.wait_for("x\r\n")
        enter(at, "exit")
        assert at.end() == 0


def test_questions_and_log_messages_come_in_line(home: Path) -> None:
    """upstream-12: Ctrl-C at a question cancels the call; messages wait, and a later line is not disturbed."""
    events = EventLog(home)
    configured(home, {"old": server("client/asking.py", events.path)})
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    form = json.dumps({"message": "Who?", "requestedSchema": schema})
    logs = json.dumps([{"level": "error", "data": f"log {EVIL}"}])
    with terminal(*REPL, "--root", str(home / "root"), cwd=home, environment=environment(home)) as at:
        at.wait_for("server 'old' is ready: 2 tools")
        enter(at, f"ask method=elicitation/create 'params:={form}' 'logs:={logs}'")
        at.wait_for("number or name: ")
        at.type("always-server\r")
        at.wait_for("what is declared above?")
        at.type("yes\r")
        at.wait_for("server 'old': error: log \\x1b]0;owned\\x07\\u202e")
        at.wait_for("server 'old' asks: Who?")
        at.wait_for("name (string): ")
        at.type("Ada\r")
        at.wait_for("[yes/no/cancel] ")
        at.type("yes\r")
        at.wait_for('{"action": "accept", "content": {"name": "Ada"}}')
        enter(at, f"wait method=elicitation/create 'params:={form}'")
        at.wait_for("name (string): ")
        at.type("\x03")
        events.wait_for("cancelled")
        at.wait_for("interrupted")
        enter(at, "file_exists notes.txt")
        at.wait_for("true")
        enter(at, "exit")
        assert at.end() == 0
    events.close()


def piped(home: Path, lines: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return warm.run(
        [sys.executable, *REPL, "--root", str(home / "root")],
        input=lines,
        cwd=home,
        env={**os.environ, **environment(home), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_piped_lines_wait_for_the_servers_and_leave_none(home: Path) -> None:
    """upstream-10, upstream-11: started when a line needs one, which waits for no other; a call needs an approval."""
    events = EventLog(home)
    hanging = misbehaving("mute") | {"startup_timeout_sec": 600}
    configured(home, {"hanging": hanging, "up": server("app/upstream_server.py", events.path)})

    done = piped(home, "echo text=x\n/mcp\n")
    assert done.returncode == 77
    told = "'up: echo' is not approved, and nobody can be asked here; run `coretools mcp approve up echo`\n"
    assert told in done.stderr
    assert "waiting for 'hanging', 'up' to start" in done.stderr
    assert done.stdout.splitlines()[1].split()[:2] == ["hanging", "connecting"]
    assert done.stdout.splitlines()[2].split()[:4] == ["up", "ready", "stdio", "10"]
    assert wait_gone(int(events.wait_for("started")))
    done = piped(home, "read_file notes.txt\n")
    assert (done.returncode, done.stdout) == (0, "remembered\n")
    events.close()


def test_the_end_of_the_input_is_no_failure_of_a_server(home: Path) -> None:
    """upstream-10: neither of one that is about to list its tools, nor of one that still starts."""
    configured(home, {"lists": misbehaving("never-lists", str(home / "root" / "log")), "starts": misbehaving("mute")})
    is_asked = "run_command 'until grep -q listing log; do sleep 0.1; done'"
    done = piped(home, f"/mcp\n{is_asked}\n", CORETOOLS_UNCONFINED="lists")  # it writes to the root
    assert (done.returncode, done.stderr) == (0, "")


def test_an_approval_ends_with_the_entry_that_it_was_for(home: Path) -> None:
    """client-15: after a refresh with a changed environment the same tool is asked for again."""
    entry = server("app/upstream_server.py")
    configured(home, {"up": entry})
    with terminal(*REPL, "--root", str(home / "root"), cwd=home, environment=environment(home)) as at:
        at.wait_for("server 'up' is ready")
        for is_asked in (True, False):
            at.type("getIssue text=hello\r")
            if is_asked:
                at.wait_for("number or name: ")
                at.type("always-tool\r")
                at.wait_for("what is declared above?")
                at.type("yes\r")
            at.wait_for('{"text": "hello"}')
        configured(home, {"up": entry | {"env": {"MODE": "other"}}})
        enter(at, "/mcp refresh up")
        at.wait_for("server 'up' is ready")
        enter(at, "getIssue text=again")
        at.wait_for("number or name: ")
        at.type("no\r")
        assert '{"text": "again"}' not in at.wait_for("coretools>")
