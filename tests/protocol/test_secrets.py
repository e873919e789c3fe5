"""A real server with secrets in its environment: its log and its results (docs/specs/redaction.md)."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coretools.app.assembly import output_redactor
from coretools.config.operator_policy import OperatorPolicy
from coretools.config.settings import Settings
from tests.protocol.peer import ANSWER_SECONDS, Peer, peer

PLANTED = {
    "AWS_SECRET_ACCESS_KEY": "planted-secret-01",
    "AWS_SESSION_TOKEN": "planted-secret-02",
    "GITHUB_TOKEN": "planted-secret-03",
    "GH_TOKEN": "planted-secret-04",
    "GITLAB_TOKEN": "planted-secret-05",
    "ANTHROPIC_API_KEY": "planted-secret-06",
    "OPENAI_API_KEY": "planted-secret-07",
    "NPM_TOKEN": "planted-secret-08",
    "PYPI_TOKEN": "planted-secret-09",
    "DATABASE_URL": "postgres://user:planted-secret-10@db/x",
    "DB_PASSWORD": "planted-secret-11",
    "MYSQL_PWD": "planted-secret-12",
    "PGPASSWORD": "planted-secret-13",
    "SSHPASS": "planted-secret-14",
    "VAULT_TOKEN": "planted-secret-15",
    "DOCKER_AUTH_CONFIG": "planted-secret-16",
    "CORETOOLS_TOKEN": "planted-secret-17",
    "LC_API_TOKEN": "planted-secret-18",
    "XDG_SESSION_TOKEN": "planted-secret-19",
    "CARGO_REGISTRY_TOKEN": "planted-secret-20",
}
VALUE = PLANTED["GITHUB_TOKEN"]
ON = {"CORETOOLS_REDACT_OUTPUT": "1"}
GITHUB = "ghp_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zAbcde"
PRINTS = f"import sys; print('it is', '{VALUE[:8]}' + '{VALUE[8:]}'); print('DB_' 'PASSWORD=hunter2', file=sys.stderr)"


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"])


def log_of(client: Peer) -> str:
    """End the server and return its whole log."""
    assert client.end() == 0
    assert client.process.stderr is not None
    return client.process.stderr.read().decode()


def python(text: str) -> str:
    return f'"{sys.executable}" -c "{text}"'


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def granting(project: Path) -> Iterator[Peer]:
    """A server that passes one secret on and redacts nothing."""
    with peer(project, "--pass-env", "GITHUB_TOKEN", environment=PLANTED) as client:
        client.start_session()
        yield client
        assert client.end() == 0


@pytest.fixture(scope="module")
def redacting(project: Path) -> Iterator[Peer]:
    """A server that redacts outputs, set by its variable, and keeps little of them."""
    with peer(project, "--limit", "output_bytes=1000", environment={**PLANTED, **ON}) as client:
        client.start_session()
        yield client
        assert client.end() == 0


@pytest.mark.parametrize("tool", ["run_command", "ci_build"])
def test_a_command_sees_no_secret_of_the_server_but_the_granted_one(granting: Peer, tool: str) -> None:
    """redaction-11: by effect; a grant is an exact name."""
    output = text_of(granting.call(tool, command="env"))
    assert "PATH=" in output
    assert [line for line in output.splitlines() if "planted-secret" in line] == [f"GITHUB_TOKEN={VALUE}"]


def test_the_log_contains_no_secret(tmp_path: Path) -> None:
    """redaction-10: known by value and by name, at the lowest level; the rest of the record is there.

    redaction-12: outputs are redacted by the flag.
    """
    root = tmp_path / f"of {VALUE} DB_PASSWORD=hunter2"
    root.mkdir()
    with peer(root, "--log-level", "debug", "--redact-output", environment=PLANTED) as client:
        client.start_session()
        assert_is_redacted(text_of(client.call("run_command", command=python(PRINTS))))
        client.call("run_command", command=f"echo --token s3cr3tw0rd {VALUE}")
        client.call("read_file", path=f"{VALUE}.txt")
        client.send_line(b'{"jsonrpc": "2.0", "method": "' + VALUE.encode() + b'"')
        client.receive()
        log = log_of(client)
    assert "of [redacted:environment] DB_PASSWORD=[redacted:password]" in log
    assert "planted-secret" not in log
    assert "hunter2" not in log
    assert "s3cr3tw0rd" not in log


def test_nothing_is_redacted_by_default(granting: Peer) -> None:
    """redaction-12: an agent that debugs needs the output; the operator decides."""
    output = text_of(granting.call("run_command", command=python(PRINTS)))
    assert f"it is {VALUE}" in output
    assert "DB_PASSWORD=hunter2" in output


def assert_is_redacted(output: str) -> None:
    """That both streams are, one by value and one by name."""
    assert "it is [redacted:environment]" in output
    assert "DB_PASSWORD=[redacted:password]" in output


def test_output_is_redacted_if_the_operator_asks(redacting: Peer) -> None:
    """redaction-12: by variable; by flag in the test of the log."""
    assert_is_redacted(text_of(redacting.call("run_command", command=python(PRINTS))))


@pytest.mark.parametrize(("by_flag", "by_file"), [(True, False), (False, True), (True, True), (False, False)])
def test_flag_and_file_each_suffice(by_flag: bool, by_file: bool) -> None:
    """redaction-12: neither disables what the other enables."""
    policy = OperatorPolicy(redact_output=by_file)
    redactor = output_redactor(Settings(roots=("/r",), redact_output=by_flag, policy=policy), PLANTED)
    assert (redactor is not None) == (by_flag or by_file)


def test_builds_and_test_reports_are_redacted_too(redacting: Peer, project: Path) -> None:
    """redaction-12: text and structured content; the counts stay."""
    (project / "test_it.py").write_text(
        "import unittest\nclass T(unittest.TestCase):\n"
        f"  def test_a(self):\n    self.fail('{VALUE}')\nunittest.main()\n"
    )
    assert "it is [redacted:environment]" in text_of(redacting.call("ci_build", command=python(PRINTS)))
    tested = redacting.call("ci_test", command=f'"{sys.executable}" test_it.py')
    assert VALUE not in json.dumps(tested)
    assert tested["structuredContent"]["counts"]["failed"] == 1
    assert "[redacted:environment]" in tested["structuredContent"]["failures"][0]["message"]


def test_a_token_cut_by_a_gap_is_removed(redacting: Peer) -> None:
    """redaction-8: in a long output whose middle is dropped."""
    output = text_of(redacting.call("run_command", command=f"seq -f '{GITHUB}%.0f' 1 4000"))
    assert "[redacted:github]\n" in output
    assert "left out" in output
    assert "aB3dE5gH7" not in output
    assert "W8xY0zA" not in output


def test_a_run_that_outlives_its_call_is_redacted(redacting: Peer) -> None:
    """redaction-12: its output has no credential, however it is read, and in whatever pieces it arrived."""
    halves = f"import sys; o = sys.stdout; [(o.write(c), o.flush()) for c in '{VALUE}\\n']; input()"
    run = _run_of(redacting.call("run_command", command=python(halves), wait_seconds=0, stdin=""))
    waited = text_of(redacting.call("wait_run", run=run, pattern="redacted:environment", seconds=ANSWER_SECONDS))
    assert "matched: [redacted:environment]" in waited
    assert VALUE not in waited
    assert VALUE not in text_of(redacting.call("read_run", run=run, offset="1@0"))
    assert VALUE not in json.dumps(redacting.ask("resources/read", {"uri": f"coretools://runs/{run}/output"}))
    redacting.call("stop_run", run=run)


def _run_of(result: dict[str, Any]) -> str:
    """The run's id: the first word of the headline."""
    return text_of(result).lstrip("[").split()[0]


def test_files_are_not_redacted(redacting: Peer, project: Path) -> None:
    """redaction-13: what is read may be written back, so nothing in it is replaced."""
    (project / "config.ini").write_text(f"password = hunter2\ntoken = {VALUE}\n")
    assert f"password = hunter2\ntoken = {VALUE}" in text_of(redacting.call("read_file", path="config.ini"))
    assert VALUE in text_of(redacting.call("search_text", pattern="token ="))
