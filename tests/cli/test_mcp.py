"""`coretools mcp` with real servers (docs/specs/client.md)."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from coretools.cli.main import main
from coretools.cli.mcp.options import ACTIONS
from coretools.cli.mcp.output import arguments_text
from coretools.client.approval.decisions import Decisions
from tests.checkout import TREE
from tests.cli.terminal import terminal
from tests.client.peers import EventLog, misbehaving
from tests.starting import warm
from tests.variables import variables

Captured = pytest.CaptureFixture[str]
STARTS = ("-m", "coretools.cli.main")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The home directory of a user, and a project beside it that is the current directory."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project" / ".git").mkdir(parents=True)
    of_others = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME"))
    with variables(HOME=str(tmp_path / "home"), **of_others), chdir(tmp_path / "project"):
        yield tmp_path / "home"


def configured(home: Path, servers: dict[str, Any], place: str = ".config/coretools/mcp.json") -> Path:
    path = home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def typed(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["mcp", *words])
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("call ok echo text=hello --yes", 0, ""),
        ("call fails echo text=hello --yes", 1, ""),
        ("call ok echo --unknown", 64, "'--unknown': write name=value, name:=JSON or name@=FILE"),
        ("call okk echo", 64, "no server 'okk' is configured; did you mean ok?"),
        ("call ok ecko", 64, "server 'ok' has no tool 'ecko'; did you mean echo?"),
        ("list --url http://127.0.0.1:1/", 64, "--url: has no effect on `list`"),
        ("play", 64, "mcp: unknown action 'play'; choose list, tools, call"),
        ("call ok", 64, "mcp call: wrong number of words"),
        ("call ok echo --yes", 65, "server 'ok': tool 'echo': text: is missing"),
        ("call ok echo text:=5 --yes", 65, "server 'ok': tool 'echo': text: must be string"),
        ("call ok echo text@=missing --yes", 66, "missing: cannot be read: No such file or directory"),
        ("call bad-schema echo text=x --yes", 65, "server 'bad-schema': tool 'echo': declares an invalid schema"),
        ("call dies echo text=x --yes", 69, "server 'dies': call echo: it ended with exit code 3"),
        ("tools exits", 69, "server 'exits': it ended with exit code 4"),
        ("call malformed echo text=x --yes", 76, "sent an answer that the protocol does not allow"),
        ("ping future", 76, "server 'future': Unsupported protocol version from the server: 2099-01-01"),
        ("ping theirs --config .mcp.json", 77, "look at it with `coretools mcp trust theirs --config "),
        ("doctor --config off.json", 0, "off     off in "),
        ("call ok echo text=x", 77, "'ok: echo' is not approved, and nobody can be asked here; give --yes"),
        ("call theirs echo text=x --yes", 77, "belongs to the project and is not trusted yet"),
        ("ping ok wrong", 78, "server 'wrong': command: must be text"),
        ("ping off", 78, "server 'off': is disabled in "),
        ("ping lacks", 78, "server 'lacks': args #1: the environment variable NO_SUCH is not set"),
        ("list --config none.json", 78, "none.json: cannot be read"),
        ("call hangs echo text=x --yes --timeout 0.3", 124, "server 'hangs': call echo: no answer within 0.3 s"),
        ("ping mute --connect-timeout 0.3", 124, "server 'mute': did not answer within 0.3 s"),
        ("tools absent", 127, "server 'absent': no-such-program: not found in PATH"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_each_failure_has_its_exit_code_and_a_message(
    home: Path, capfd: pytest.CaptureFixture[str], words: str, code: int, message: str
) -> None:
    """client-16: messages on standard error, results on standard output."""
    ways = ("ok", "fails", "dies", "exits", "malformed", "hangs", "mute", "bad-schema", "future")
    servers: dict[str, Any] = {way: misbehaving(way) for way in ways}
    servers |= {"absent": {"command": "no-such-program"}, "wrong": {"command": 5}}
    servers |= {"off": {"command": "x", "disabled": True}, "lacks": {"command": "x", "args": ["${NO_SUCH}"]}}
    configured(home, servers)
    configured(home.parent, {"theirs": misbehaving("ok")}, "project/.mcp.json")
    configured(home.parent, {"off": servers["off"]}, "project/off.json")
    assert typed(*words.split()) == code
    printed = capfd.readouterr()
    assert message in printed.err + printed.out
    is_checked = words.startswith(("ping", "doctor"))
    assert printed.out == (printed.out if is_checked else "hello\n" if code in (0, 1) else "")


def test_without_servers_the_files_are_named_in_which_they_are_looked_for(home: Path, capsys: Captured) -> None:
    """client-2, client-17"""
    assert typed("list") == 0
    assert "no servers are configured; `coretools mcp doctor` shows where was looked" in capsys.readouterr().err
    assert typed("doctor") == 0
    shown = capsys.readouterr().out
    assert f"  {home.parent / 'project' / '.mcp.json'} (Claude Code)\n" in shown
    assert f"  {home / '.codex' / 'config.toml'} (Codex)\n" in shown


def test_the_table_shows_every_server_its_state_and_its_file(home: Path, capsys: Captured) -> None:
    """client-17: of the user and the project; what can't be used is in it too, and the others work."""
    mine = configured(home, {"ok": misbehaving("ok"), "exits": misbehaving("exits"), "odd": {"command": "x", "a": 1}})
    theirs = configured(home.parent, {"ok": misbehaving("many"), "many": misbehaving("many")}, "project/.mcp.json")
    assert typed("list", "--trust-project", "--unconfined", "ok", "--unconfined", "many") == 0
    lines = [line.split(maxsplit=5) for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:5] == ["ok", "ready", "stdio", "10000", str(theirs)]
    assert lines[2][:5] == ["many", "ready", "stdio", "10000", str(theirs)]
    assert (lines[3][:2], lines[4][:2]) == (["ok", "hidden"], ["exits", "failed"])
    assert "it ended with exit code 4; its last words on standard error: no API key\\x1b[2J" in " ".join(lines[4])
    assert typed("list", "--output", "json", "--no-connect") == 0
    servers = json.loads(capsys.readouterr().out)["servers"]
    assert [one["state"] for one in servers] == ["not trusted", "not trusted", "hidden", "not started", "not started"]
    assert [one["file"] for one in servers] == [str(theirs)] * 2 + [str(mine)] * 3
    assert servers[4]["remarks"] == ["unknown key 'a'"]


def test_names_and_results_cannot_control_the_terminal(home: Path, capsys: Captured) -> None:
    """client-18: in tables, pages, results and errors, on a terminal and in a pipe."""
    evil = "\x1b]0;owned\x07\u202e"
    configured(home, {"escapes": misbehaving("escapes"), evil: {"command": evil}})
    for words in (["tools"], ["list"], ["doctor"], ["call", "escapes", "echo", "text=x", "--yes"], ["tools", evil]):
        for form in ("text", "json"):
            typed(*words, "--output", form)
            printed = capsys.readouterr()
            assert not set(printed.out + printed.err) & set("\x1b\x07\x9b\u202e")
    typed("call", "escapes", "echo", "text=x", "--yes")
    assert capsys.readouterr().out == "result \\x1b]0;owned\\x07\\x1b[2J\\u202e\\x9b31m\n"


def test_a_project_is_trusted_entry_by_entry(home: Path, capsys: Captured) -> None:
    """client-14: nothing is started before; a changed entry is not trusted; tokens are not shown."""
    started = home / "started"
    entry = misbehaving("ok", str(started)) | {"env": {"API_TOKEN": "secret-word"}}
    remote = {"type": "http", "url": "http://127.0.0.1:1/", "headers": {"Authorization": "secret-word"}}
    configured(home.parent, {"a": entry, "remote": remote}, "project/.mcp.json")
    assert typed("ping", "a") == 77
    assert typed("ping") == 0
    assert typed("trust") == 77
    assert not started.exists()
    assert "nobody can be asked here" in capsys.readouterr().err
    assert typed("trust", "a", "remote", "--yes") == 0
    shown = capsys.readouterr().err
    assert f"misbehaving.py ok {started}" in shown
    assert "API_TOKEN" in shown
    assert "secret-word" not in shown
    assert f"runs confined to {home.parent / 'project'}, network: deny" in shown
    assert typed("ping", "a", "--unconfined", "a") == 0
    assert started.exists()
    configured(home.parent, {"a": entry | {"cwd": "."}}, "project/.mcp.json")
    assert typed("ping", "a") == 77
    assert typed("ping", "a", "--config", ".mcp.json") == 77
    assert typed("ping", "a", "--config", ".mcp.json", "--trust-project", "--unconfined", "a") == 0


def test_what_is_shown_for_an_approval_cannot_be_forged(home: Path, capsys: Captured) -> None:
    """client-14, client-18: a name, a variable or a path with a line break stays on its line; values are shown."""
    forged = "a\n  runs true\ncoretools: trusted: all\u202e\x1b[1A"
    entry = {"command": "sh", "args": ["-c", forged], "cwd": forged, "env": {"LD_PRELOAD": "./x.so", forged: forged}}
    configured(home.parent, {forged: entry, "z": entry | {"envFile": forged, "env_vars": [forged]}}, "project/mcp.json")
    assert typed("trust") == 77
    shown = capsys.readouterr().err
    assert not set(shown) & set("\x1b\u202e")
    assert "  with 'LD_PRELOAD=./x.so'\n" in shown
    assert [line for line in shown.splitlines() if line.startswith(("  runs true", "coretools: trusted"))] == []


def test_trust_says_what_it_does_not_show_and_which_variables_are_used(home: Path, capsys: Captured) -> None:
    """client-14: a redacted text may be a command, and a header may take any secret of the user."""
    script = {"command": "sh", "args": ["-c", "run --password=$(evil)"], "env": {"TOKEN": "${input:key}"}}
    remote = {"url": "http://127.0.0.1:1/", "headers": {"X-Trace": "${AWS_SECRET_ACCESS_KEY:-secret-word}"}}
    long = {"command": "sh", "args": ["-c", f"{'true;' * 1000} evil", "${workspaceFolder}"]}
    configured(home.parent, {"script": script, "remote": remote, "long": long}, "project/.mcp.json")
    shown = {}
    for name in ("script", "remote", "long"):
        assert typed("trust", name, "--yes") == 0
        shown[name] = capsys.readouterr().err
    unseen = "  not all of it is shown; read the file before you answer\n"
    assert "  with the values of input:key\n" in shown["script"]
    assert unseen in shown["script"]
    assert unseen in shown["long"]
    assert "  with the values of AWS_SECRET_ACCESS_KEY\n" in shown["remote"]
    assert unseen not in shown["remote"]
    assert "with the values" not in shown["long"]
    assert "secret-word" not in shown["remote"]


def test_trust_shows_no_secret_whatever_its_name(home: Path, capsys: Captured) -> None:
    """client-6, client-14: of variables, arguments and addresses; what decides what runs stays visible."""
    random = "Zq3kT9vB2mXw7LpR5nYd"
    hidden = {"SUPABASE_KEY": "hunter2", "LINEAR_PAT": f"lin_api_{random}", "MY_TENANT": random, "GITHUB_PAT_2": "ab1"}
    shown = {
        "LOG_LEVEL": "debug",
        "NODE_OPTIONS": "--require ./evil.js",
        "MODEL": "claude-sonnet-4-20250514",
        "X": "/a",
        "TLS_KEY": "/etc/tls/key.pem",
        "FORWARDED_KEY": "${SUPABASE_KEY}",
    }
    args = ["--api-pat", f"x{random}", f"--url=http://127.0.0.1:1/s/{random}/mcp?apikey=word-word", f"y{random}", "ok"]
    program = f"import os, sys; sys.exit('cannot log in with ' + os.environ['LINEAR_PAT'] + ' {random}')"
    entry = {"command": sys.executable, "args": ["-c", program, *args], "env": hidden | shown}
    remote = {"url": f"http://127.0.0.1:1/s/{random}/mcp?apikey=word-word"}
    configured(home.parent, {"local": entry, "remote": remote}, "project/.mcp.json")
    with variables(SUPABASE_KEY="another-word"):
        assert typed("trust", "--yes") == 0
    printed = capsys.readouterr().err
    with variables(SUPABASE_KEY="another-word"):
        assert typed("ping", "local", "--unconfined", "local") == 69
    printed += "".join(capsys.readouterr())
    assert "cannot log in with [redacted:" in printed
    for value in (random, "word-word", "hunter2", "=ab1"):
        assert value not in printed
    for name, value in shown.items():
        assert f"{name}={value}" in printed
    assert "http://127.0.0.1:1/s/[redacted:" in printed
    assert "import os, sys; sys.exit" in printed
    assert printed.count("not all of it is shown") == 2


def test_an_approval_shows_each_argument() -> None:
    """client-15, client-18: none is hidden behind a long one or looks like another; each character is seen."""
    shown = arguments_text({"content": "x" * 100_000, "path": "/etc/passwd", "a = 1  b": "read\u200b\U000e0041\u202e"})
    lines = shown.splitlines()
    assert lines[0].startswith('  content = "xxx')
    assert "[... 98002 more characters ...]" in lines[0]
    assert lines[1:] == ['  path = "/etc/passwd"', '  "a = 1  b" = "read\\u200b\\U000e0041\\u202e"']


def test_an_answer_that_is_too_large_is_one_sentence(home: Path) -> None:
    """client-11: standard error has no traceback of the library."""
    with serving_too_much() as url:
        configured(home, {"large": {"type": "http", "url": url}})
        words = [sys.executable, *STARTS, "mcp", "call", "large", "t", "--yes"]
        ended = warm.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 76
    assert "larger than 16777216 bytes" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@contextmanager
def serving_too_much() -> Iterator[str]:
    """A server whose tool answers 17 MiB."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answers: dict[str, Any] = {
                "initialize": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "large", "version": "1"},
                },
                "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
                "tools/call": {"content": [{"type": "text", "text": "x" * (17 * 1024 * 1024)}]},
            }
            known = answers.get(asked["method"])
            outcome = {"error": {"code": -32601, "message": "no"}} if known is None else {"result": known}
            body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome}).encode() if "id" in asked else b""
            self.send_response(200 if body else 202)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):  # the client hangs up
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()


def test_a_link_in_a_project_belongs_to_the_project(home: Path) -> None:
    """client-2, client-14: wherever it leads; and so does a link from outside to a file of the project."""
    elsewhere = configured(home.parent, {"a": misbehaving("ok")}, "elsewhere/mcp.json")
    inside = home.parent / "project" / ".mcp.json"
    inside.symlink_to(elsewhere)
    assert typed("ping", "a", "--config", ".mcp.json") == 77
    assert typed("ping", "a", "--config", str(elsewhere)) == 0
    inside.unlink()
    configured(home.parent, {"a": misbehaving("ok")}, "project/.mcp.json")
    (home / "link").symlink_to(inside)
    assert typed("ping", "a", "--config", str(home / "link")) == 77


def test_a_call_with_a_result_as_json(home: Path, capsys: Captured) -> None:
    """client-16: one object of a fixed shape, also for an error."""
    configured(home, {"ok": misbehaving("ok"), "fails": misbehaving("fails")})
    assert typed("call", "ok", "echo", "text=content", "--yes", "--output", "json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["server"], result["tool"], result["ok"], result["error"]) == ("ok", "echo", True, None)
    assert "content" in result["content"][0]["text"]
    assert typed("call", "fails", "echo", "text=none", "--yes", "--output", "json") == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["ok"], result["content"][0]["text"]) == (False, "none")
    given = ("call", "ok", "echo", "--yes", "--args")
    (home / "arguments").write_text('{"text": "from a file"}')
    for arguments, code, shown in (
        ('{"text": "a=b"}', 0, "a=b\n"),
        (f"@{home / 'arguments'}", 0, "from a file\n"),
        ('{"text": 5}', 65, "text: must be string"),
        ('["text"]', 64, "--args: must be a JSON object"),
        ("text=x", 64, "--args: no JSON"),
    ):
        assert typed(*given, arguments) == code
        assert shown in "".join(capsys.readouterr())
    assert typed(*given, "{}", "text=x") == 64
    assert "--args: has all arguments; leave out 'text=x'" in capsys.readouterr().err
    assert typed("call", "ok", "echo", "--yes", "--output", "json") == 65
    error = json.loads(capsys.readouterr().out)
    assert error == {
        "ok": False,
        "error": {"kind": "schema-mismatch", "message": "server 'ok': tool 'echo': text: is missing"},
    }


def test_an_approval_is_remembered_until_the_declaration_changes(home: Path, capsys: Captured) -> None:
    """client-15: a person at a terminal sees the arguments and decides; a changed description asks again."""
    way = home / "way"
    way.write_text("ok")
    configured(home, {"a": misbehaving(f"@{way}")})
    environment = {"HOME": str(home)}
    words = ("mcp", "call", "a", "echo")
    with terminal(*STARTS, *words, "text=one\x1b[2J", cwd=home, environment=environment) as person:
        assert 'a: echo\r\n  text = "one\\u001b[2J"' in person.wait_for("Call it?")
        person.type("always-tool\n")
        assert "  | Returns its text.\r\n" in person.wait_for("Approve for good what is declared above?")
        person.type("yes\n")
        assert person.end() == 0
    assert typed("call", "a", "echo", "text=two") == 0
    assert capsys.readouterr().out == "two\n"
    way.write_text("changed")
    assert typed("call", "a", "echo", "text=three") == 77
    with terminal(*STARTS, *words, "text=four", cwd=home, environment=environment) as person:
        person.wait_for("Call it?")
        person.type("no\n")
        assert person.end() == 77
    with terminal(*STARTS, *words, "text=five", cwd=home, environment=environment) as person:
        person.wait_for("Call it?")
        person.type("always-server\n")
        assert "  | Also deletes your files.\r\n" in person.wait_for("Approve for good what is declared above?")
        person.type("no\n")
        assert person.end() == 77
    with terminal(*STARTS, *words, "text=five", cwd=home, environment=environment) as person:
        person.wait_for("Call it?")
        person.type("always-server\n")
        person.wait_for("Approve for good what is declared above?")
        person.type("yes\n")
        assert person.end() == 0
    assert typed("call", "a", "echo", "text=six") == 0
    assert Decisions(environment).path == str(home / ".local" / "state" / "coretools" / "mcp-decisions.json")


def test_an_input_is_asked_for_or_given(home: Path, capsys: Captured) -> None:
    """client-4: at a terminal without an echo, else by option."""
    entry = misbehaving("ok") | {"env": {"KEY": "${input:api-key}"}}
    file = home / ".config" / "coretools" / "mcp.json"
    file.parent.mkdir(parents=True)
    inputs = [{"id": "api-key", "type": "promptString", "description": "API key", "password": True}]
    file.write_text(json.dumps({"servers": {"a": entry}, "inputs": inputs}))
    assert typed("ping", "a") == 78
    assert "give --input api-key=VALUE or set CORETOOLS_INPUT_API_KEY" in capsys.readouterr().out
    assert typed("ping", "a", "--input", "api-key=secret-word") == 0
    with terminal(*STARTS, "mcp", "ping", "a", cwd=home, environment={"HOME": str(home)}) as person:
        person.wait_for("a: API key: ")
        person.type("secret-word\n")
        assert person.end() == 0
        assert "secret-word" not in person.output


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ("resources", 0, "note://a       \\x1b]0;owned", "server 'exits': it ended"),
        ("resources c", 0, "note://{name}  any", ""),
        ("read c note://a", 0, "text \\x1b]0;owned", ""),
        ("read ok note://a", 76, "", "server 'ok': read note://a: refused the request: unknown method"),
        ("prompts c", 0, "ask     about [style]", ""),
        ("prompt c ask about=x", 0, "user: Explain \\x1b]0;owned", ""),
        ("prompt c ask", 64, "", "prompt 'ask': missing: about"),
        ("prompt c ask x", 64, "", "'x': write name=value"),
        ("prompt c as", 66, "", "server 'c' has no prompt 'as'; did you mean ask?"),
        ("read c note://a --output json", 0, '"text": "text \\u001b]0;owned', ""),
        ("prompt c ask about=x --output json", 0, '"text": "Explain \\u001b]0;owned', ""),
        ("prompts --output json", 0, '"name": "ask"', ""),
    ],
)
def test_resources_and_prompts_are_listed_and_read(
    home: Path, capfd: pytest.CaptureFixture[str], words: str, code: int, out: str, err: str
) -> None:
    """client-19: of one server or all; servers without any have none."""
    configured(home, {"c": misbehaving("content"), "ok": misbehaving("ok"), "exits": misbehaving("exits")})
    assert typed(*words.split()) == code
    printed = capfd.readouterr()
    assert out in printed.out
    assert err in printed.err
    assert "\x1b" not in printed.out + printed.err


def test_a_binary_resource_goes_to_a_pipe_as_it_is(home: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """client-19: not to a terminal."""
    configured(home, {"c": misbehaving("content")})
    assert typed("read", "c", "note://blob") == 0
    assert capfdbinary.readouterr().out == b"\0\xff\x1b[2J"
    words = (*STARTS, "mcp", "read", "c", "note://blob")
    with terminal(*words, cwd=home, environment={"HOME": str(home)}) as person:
        assert person.end() == 0
    assert person.output == "[image/x, 6 bytes]\r\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_cancels_the_call_on_the_server(home: Path, number: signal.Signals) -> None:
    """client-9, client-16"""
    events = EventLog(home)
    configured(home, {"h": misbehaving("hangs", events.path)})
    command = [sys.executable, *STARTS, "mcp", "call", "h", "echo", "text=x", "--yes"]
    child = warm.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        events.wait_for("called")
        child.send_signal(number)
        events.wait_for("cancelled")
        assert child.communicate(timeout=60) == (b"", b"")
        assert child.returncode == 128 + number
    finally:
        child.kill()
        child.communicate()
        events.close()


def test_the_help_loads_neither_the_sdk_nor_pydantic(home: Path) -> None:
    """client-16: it lists the actions and the exit codes."""
    program = (
        "import sys\nfrom coretools.cli.main import main\n"
        "try:\n    main(['mcp', '--help'])\nexcept SystemExit as ended:\n"
        "    sys.exit(ended.code or sorted({'mcp', 'pydantic', 'jsonschema'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=TREE, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"coretools mcp {action}" in done.stdout for action in ACTIONS)
    assert typed("--root", "/") == 64  # no option of `coretools mcp`


def test_no_file_that_is_named_holds_up_a_line(home: Path, capsys: Captured) -> None:
    """client-13, pipelines-14: a FIFO to which nobody writes is empty as an argument, and refused elsewhere."""
    configured(home, {"ok": misbehaving("ok")})
    os.mkfifo("fifo")
    assert typed("run", "fifo") == 78
    assert typed("run", "--replay", "fifo") == 78
    assert typed("call", "ok", "echo", "text=hi", "--yes", "--policy", "fifo") == 78
    assert capsys.readouterr().err.count("not a regular file") >= 2
    assert typed("call", "ok", "echo", "text@=fifo", "--yes") == 0
