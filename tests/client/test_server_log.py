"""The files that keep what servers write (docs/specs/client.md)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import mcp_types as types
import pytest

from coretools.cli.main import main
from coretools.client.configuration.server_entries import ServerEntry, load_configuration
from coretools.client.connection.server_log import MAX_BYTES, LogDirectory
from coretools.redaction.redactor import Redactor
from tests.checkout import TREE
from tests.client.peers import misbehaving
from tests.starting import warm
from tests.variables import variables


@pytest.fixture
def entry(tmp_path: Path) -> ServerEntry:
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"a/../b": misbehaving("content")}}))
    return load_configuration(str(tmp_path), {}, file="servers.json").entries[0]


def test_a_log_is_bounded_and_can_be_followed_beyond_its_bound(tmp_path: Path, entry: ServerEntry) -> None:
    """client-26: two files of half a mebibyte; the last lines are there, and none is missed or repeated."""
    directory = LogDirectory({"HOME": str(tmp_path)})
    log = directory.open(entry, Redactor(["secret-word"]))
    follower = directory.follower(entry)
    seen: list[str] = []
    for number in range(2_000):
        log.errors(f"{number} {'x' * 1000} secret-word\n".encode())
        seen += follower.new_lines()
    log.message(types.LoggingMessageNotificationParams(level="error", logger="db", data={"at": 1}))
    log.errors(b"no end")
    log.close()
    seen += follower.new_lines()
    folder = tmp_path / ".local/state/coretools/mcp-logs"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2 * MAX_BYTES + 10_000
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in folder.iterdir())
    assert len(seen) == 2_002
    assert directory.lines(entry, 3) == seen[-3:]
    assert [line.split(" ", 1)[1] for line in seen[-2:]] == ['error db: {"at": 1}', "stderr no end"]
    assert "secret-word" not in "".join(seen)


def test_new_lines_are_printed_as_they_come(tmp_path: Path, entry: ServerEntry) -> None:
    """client-26: until Ctrl-C; terminal escapes are escaped."""
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(TREE)}
    log = LogDirectory(environment).open(entry, Redactor())
    log.errors(b"earlier\nbefore\n")
    words = ("mcp", "logs", "a/../b", "--follow", "--lines", "1", "--config", "servers.json")
    with warm.Popen(
        [sys.executable, "-m", "coretools.cli.main", *words],
        cwd=tmp_path,
        env={**os.environ, **environment, "XDG_STATE_HOME": ""},
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline().endswith(" stderr before\n")
        log.errors(b"\x1b[2Jafter\n")
        assert follower.stdout.readline().endswith(r" stderr \x1b[2Jafter" + "\n")
        follower.send_signal(signal.SIGINT)
    assert follower.returncode == 130


def test_a_server_completes_values(tmp_path: Path, entry: ServerEntry, capsys: pytest.CaptureFixture[str]) -> None:
    """client-27: of a prompt's argument, and of a variable of a resource."""
    place = entry.place.path
    with variables(HOME=str(tmp_path), XDG_STATE_HOME=None, XDG_RUNTIME_DIR=None):
        for words, code in (
            (["prompt", "ask", "about", "pa"], 0),
            (["resource", "note://{name}", "name"], 0),
            (["tool", "x", "y"], 64),
        ):
            with pytest.raises(SystemExit) as ended:
                main(["mcp", "complete", entry.name, *words, "--config", place, "--trust-project"])
            assert ended.value.code == code
            written = capsys.readouterr()
            if code == 0:
                assert written.out.splitlines()[0] == "paris"
                assert "\x1b" not in written.out
                assert "2 of 9 values" in written.err
            else:
                assert "'tool': write prompt or resource" in written.err
