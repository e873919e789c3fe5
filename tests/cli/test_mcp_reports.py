"""Forms of output, assertions and repetition on the command line (docs/specs/pipelines.md)."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from coretools.cli.mcp import options
from coretools.cli.mcp.options import ACTIONS
from coretools.cli.mcp.pipeline_options import FORMATS
from tests.checkout import TREE
from tests.cli.test_mcp import configured, typed
from tests.client.peers import misbehaving
from tests.pipelines.github_runner import commands, outputs
from tests.variables import variables

Captured = pytest.CaptureFixture[str]

HOSTILE = (
    "first\n::set-output name=stolen::x\n  ::add-mask::a\n##[set-output name=stolen]x\nmiddle ##[error]forged\n"
    "::stop-commands::mine\r::error::forged\n]]><testcase/>\x1b[2J\x00\x9b31m\u202e & \ufffe\U0001f600 "
    "</details> | `x` @all"
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "home").mkdir()
    (tmp_path / "project" / ".git").mkdir(parents=True)
    of_others = dict.fromkeys(
        ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
    )
    with variables(HOME=str(tmp_path / "home"), **of_others), chdir(tmp_path / "project"):
        ways = ("ok", "fails", "dies", "exits", "hangs", "flaky", "flaky-reader")
        servers = {way: misbehaving(way, str(tmp_path / "log")) for way in ways}
        configured(tmp_path / "home", servers)
        yield tmp_path / "home"


def printed(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("ok echo text=5 --assert $.text=='6'", 3, "expected $.text=='6', but $['text'] is \"5\""),
        ('ok echo text={"n":5} --assert $.data.n==5', 0, ""),
        ("fails echo text=bad --expect-error --assert $.text=='bad'", 0, ""),
        ("fails echo text=bad --assert $.ok", 3, "$['ok'] is false (the tool reported an error: bad)"),
    ],
)
def test_assertions_decide_about_the_exit_code(
    home: Path, capfd: pytest.CaptureFixture[str], words: str, code: int, message: str
) -> None:
    """pipelines-8: server, tool, what was expected and what came."""
    assert typed("call", *words.split(), "--yes") == code
    assert message in capfd.readouterr().err


def test_every_action_names_the_forms_that_it_has(home: Path, capsys: Captured) -> None:
    """pipelines-7"""
    assert set(FORMATS) - {"run"} <= set(ACTIONS)
    for words, choices in (
        ("list", "text, json, ndjson"),
        ("trust", "text, json"),
        ("ping", "text, json, ndjson, junit, github"),
    ):
        assert typed(words, "--output", "sarif") == 64
        assert f"--output sarif: `{words}` has no such output; choose {choices}\n" in capsys.readouterr().err
    assert typed("list", "--assert", "$.x") == 64
    assert "--assert: has no effect on `list`, only on call" in capsys.readouterr().err


def test_the_help_has_every_exit_code_of_the_table() -> None:
    """client-16"""
    table = (TREE / "docs" / "specs" / "client.md").read_text().partition("| code | cause |")[2].partition("\n- ")[0]
    codes = [int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(", ")]
    assert len(codes) == len(set(codes)) > 15
    text = " ".join((options.__doc__ or "").partition("Exit codes:")[2].split())
    shown = {int(code) for code in re.findall(r"(?:^|; )(\d+) ", text)}
    assert shown >= {code for code in codes if code < 128}
    assert {3, 4} <= set(codes) & shown
    assert "128 plus the number of the signal" in text


def test_events_are_one_line_each(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """pipelines-7: standard output has nothing else."""
    assert typed("call", "exits", "echo", "text=x", "--yes", "--output", "ndjson", "--retry", "1") == 69
    events = [json.loads(line) for line in printed(capfd).splitlines()]
    assert [one["event"] for one in events] == ["start", "retry", "start", "result", "end"]
    assert (events[3]["status"], events[3]["error"]["exitCode"], events[4]["exitCode"]) == ("failed", 69, 69)
    assert typed("tools", "ok", "--output", "ndjson") == 0
    assert [json.loads(line)["name"] for line in printed(capfd).splitlines()] == ["echo"]
    assert typed("ping", "ok", "exits", "--output", "ndjson") == 69
    events = [json.loads(line) for line in printed(capfd).splitlines()]
    assert [(one["event"], one.get("status")) for one in events] == [
        ("check", "passed"),
        ("check", "failed"),
        ("end", None),
    ]


def test_junit_is_what_parsers_take_whatever_a_server_sends(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """pipelines-10: the elements, attributes and counts of Jenkins' schema; characters that XML can't contain."""
    assert typed("call", "fails", "echo", f"text={HOSTILE.replace(chr(0), '')}", "--yes", "--output", "junit") == 1
    text = printed(capfd)
    assert not set(text) & set("\x1b\x9b\u202e\r")
    root = ET.fromstring(text)
    assert_junit(root, tests=1, failures=1, errors=0)
    assert "]]><testcase/>\\u001b[2J" in root.findtext(".//system-out", "")
    assert typed("ping", "ok", "exits", "--output", "junit") == 69
    assert_junit(ET.fromstring(printed(capfd)), tests=2, failures=0, errors=1)


def assert_junit(root: ET.Element, **counts: int) -> None:
    """By junit-10.xsd of Jenkins' xunit plugin, and what GitLab reads."""
    names = {
        "testsuites": {"name", "time", "tests", "failures", "errors"},
        "testsuite": {"name", "tests", "failures", "errors", "time", "skipped", "file"},
        "testcase": {"name", "time", "classname"},
        "failure": {"type", "message"},
        "error": {"type", "message"},
        "skipped": {"type", "message"},
        "system-out": set(),
    }
    inside = {
        "testsuites": {"testsuite"},
        "testsuite": {"testcase"},
        "testcase": set(names) - {"testsuites", "testsuite", "testcase"},
    }
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) <= names[element.tag]
        assert {child.tag for child in element} <= inside.get(element.tag, set())
    for suite in (root, root[0]):
        assert {name: int(suite.attrib[name]) for name in counts} == counts
        float(suite.attrib["time"])
    assert len(root.findall(".//testcase")) == counts["tests"]


def test_sarif_has_what_results_say_about_files(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """pipelines-11: a place for each object with a file and a message; what has none is no result."""
    found = {
        "issues": [
            {
                "path": "./src/a b.py",
                "line": 3,
                "column": 5,
                "message": "unused",
                "severity": "warning",
                "code": "F401",
            },
            {"file": "/abs/x.c", "line": 0, "message": "bad \x1b[2J", "line_text": "x"},
            {"path": "no message"},
            {"message": "no file", "line": 3},
        ]
    }
    words = ("call", "ok", "echo", f"text={json.dumps(found)}", "--yes", "--assert", "$.data.issues == 0")
    assert typed(*words, "--output", "sarif") == 3
    report = json.loads(printed(capfd))
    assert_sarif(report)
    first, second, failure = report["runs"][0]["results"]
    assert first == {
        "ruleId": "F401",
        "level": "warning",
        "message": {"text": "unused"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "src/a%20b.py"},
                    "region": {"startLine": 3, "startColumn": 5},
                }
            }
        ],
    }
    assert second["locations"][0]["physicalLocation"] == {"artifactLocation": {"uri": "file:///abs/x.c"}}
    assert failure["ruleId"] == "coretools/assertion-failed"
    assert typed("doctor", "--output", "sarif") == 69
    assert_sarif(json.loads(printed(capfd)))


def assert_sarif(report: dict[str, Any]) -> None:
    """What the schema of SARIF 2.1.0 requires of these members."""
    assert set(report) == {"$schema", "version", "runs"}
    assert report["version"] == "2.1.0"
    driver = report["runs"][0]["tool"]["driver"]
    known = [rule["id"] for rule in driver["rules"]]
    assert len(known) == len(set(known))
    for result in report["runs"][0]["results"]:
        assert set(result) <= {"ruleId", "level", "message", "locations"}
        assert result["level"] in ("error", "warning", "note", "none")
        assert result["ruleId"] in known
        assert result["message"]["text"]


def test_no_text_of_a_server_is_a_command_in_the_log_of_github(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """pipelines-12: in the log, in messages, in the summary and in outputs, by what the runner takes for commands."""
    hostile = HOSTILE.replace("\x00", "")
    issue = {"file": f"a,b:c%\n::error::x##[error]y{hostile}", "line": 2, "message": hostile, "code": hostile}
    text = json.dumps({"issues": [issue], "id": hostile})
    summary, output = home / "summary", home / "output"
    with variables(GITHUB_OUTPUT=str(output), GITHUB_STEP_SUMMARY=str(summary)):
        words = ("--yes", "--output", "github", "--set-output", "id=$.data.id")
        assert typed("call", "ok", "echo", f"text={text}", *words) == 0
        log = capfd.readouterr()
        assert [name for name, _, _ in commands(log.out)] == ["group", "stop-commands", "endgroup", "error"]
        assert commands(log.out)[3][1]["file"].startswith("a,b:c%\n::error::x")
        assert not set(log.out) & set("\x1b\x9b\u202e")
        assert outputs(output.read_bytes().decode()) == {"id": hostile}
        assert typed("call", "fails", "echo", f"text={hostile}", *words) == 1
        log = capfd.readouterr()
        assert [name for name, _, _ in commands(log.out)] == ["group", "stop-commands", "endgroup", "error"]
        assert commands(log.err) == []
        shown = summary.read_text()
        assert not set(shown) & set("`\x1b@")
        assert [line.count("|") for line in shown.splitlines() if line.startswith("|")] == [5] * 6
    for words in (("--output", "json"), ("--output", "ndjson"), ("--assert", "$.text == 'x'", "--output", "junit")):
        typed("call", "ok", "echo", "text=a ##[error]x", "--yes", *words)
        log = capfd.readouterr()
        assert commands(log.err) == []
        assert commands(log.out if "junit" not in words else "") == []
    assert typed("call", "ok", "echo", "text=x", "--yes", "--set-output", "a b=$") == 64
    assert typed("call", "ok", "echo", "text=x", "--yes", "--set-output", "id=$.text") == 78
    log = capfd.readouterr()
    assert "GITHUB_OUTPUT is not set" in log.err
    assert log.out == ""  # nothing was called


def test_a_call_is_repeated_only_if_that_repeats_no_effect(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """pipelines-13: not reached, or a tool that is declared read-only, or the user says so."""
    log = home.parent / "log"

    def attempts(way: str, *words: str) -> tuple[int, int]:
        log.write_text("")
        code = typed("call", way, "echo", "text=x", "--yes", "--retry", "1", *words)
        return code, log.read_text().count("called")

    assert attempts("flaky") == (69, 1)
    assert attempts("flaky", "--retry-any") == (0, 2)
    assert attempts("flaky-reader") == (0, 2)
    assert attempts("hangs", "--timeout", "0.2") == (124, 1)
    assert attempts("hangs", "--timeout", "0.2", "--retry-any") == (124, 2)
    assert "trying again in 0.5 s" in capfd.readouterr().err


def test_reports_are_written_beside_the_output(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """pipelines-7: whole or not at all."""
    words = ("call", "ok", "echo", "text=hello", "--yes")
    assert typed(*words, "--report", "junit=r.xml", "--report", "json=r.json") == 0
    assert printed(capfd) == "hello\n"
    assert_junit(ET.fromstring(Path("r.xml").read_text()), tests=1, failures=0, errors=0)
    assert json.loads(Path("r.json").read_text())["steps"][0]["status"] == "passed"
    assert typed(*words, "--report", "junit=/no/such/r.xml") == 74
    assert typed(*words, "--report", "html=r") == 64
    assert typed(*words, "--report", "json=/dev/full") == 74
    assert Path("/dev/full").is_char_device()
    printed(capfd)
    assert typed(*words, "--report", "junit=/dev/stdout") == 0
    assert "<testsuites" in printed(capfd)
    assert sorted(path.name for path in Path().iterdir()) == [".git", "r.json", "r.xml"]
