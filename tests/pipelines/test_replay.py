"""Recordings and replays (docs/specs/pipelines.md)."""

import json
import stat
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from tests.cli.test_mcp import configured, typed
from tests.cli.test_mcp_reports import printed
from tests.client.peers import misbehaving
from tests.pipelines.test_run import ran, script
from tests.variables import variables

Capture = pytest.CaptureFixture[str]
SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"

STEPS = """
steps:
  - {id: one, server: a, tool: echo, arguments: {text: '{"id": 1, "at": "${{ env.NOW }}", "name": "x"}'}}
  - {id: two, server: a, tool: echo, arguments: {text: "${{ steps.one.result.data.name }}"}, assert: $.text == "x"}
"""


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Path]:
    """The file that says how the server `a` behaves."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project" / ".git").mkdir(parents=True)
    way = tmp_path / "way"
    way.write_text("ok")
    of_others = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME"))
    with variables(HOME=str(tmp_path / "home"), NOW="noon", **of_others), chdir(tmp_path / "project"):
        configured(tmp_path / "home", {"a": misbehaving(f"@{way}") | {"env": {"API_KEY": "not-a-known-format-17"}}})
        yield way


def test_a_replay_compares_results_with_a_recording(way: Path, capfd: Capture) -> None:
    """pipelines-17, pipelines-18: of the calls alone, of the script, and with what may differ."""
    path = script(STEPS)
    assert ran(path, "--yes", "--record", "r.json") == 0
    assert stat.S_IMODE(Path("r.json").stat().st_mode) == 0o600
    first = Path("r.json").read_bytes()
    assert ran(path, "--yes", "--record", "r.json") == 0
    assert Path("r.json").read_bytes() == first
    assert ran("--replay", "r.json", "--yes") == 0
    assert ran(path, "--replay", "r.json", "--yes") == 0
    capfd.readouterr()
    with variables(NOW="midnight"):
        assert ran(path, "--replay", "r.json", "--yes") == 4
        shown = capfd.readouterr().err
        assert "step 'one': server 'a': tool 'echo': differs from the recording in arguments, content" in shown
        assert '| -    "at": "noon",' in shown
        assert '| +    "at": "midnight",' in shown
        ignored = ("--ignore", "$.content[0].text.at", "--ignore", "$.arguments")
        assert ran(path, "--replay", "r.json", "--yes", *ignored) == 0
        assert ran(path, "--replay", "r.json", "--yes", "--ignore", "$.[") == 64
    way.write_text("escapes")
    capfd.readouterr()
    assert ran("--replay", "r.json", "--yes", "--output", "junit") == 4
    log = capfd.readouterr()
    assert not set(log.out + log.err) & set("\x1b\x9b\u202e")
    assert "-   &quot;text&quot;" in log.out or '-   "text"' in log.out
    for depth in (99, 101, 900):  # what is nested deeper than people write stays text
        kept = json.loads(first)
        kept["calls"][1]["result"]["content"][0]["text"] = "[" * depth + "]" * depth
        Path("deep.json").write_text(json.dumps(kept))
        assert ran("--replay", "deep.json", "--yes") == 4
    way.write_text("dies")
    assert ran("--replay", "r.json", "--yes") == 69
    way.write_text("fails")
    assert ran("--replay", "r.json", "--yes") == 4


def test_errors_are_recorded_and_repeated(way: Path) -> None:
    """pipelines-17: a tool that fails as it was recorded is no failure of a replay."""
    way.write_text("fails")
    assert typed("call", "a", "echo", "text=x", "--yes", "--record", "r.json") == 1
    assert ran("--replay", "r.json", "--yes") == 0
    way.write_text("dies")
    assert typed("call", "a", "echo", "text=x", "--yes", "--record", "dead.json") == 69
    assert ran("--replay", "dead.json", "--yes") == 0
    way.write_text("ok")
    assert ran("--replay", "r.json", "--yes") == 4
    assert ran("--replay", "dead.json", "--yes") == 4


def test_a_recording_answers_without_the_server(way: Path, capfd: Capture) -> None:
    """pipelines-19: scripts and their assertions are tested without any server; nothing needs an approval."""
    path = script(STEPS)
    assert ran(path, "--yes", "--record", "r.json") == 0
    way.unlink()
    configured(way.parent / "home", {})
    assert ran(path, "--replay", "r.json", "--offline") == 0
    changed = script(STEPS.replace('== "x"', '== "y"'))
    assert ran(changed, "--replay", "r.json", "--offline") == 3
    capfd.readouterr()
    with variables(NOW="midnight"):
        assert ran(path, "--replay", "r.json", "--offline") == 69
    assert "the recording has no further call with these arguments" in capfd.readouterr().err
    fewer = script(STEPS.rpartition("  - {id: two")[0])
    assert ran(fewer, "--replay", "r.json", "--offline") == 4
    assert "step 'two' made no call" in capfd.readouterr().err
    for words in (("--offline",), (path, "--offline"), ("--replay", "r.json", "--offline")):
        assert ran(*words) == 64


def test_a_recording_has_no_credentials(way: Path, capfd: Capture) -> None:
    """pipelines-17: known formats, values of the server's environment, values after the names of credentials."""
    text = json.dumps({"token": "opaque-value-99", "seen": "not-a-known-format-17", "plain": "hello"})
    path = script(f"steps:\n- {{id: one, server: a, tool: echo, arguments: {{text: '{text} {SECRET}'}}}}\n")
    assert ran(path, "--yes", "--record", "r.json") == 0
    kept = Path("r.json").read_text()
    for secret in (SECRET, "not-a-known-format-17", "opaque-value-99"):
        assert secret not in kept
    assert "hello" in kept
    assert ran(path, "--yes", "--replay", "r.json") == 0
    assert ran(path, "--replay", "r.json", "--offline") == 0
    assert ran("--replay", "r.json", "--yes") == 78
    assert "an argument is a credential" in capfd.readouterr().err


CALL = '{"step": "a", "server": "a", "tool": "t", "arguments": {}}'
TWICE = f'{{"format": "coretools-recording-1", "name": "x", "calls": [{CALL}, {CALL}]}}'


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "x"}', "\x80", TWICE])
def test_what_is_no_recording_is_refused(way: Path, capfd: Capture, content: str) -> None:
    """pipelines-17"""
    Path("r.json").write_text(content, encoding="latin-1")
    assert ran("--replay", "r.json", "--yes") == 78
    assert "r.json: no recording of coretools" in capfd.readouterr().err
    assert printed(capfd) == ""
    assert typed("call", "a", "echo", "text=x", "--yes", "--record", "/no/such/r.json") == 74
