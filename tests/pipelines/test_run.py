"""`coretools run` with real servers (docs/specs/pipelines.md)."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from coretools.cli.main import main
from tests.checkout import TREE
from tests.cli.test_mcp import STARTS, configured
from tests.cli.test_mcp_reports import assert_junit, printed
from tests.client.peers import EventLog, misbehaving
from tests.starting import warm
from tests.variables import NO_LOGIN_SHELL, variables

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "home").mkdir()
    (tmp_path / "project" / ".git").mkdir(parents=True)
    of_others = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME", "GITHUB_OUTPUT"))
    with variables(HOME=str(tmp_path / "home"), **of_others, **NO_LOGIN_SHELL), chdir(tmp_path / "project"):
        servers = {way: misbehaving(way, str(tmp_path / "log")) for way in ("ok", "fails", "dies", "huge")}
        configured(tmp_path / "home", servers)
        yield tmp_path / "home"


def script(text: str) -> str:
    Path("steps.yaml").write_text(text)
    return "steps.yaml"


def ran(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["run", *words])
    code = ended.value.code
    assert isinstance(code, int)
    return code


STEPS = """
name: Smoke test
vars: {word: hello, count: 2, token: null}
steps:
  - id: first
    name: Say hello
    server: ok
    tool: echo
    arguments: {text: '{"n": 2, "who": "${{ vars.word }} ${{ env.WHO }}", "t": "${{ vars.token }}"}'}
    assert:
      - $.data.n == ${{ vars.count }}
      - $.data.who == "hello ${{}} \\" || 1 == 1"
  - server: coretools
    tool: read_file
    arguments: {path: steps.yaml, head: "${{ steps.first.result.data.n }}"}
    assert: $.text contains "Smoke"
  - {id: bad, server: dies, tool: echo, arguments: {text: x}, continue-on-error: true}
  - {server: fails, tool: echo, arguments: {text: x}, expect: error, if: $.steps.bad.outcome == "failed"}
  - {server: ok, tool: echo, arguments: {text: x}, if: $.steps.bad.outcome == "passed"}
  - {server: ok, tool: echo, arguments: {text: x}, when: failure}
  - id: worse
    server: ok
    tool: echo
    arguments: {text: "5"}
    assert: $.text == "6"
  - {server: ok, tool: echo, arguments: {text: never}}
  - {id: last, server: ok, tool: echo, when: always, arguments: {text: "${{ steps.worse.error.kind }}"}}
"""


def test_a_script_runs_its_steps_on_servers_that_stay_connected(home: Path, capfd: Capture) -> None:
    """pipelines-15, pipelines-16: values of earlier results, conditions, what a failure does; our own tools too."""
    words = (script(STEPS), "--yes", "--var", "token=T", "--report", "junit=r.xml", "--output", "json")
    with variables(WHO='${{}} " || 1 == 1'.replace('"', '\\"')):
        assert ran(*words) == 3
    log = capfd.readouterr()
    report = json.loads(log.out)
    steps = {one["step"]: one for one in report["steps"]}
    assert [one["status"] for one in report["steps"]] == [
        *("passed", "passed", "failed", "passed", "skipped", "skipped", "failed", "skipped", "passed")
    ]
    assert json.loads(steps["first"]["result"]["content"][0]["text"])["t"] == "T"
    assert steps["last"]["result"]["content"][0]["text"] == "assertion-failed"
    assert steps["step5"]["reason"] == '$.steps.bad.outcome == "passed" does not hold'
    assert steps["step8"]["reason"] == "an earlier step failed"
    assert "FAILED ok: echo" in log.err
    line = STEPS.splitlines().index("  - id: worse") + 1
    reason = """server 'ok': tool 'echo': expected $.text == "6", but $['text'] is "5\""""
    assert f"steps.yaml:{line}: step 'worse': {reason}\n" in log.err
    assert (home.parent / "log").read_text().count("started") == 3  # ok, dies, fails: each once
    assert_junit(ET.fromstring(Path("r.xml").read_text()), tests=9, failures=1, errors=0)


def test_a_server_that_crashed_is_connected_again_for_the_next_step(home: Path, capfd: Capture) -> None:
    """pipelines-13, pipelines-15: whatever time the next step or attempt comes after the crash."""
    configured(home, {way: misbehaving(way, str(home / way)) for way in ("flaky", "flaky-reader")})
    call = "tool: echo, arguments: {text: x}"
    steps = [f"{{server: flaky, {call}, continue-on-error: true}}", *[f"{{server: flaky, {call}}}"] * 2]
    text = "".join(f"- {step}\n" for step in [*steps, f"{{server: flaky-reader, {call}, retry: 1}}"])
    assert ran(script(f"steps:\n{text}"), "--yes", "--output", "json") == 0
    report = json.loads(capfd.readouterr().out)
    assert [(one["status"], one["attempts"]) for one in report["steps"]] == [
        *(("failed", 1), ("passed", 1), ("passed", 1), ("passed", 2))
    ]


def test_checks_start_nothing(home: Path, capfd: Capture) -> None:
    """pipelines-15: servers, expressions, variables."""
    path = script(STEPS)
    assert ran(path, "--check", "--var", "token=T") == 0
    assert ran(path, "--check") == 64
    assert "token has no value; give --var token=VALUE" in capfd.readouterr().err
    assert ran(path, "--var", "other=5") == 64
    assert "steps.yaml declares word, count, token" in capfd.readouterr().err
    assert ran(script("steps:\n- {server: okk, tool: x}\n- {server: ok, tool: x, assert: '$.x['}"), "--check") == 64
    shown = capfd.readouterr().err
    assert "steps.yaml:2: step 'step1': no server 'okk' is configured; did you mean ok?" in shown
    assert "steps.yaml:3: step 'step2': '$.x[' is no usable expression" in shown
    wrong = '- {server: ok, tool: x}\n- {server: ok, tool: x, if: $.steps.step1.outcome == "success"}'
    assert ran(script(f"steps:\n{wrong}"), "--check") == 78
    assert "steps.yaml:3: steps[2]" in (shown := capfd.readouterr().err)
    assert "no outcome 'success'; there are passed, failed, skipped" in shown
    assert ran(script("steps: [")) == 78
    assert ran("none.yaml") == 78
    assert ran() == 64
    assert not (home.parent / "log").exists()


def test_each_call_of_a_script_needs_approval(home: Path, capfd: Capture) -> None:
    """pipelines-4: also of our own tools."""
    path = script(
        "steps:\n- {server: ok, tool: echo, arguments: {text: x}}\n"
        "- {server: coretools, tool: write_file, when: always, arguments: {path: new, content: x}}\n"
    )
    assert ran(path) == 77
    assert "step 'step2': 'coretools: write_file' is not approved" in capfd.readouterr().err
    (home / "p.toml").write_text('[[rule]]\nserver = "ok"\ntool = "*"\nverdict = "allow"\n')
    assert ran(path, "--policy", str(home / "p.toml"), "--yes") == 77
    assert f"'coretools: write_file' is refused by policy: no rule of {home}/p.toml" in capfd.readouterr().err
    assert not Path("new").exists()


def test_a_result_of_many_megabytes_is_checked_and_its_failure_stays_short(home: Path, capfd: Capture) -> None:
    """pipelines-9: messages and reports are bounded."""
    path = script(
        "steps:\n"
        "- {id: a, server: huge, tool: echo, arguments: {text: x}, assert: $.text == 5, continue-on-error: true}\n"
        '- {server: ok, tool: echo, arguments: {text: "${{ steps.a.outcome }}"}, assert: $.text == "failed"}\n'
    )
    assert ran(path, "--yes", "--output", "junit") == 0
    log = capfd.readouterr()
    assert len(log.out) < 80_000
    assert len(log.err) < 3_000


def test_ctrl_c_cancels_the_call_of_a_step(home: Path) -> None:
    """pipelines-15"""
    events = EventLog(home)
    configured(home, {"h": misbehaving("hangs", events.path)})
    path = script("steps:\n- {server: h, tool: echo, arguments: {text: x}}\n")
    command = [sys.executable, *STARTS, "run", path, "--yes"]
    environment = {**os.environ, "PYTHONPATH": str(TREE)}
    child = warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    try:
        events.wait_for("called")
        child.send_signal(signal.SIGINT)
        events.wait_for("cancelled")
        child.communicate(timeout=60)
        assert child.returncode == 130
    finally:
        child.kill()
        child.communicate()
        events.close()


def test_a_step_has_its_own_deadline_and_repetitions(home: Path, capfd: Capture) -> None:
    """pipelines-13, pipelines-15"""
    configured(home, {"h": misbehaving("hangs"), "f": misbehaving("flaky-reader", str(home.parent / "log"))})
    path = script(
        "retry: 1\nsteps:\n- {server: f, tool: echo, arguments: {text: x}}\n"
        "- {server: h, tool: echo, timeout: 0.2, retry: 0, arguments: {text: x}}\n"
    )
    assert ran(path, "--yes", "--output", "ndjson") == 124
    events = [json.loads(line) for line in printed(capfd).splitlines()]
    assert [(one["attempts"], one["status"]) for one in events if one["event"] == "result"] == [
        (2, "passed"),
        (1, "failed"),
    ]
