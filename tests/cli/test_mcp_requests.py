"""What servers ask of `coretools mcp` (docs/specs/client-requests.md)."""

import json
import os
import sys
import termios
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from coretools.cli.common.terminal import TerminalCapabilities
from coretools.cli.main import main
from coretools.cli.mcp.elicitation import Elicitation
from coretools.cli.mcp.requests import Requests, roots_of
from coretools.cli.mcp.screen import Screen
from coretools.client.common.errors import ProtocolViolation
from coretools.client.connection.stdio import ChildTracker
from coretools.client.questions.sampling import SamplingCommand
from tests.checkout import TREE
from tests.cli.terminal import Terminal, terminal
from tests.client import sdk_asking
from tests.client.peers import EventLog, hub
from tests.client.remote import served
from tests.variables import variables

Captured = pytest.CaptureFixture[str]
CALL = ("mcp", "call", "--config", "servers.json", "--trust-project", "--yes")
EVIL = "\x1b]0;owned\x07\u202e"


def server(name: str, *words: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(TREE / "tests" / "client" / name), *words]}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """The current directory, with a server of the older era."""
    (tmp_path / "servers.json").write_text(json.dumps({"servers": {"old": server("asking.py")}}))
    with variables(HOME=str(tmp_path), XDG_STATE_HOME=None, XDG_CONFIG_HOME=None), chdir(tmp_path):
        yield tmp_path


def typed(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*CALL, *words])
    code = ended.value.code
    assert isinstance(code, int)
    return code


def asked(method: str, params: dict[str, Any], tool: str = "ask") -> tuple[str, ...]:
    return ("old", tool, f"method={method}", f"params:={json.dumps(params)}")


def form(message: str = "Which?", required: tuple[str, ...] = (), **fields: Any) -> tuple[str, ...]:
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return asked("elicitation/create", {"message": message, "requestedSchema": schema})


TEXT = {"type": "string"}
NUMBER = {"type": "integer", "minimum": 1}
PICK = {"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]}
TITLED = {"type": "array", "items": {"anyOf": [{"const": "x", "title": "Ex"}, {"const": "y", "title": "Why"}]}}


@pytest.mark.parametrize(
    ("fields", "required", "options", "result"),
    [
        ({"name": TEXT}, ("name",), "", "decline"),
        ({"name": TEXT}, (), "", "decline"),
        ({"name": TEXT}, (), "--answer name=5", {"name": "5"}),
        ({"name": TEXT}, (), "--answer name=@/etc/passwd", {"name": "@/etc/passwd"}),
        ({"n": NUMBER}, ("n",), "--answer n=5", {"n": 5}),
        ({"n": NUMBER}, ("n",), "--answer n:=5", {"n": 5}),
        ({"n": NUMBER}, ("n",), "--answer n=0", "decline"),
        ({"n": NUMBER}, ("n",), "--answer other=5", "decline"),
        ({"yes": {"type": "boolean"}}, ("yes",), "--answer yes=y", {"yes": True}),
        ({"pick": PICK}, ("pick",), "--answer pick=second", {"pick": "b"}),
        ({"pick": PICK}, ("pick",), "--answer pick=third", "decline"),
        ({"many": TITLED}, ("many",), "--answer many=why,1", {"many": ["y", "x"]}),
        ({"many": TITLED}, ("many",), "--answer many=x --answer many=y", {"many": ["x", "y"]}),
        ({"many": TITLED}, ("many",), '--answer many:=["y"]', {"many": ["y"]}),
        ({"at": {**TEXT, "format": "date"}}, ("at",), "--answer at=2026-02-30", "decline"),
        ({"at": {**TEXT, "format": "email"}}, ("at",), "--answer at=a@b", {"at": "a@b"}),
        ({"n": {**NUMBER, "default": 3}, "name": TEXT}, ("n",), "--accept-defaults", {"n": 3}),
        ({"n": {**NUMBER, "default": 3}, "name": TEXT}, ("name",), "--accept-defaults", "decline"),
        ({"n": {**NUMBER, "default": -3}}, ("n",), "--accept-defaults", "decline"),
        ({"n": {**NUMBER, "default": 3}}, ("n",), "--accept-defaults --answer n=4", {"n": 4}),
        ({"n": {**NUMBER, "default": 3}}, ("n",), "", "decline"),
        ({}, (), "--accept-defaults", {}),
        ({}, (), "", "decline"),
    ],
)
async def test_options_answer_forms(
    capsys: Captured, fields: Any, required: tuple[str, ...], options: str, result: Any
) -> None:
    """client-requests-1, client-requests-2: typed by the schema; else declined, with a message on standard error."""
    words = options.split()
    answers = [word for word in words if not word.startswith("--")]
    elicitation = Elicitation("old", Screen(TerminalCapabilities.of({})), answers, "--accept-defaults" in words)
    schema = {"type": "object", "properties": fields, "required": list(required)}
    asked = types.ElicitRequestFormParams(message=f"Which{EVIL}?", requested_schema=schema)
    answer = await elicitation.answer(asked)
    expected = {"action": "decline"} if result == "decline" else {"action": "accept", "content": result}
    assert answer.model_dump(exclude_none=True) == expected
    printed = capsys.readouterr()
    assert printed.err.startswith("coretools: server 'old' asks: Which\\x1b]0;owned\\x07\\u202e?: ")
    if not options:
        assert "declined: nobody can be asked here; give " in printed.err


async def test_the_stateless_era_asks_a_form_a_model_and_roots(project: Path, capsys: Captured) -> None:
    """client-requests-1, client-requests-6, client-requests-8, client-requests-9: a server of the SDK."""
    tracker = ChildTracker.create()
    requests = Requests(
        screen=Screen(TerminalCapabilities.of({})),
        answers=["city=Rome", "by=bus"],
        roots=roots_of([".", "/"]),
        sampling=SamplingCommand(("sh", "-c", "read request; echo 42"), dict(os.environ), tracker),
        approves_all=True,
        log_level="info",
    )
    found = {}
    async with served(sdk_asking.server.streamable_http_app()) as address:
        entry = {"type": "http", "url": f"{address}/mcp"}
        async with hub(project, {"new": entry}, server_requests=requests) as connections:
            await connections["new"].wait_settled()
            assert connections["new"].protocol_version == "2026-07-28"
            for tool in ("book", "where", "think", "chat"):
                result = await connections["new"].call(tool, {})
                found[tool] = result.content[0].text  # type: ignore[union-attr]
        requests.answers = []
        async with hub(project, {"new": entry}, server_requests=requests) as connections:
            await connections["new"].wait_settled()
            result = await connections["new"].call("book", {})
            assert result.content[0].text == "decline"  # type: ignore[union-attr]
        async with hub(project, {"new": entry}) as connections:
            await connections["new"].wait_settled()
            with pytest.raises(ProtocolViolation, match="did not declare the sampling capability"):
                await connections["new"].call("think", {})
    tracker.watchdog.close()
    assert json.loads(found.pop("book")) == {"city": "Rome", "days": 3, "by": "bus", "insured": False}
    assert found == {"where": f"{project.as_uri()} file:///", "think": "sh: 42", "chat": "done"}
    errors = capsys.readouterr().err
    assert "server 'new': info: almost done" in errors
    assert "give --answer city=VALUE" in errors


def test_a_form_that_is_none_is_refused(project: Path, capsys: Captured) -> None:
    """client-requests-3: with a message that names the server; nothing is answered."""
    many = dict.fromkeys(map(str, range(101)), TEXT)
    for fields, message in (
        (many, "server 'old': asks with a form of 101 fields; 100 at most"),
        ({"a": {**TEXT, "pattern": "("}}, "declined: --answer a: declares an invalid schema"),
        ({"a": {**TEXT, "pattern": "^(a|a)*$"}}, "declined: --answer a: declares a schema that can't be used"),
    ):
        Path("form.json").write_text(
            json.dumps({"message": "x", "requestedSchema": {"type": "object", "properties": fields}})
        )
        words = ("old", "ask", "method=elicitation/create", "params=@form.json", "--answer", f"a={'a' * 40}b")
        assert typed(*words) == 0
        printed = capsys.readouterr()
        assert message in printed.err
        assert "accept" not in printed.out


def test_a_model_is_a_command_with_the_request_on_its_input(project: Path, capsys: Captured) -> None:
    """client-requests-6: never in its arguments; its answer is text, or the JSON of a result."""
    message = {"role": "user", "content": {"type": "text", "text": "$(touch owned) `touch owned`"}}
    request = asked("sampling/createMessage", {"messages": [message], "maxTokens": 5})
    keep = "import sys; open('request', 'w').write(sys.stdin.read()); print(%r)"
    for answer, expected in (
        ("plain", {"role": "assistant", "content": {"type": "text", "text": "plain"}, "stopReason": "endTurn"}),
        ('{"content": {"type": "text", "text": "x"}, "model": "m"}', {"model": "m"}),
        ('{"content": 5}', {"content": {"type": "text", "text": '{"content": 5}'}}),
    ):
        Path("model.py").write_text(keep % answer)
        assert typed(*request, "--sampling", f"{sys.executable} model.py") == 0
        result = json.loads(capsys.readouterr().out)
        assert result | expected == result
    sent = json.loads(Path("request").read_text())
    assert (sent["server"], sent["method"]) == ("old", "sampling/createMessage")
    assert sent["params"]["messages"] == [message]
    assert not Path("owned").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("sh -c 'echo bad key >&2; exit 3'", "ended with exit code 3: bad key"),
        ("sh -c 'kill -9 $$'", "ended with SIGKILL"),
        ("head -c 1100000 /dev/zero", "has more than 1048576 bytes"),
        ("no-such-program", "no-such-program: not found in PATH"),
    ],
)
def test_a_model_that_fails_is_an_error_of_the_request(
    project: Path, capsys: Captured, command: str, message: str
) -> None:
    """client-requests-6, client-requests-7: the server learns nothing of the command; the user does."""
    request = asked("sampling/createMessage", {"messages": [], "maxTokens": 5})
    with variables(CORETOOLS_MCP_SAMPLING=command):
        assert typed(*request) == 0
    printed = capsys.readouterr()
    assert message in printed.err
    assert json.loads(printed.out) == {
        "error": {"code": -32603, "message": "the command that answers for a model failed"}
    }


def test_log_messages_are_printed_from_a_level_on(project: Path, capsys: Captured) -> None:
    """client-requests-9: escaped, with the server's name, and not without end; the server is told the level."""
    logs = [{"level": level, "data": f"text {EVIL}", "logger": "db"} for level in ("debug", "info", "error")]
    assert typed("old", "ask", f"logs:={json.dumps(logs)}") == 0
    printed = capsys.readouterr()
    assert printed.err == "coretools: server 'old': error [db]: text \\x1b]0;owned\\x07\\u202e\n"
    assert "level" not in json.loads(printed.out)
    assert typed("old", "ask", f"logs:={json.dumps(logs)}", "--log-level", "info") == 0
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 2
    assert json.loads(printed.out)["level"] == "info"
    flood = [{"level": "error", "data": {"n": 1}}] * 1200
    Path("flood.json").write_text(json.dumps(flood))
    assert typed("old", "ask", "logs=@flood.json") == 0
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1001
    assert printed.err.endswith("1000 log messages were printed; further ones are not\n")


def test_what_is_not_answered_is_not_declared(project: Path, capsys: Captured) -> None:
    """client-requests-5, client-requests-8: sampling needs a command, and roots need --root."""
    assert typed("old", "ask") == 0
    assert set(json.loads(capsys.readouterr().out)) == {"elicitation"}
    assert typed("old", "ask", "--root", ".", "--sampling", "cat") == 0
    assert set(json.loads(capsys.readouterr().out)) == {"elicitation", "roots", "sampling"}
    assert typed("old", "ask", "--root", "missing") == 66


def at_terminal(project: Path, *words: str, **environment: str) -> Any:
    arguments = ("-m", "coretools.cli.main", *CALL, *words)
    return terminal(*arguments, cwd=project, environment={"HOME": str(project), **environment})


def has_echo(person: Terminal) -> bool:
    return bool(termios.tcgetattr(person.master)[3] & termios.ECHO)


def result_of(person: Terminal) -> Any:
    assert person.end() == 0
    last = person.output.splitlines()[-1]
    return json.loads(last[last.index("{") :])


def test_a_person_fills_in_a_form(project: Path) -> None:
    """client-requests-4: field by field, checked; secrets are not shown; the server is named, its text escaped."""
    fields = {
        "name": {**TEXT, "title": f"Name{EVIL}"},
        "n": {**NUMBER, "default": 3},
        "pick": PICK,
        "password": TEXT,
        "note": TEXT,
    }
    given = form("Who?", ("name", "n", "pick", "password"), **fields)
    with at_terminal(project, *given, "--answer", "n=zero") as person:
        person.wait_for("server 'old' asks: Who?")
        person.wait_for("--answer n: must be integer")
        person.wait_for("Name\\x1b]0;owned\\x07\\u202e (string): ")
        person.type("\n")
        person.wait_for("name: is required")
        person.type("Ada\n")
        person.wait_for("n (integer) [3]: ")
        person.type("0\n")
        person.wait_for("less than the minimum")
        person.type("\n")
        person.wait_for("2) b: Second")
        person.type("2\n")
        person.wait_for("password (string): ")
        person.type("horse-battery\n")
        person.wait_for("note (string) (optional): ")
        person.type("\n")
        shown = person.wait_for("[yes/no/cancel] ")
        assert 'Send name="Ada", n=3, pick="b", password=***' in shown
        assert "horse-battery" not in person.output
        person.type("yes\n")
        result = result_of(person)
    assert result == {
        "action": "accept",
        "content": {"name": "Ada", "n": 3, "pick": "b", "password": "horse-battery"},
    }
    kept = [path for path in project.rglob("*") if path.is_file() and b"horse" in path.read_bytes()]
    assert kept == []


@pytest.mark.parametrize(
    ("kind", "keys", "action"),
    [("string", "\x04", "cancel"), ("string", "x\nno\n", "decline"), ("integer", "x\n" * 3, "cancel")],
)
def test_a_person_declines_or_cancels(project: Path, kind: str, keys: str, action: str) -> None:
    """client-requests-4: the third invalid answer cancels."""
    with at_terminal(project, *form("Who?", ("name",), name={"type": kind})) as person:
        person.wait_for(f"name ({kind}): ")
        for key in keys.splitlines(keepends=True):
            person.type(key)
        assert result_of(person) == {"action": action}


def test_a_page_is_opened_only_after_a_yes(project: Path) -> None:
    """client-requests-10: the whole address and its host are shown, in ASCII; other schemes are declined."""
    browser = project / "browser"
    browser.write_text('#!/bin/sh\necho "$1" >> opened\n')
    browser.chmod(0o755)
    url = "https://bank.example@\u0435xample.com:8443/pay?id=1"
    page = asked("elicitation/create", {"mode": "url", "message": "Pay", "url": url, "elicitationId": "1"})
    for key, action in (("/decline", "decline"), ("yes", "accept")):
        assert not (project / "opened").exists()
        with at_terminal(project, *page, BROWSER=f"{browser} %s") as person:
            shown = person.wait_for("[yes/no/cancel] ")
            assert f"  {url}\r\n" in shown
            assert "host: xn--xample-2of.com:8443" in shown
            person.type(f"{key}\n")
            assert result_of(person) == {"action": action}
    assert (project / "opened").read_text() == f"{url}\n"


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "https://", "https://a\x1b[2J/", "x"])
def test_an_address_that_is_no_page_is_declined(project: Path, capsys: Captured, url: str) -> None:
    """client-requests-10: and without a terminal every one."""
    for address, message in ((url, "is no http or https address"), ("https://a.example/", "run this at a terminal")):
        page = {"mode": "url", "message": "Pay", "url": address, "elicitationId": "1"}
        assert typed(*asked("elicitation/create", page), "--accept-defaults") == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out) == {"action": "decline"}
        assert message in printed.err
        assert "\x1b" not in printed.err


def test_ctrl_c_at_a_question_cancels_the_call_and_restores_the_terminal(project: Path) -> None:
    """client-requests-11: the time of the call stands still while a person answers."""
    events = EventLog(project)
    servers = {"old": server("asking.py", events.path)}
    (project / "servers.json").write_text(json.dumps({"servers": servers}))
    schema = {"type": "object", "properties": {"password": TEXT}}
    words = asked("elicitation/create", {"message": "Who?", "requestedSchema": schema}, "wait")
    with at_terminal(project, *words, "--timeout", "0.1") as person:
        person.wait_for("password (string) (optional): ")
        events.wait_for("asked")
        person.type("\x03")
        events.wait_for("cancelled")
        assert person.end() == 130
        assert has_echo(person)
    events.close()


def test_a_model_is_asked_after_an_approval(project: Path) -> None:
    """client-requests-7: with the messages shown; without a terminal and --yes it is refused."""
    message = {"role": "user", "content": {"type": "text", "text": f"Hello {EVIL}"}}
    request = asked("sampling/createMessage", {"messages": [message], "maxTokens": 5, "systemPrompt": "Be brief"})
    os.environ.pop("CORETOOLS_MCP_SAMPLING", None)
    words = [word for word in (*CALL, *request, "--sampling", "echo hello") if word != "--yes"]
    with terminal("-m", "coretools.cli.main", *words, cwd=project, environment={"HOME": str(project)}) as person:
        person.wait_for("Call it?")
        person.type("once\n")
        shown = person.wait_for("Ask the model?")
        assert "system: Be brief\r\n  user: Hello \\x1b]0;owned\\x07\\u202e" in shown
        person.type("no\n")
        assert result_of(person)["error"]["code"] == -1


async def test_messages_behind_a_question_are_bounded(capsys: Captured) -> None:
    """client-requests-4: the newest 200 follow the answer; the others are counted."""
    screen = Screen(TerminalCapabilities.of({}))
    async with screen.asking():
        for number in range(250):
            screen.say(f"message {number}")
        assert capsys.readouterr().err == ""
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "message " in line][-1].endswith("message 249")
    assert len([line for line in lines if "message " in line]) == 200
    assert any("50" in line and "message " not in line for line in lines)
