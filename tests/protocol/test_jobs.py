"""Runs over a real server, from the client's side: tools, resources, both eras, and the end (docs/specs/runs.md)."""

import os
import re
import signal
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import TREE
from tests.protocol.peer import ENVELOPE, Peer, marker, peer, processes_with, wait_until_none, wait_until_some
from tests.starting import warm

NETWORK = {"CORETOOLS_NETWORK": "allow"}
"""The policy of the server whose command opens a port."""

LONG = 60


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Peer]:
    (tmp_path / "page.txt").write_text("hello from a run")
    with peer(tmp_path, environment=NETWORK) as connected:
        connected.start_session()
        yield connected
        assert connected.end() == 0


def text(result: dict[str, Any]) -> str:
    output: str = result["content"][0]["text"]
    return output


def facts(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = result["_meta"]["coretools/facts"]
    return found


def test_a_development_server_is_started_used_and_stopped(client: Peer, tmp_path: Path) -> None:
    """runs-1, runs-15, runs-18: it reports its address, serves a page, and leaves no process."""
    mark = uuid.uuid4().hex
    command = f"{sys.executable} -u -m http.server 0 --bind 127.0.0.1 --directory {tmp_path} --protocol HTTP/1.0"
    run = facts(client.call("run_command", command=f"sh -c 'exec {command} # {mark}'", wait_seconds=0))["run"]
    listening = client.call("wait_run", run=run, pattern=r"Serving HTTP on \S+ port \d+", seconds=LONG)
    assert facts(listening)["kind"] == "pattern"
    port = re.search(r"port (\d+)", text(listening))
    assert port is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/page.txt", timeout=60) as page:
        assert page.read() == b"hello from a run"
    seen = client.call("wait_run", run=run, pattern="GET /page.txt", seconds=LONG)
    assert '"GET /page.txt HTTP/1.1" 200' in text(seen)
    stopped = client.call("stop_run", run=run)
    assert facts(stopped)["running"] is False
    assert facts(stopped)["signal"] == "SIGTERM"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/page.txt", timeout=20)
    assert set(processes_with(str(tmp_path))) <= {client.process.pid}


def test_a_python_prompt_on_a_terminal_answers_each_line(client: Peer) -> None:
    """runs-17, runs-20, runs-21: two lines, two answers, and a screen that shows both."""
    started = client.call("run_command", command="python3 -q -i", terminal="60x10", stdin="", wait_seconds=0)
    if started["isError"] and started["_meta"]["coretools/error"] == "unsupported":
        pytest.skip("needs terminals")
    run = facts(started)["run"]
    assert facts(client.call("wait_run", run=run, pattern=">>> ", seconds=LONG))["kind"] == "pattern"
    # To the next prompt, not to the answer alone: a terminal echoes input at its cursor.
    prompt = {"run": run, "pattern": "^>>> $", "seconds": LONG}
    answer = client.call("write_run", text="6 * 7\n", **prompt)
    assert "6 bytes given, matched: >>>" in text(answer)
    assert "42" in text(answer)
    size = client.call("write_run", text="import os; os.get_terminal_size()\n", **prompt)
    assert "columns=60, lines=10" in text(size)
    screen = text(client.call("read_run", run=run.removeprefix("run-"))).split("\n")[1:]
    assert screen[0] == ">>> 6 * 7"
    assert screen[1] == "42"
    assert len(screen) <= 10
    assert "6 * 7" in text(client.call("read_run", run=run, offset="1@0"))
    # Not at a prompt: there the interpreter may miss the key until the next one comes. Not in a system call
    # either: a key that comes just before the call only sets a flag, and the call waits on.
    waits = "print('go' + '!') or any(False for _ in iter(int, 1))\n"
    assert facts(client.call("write_run", text=waits, **prompt | {"pattern": "go!"}))["kind"] == "pattern"
    # The end of input too is sent at the prompt: the interpreter leaves the terminal mode that has one,
    # and an end of input sent before has no effect (n_tty).
    assert "KeyboardInterrupt" in text(client.call("write_run", text="\x03", **prompt))
    client.call("write_run", run=run, text="", end=True)
    ended = client.call("wait_run", run=run, seconds=LONG)
    assert facts(ended)["kind"] == "exit"


def test_the_output_of_a_run_is_a_resource(client: Peer) -> None:
    """runs-13, interoperability-14: listed, readable from any byte offset, and unknown otherwise."""
    run = facts(
        client.call("run_command", command="sh -c 'echo first; echo second; exec tail -f /dev/null'", wait_seconds=0)
    )["run"]
    client.call("wait_run", run=run, pattern="second", seconds=LONG)
    uri = f"coretools://runs/{run}/output"
    listed = client.ask("resources/list")["result"]["resources"]
    assert [(one["uri"], one["size"], one["mimeType"]) for one in listed] == [(uri, 13, "text/plain")]
    *_, template = client.ask("resources/templates/list")["result"]["resourceTemplates"]
    assert template["uriTemplate"] == "coretools://runs/{run}/output{?offset}"
    whole = client.ask("resources/read", {"uri": uri})["result"]["contents"]
    assert whole == [{"uri": uri, "mimeType": "text/plain", "text": "first\nsecond\n[bytes 0 to 13 of 13]"}]
    part = client.ask("resources/read", {"uri": f"{uri}?offset=6"})["result"]["contents"]
    assert part[0]["text"] == "second\n[bytes 6 to 13 of 13]"
    for bad in (
        "coretools://runs/run-00000000/output",
        f"{uri}?offset=-1",
        f"{uri}?offset=x",
        f"{uri}?offset=0&limit=1",
        f"{uri}?offset=0&offset=1",
        "coretools://other",
        "x",
    ):
        refused = client.ask("resources/read", {"uri": bad})["error"]
        assert refused["code"] == (-32602 if "offset" in bad else -32002)
        assert refused["data"] == {"uri": bad}


def test_a_read_of_a_resource_is_bounded(tmp_path: Path) -> None:
    """runs-13, answers-4: with the offset of the rest; a truncated result names it."""
    with peer(tmp_path, "--limit", "read_bytes=1000", "--limit", "output_bytes=500") as client:
        client.start_session()
        result = client.call("run_command", command="seq 1 1000")
        uri = f"coretools://runs/{facts(result)['run']}/output"
        assert uri in text(result)
        first = client.ask("resources/read", {"uri": uri})["result"]["contents"][0]["text"]
        assert first.endswith("[bytes 0 to 1000 of 3893; goes on at offset=1000]")
        assert client.end() == 0


def test_the_stateless_era_has_the_same_runs_and_resources(tmp_path: Path) -> None:
    """runs-13: a run continues between independent requests, and no cache may keep the list."""
    with peer(tmp_path) as client:

        def call(name: str, **arguments: object) -> dict[str, Any]:
            params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
            answer: dict[str, Any] = client.ask("tools/call", params)["result"]
            return answer

        run = facts(call("run_command", command="sh -c 'read a; echo got $a'", stdin="", wait_seconds=0))["run"]
        listed = client.ask("resources/list", {"_meta": ENVELOPE})["result"]
        assert [one["name"] for one in listed["resources"]] == [run]
        assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")
        assert text(call("write_run", run=run, text="it\n", seconds=LONG)).endswith("got it")
        uri = f"coretools://runs/{run}/output"
        read = client.ask("resources/read", {"uri": uri, "_meta": ENVELOPE})["result"]
        assert read["contents"][0]["text"].startswith("got it\n")
        assert client.end() == 0


def test_progress_comes_while_a_call_waits(client: Peer) -> None:
    """runs-16: seconds, bytes and the last line, for clients that sent a token."""
    params = {
        "name": "run_command",
        "arguments": {"command": "sh -c 'echo working; sleep 1.3'"},
        "_meta": {"progressToken": "t"},
    }
    request_id = client.send("tools/call", params)
    seen = []
    while (message := client.receive()).get("id") != request_id:
        seen.append(message["params"])
    assert text(message["result"]) == "working"
    assert seen
    for one in seen:
        assert re.fullmatch(r"[1-9]\d* s, (?:0 bytes|8 bytes: working)", one["message"])  # busy: not started yet
        assert one["progress"] < one["total"] == 120


@pytest.mark.parametrize("end", ["input", "TERM", "KILL"])
def test_a_run_ends_with_its_server(tmp_path: Path, end: str) -> None:
    """runs-5: whether the client disconnects, or the server is terminated or killed."""
    seconds = marker()
    with peer(tmp_path, "--limit", "grace_seconds=0.3") as client:
        client.start_session()
        script = f"sh -c 'trap \"\" TERM; setsid sleep {seconds} & nohup sleep {seconds} & sleep {seconds}; wait'"
        assert facts(client.call("run_command", command=script, wait_seconds=0))["running"]
        wait_until_some(f"sleep {seconds}", 4)
        if end == "input":
            assert client.end() == 0
        else:
            client.process.send_signal(signal.SIGTERM if end == "TERM" else signal.SIGKILL)
            client.process.wait(60)
        assert wait_until_none(f"sleep {seconds}") == []


def test_cancelling_a_wait_does_not_stop_the_run(client: Peer) -> None:
    """runs-5: only the call ends."""
    run = facts(client.call("run_command", command="tail -f /dev/null", wait_seconds=0))["run"]
    request_id = client.send("tools/call", {"name": "wait_run", "arguments": {"run": run, "seconds": LONG}})
    client.notify("notifications/cancelled", {"requestId": request_id})
    assert facts(client.call("read_run", run=run))["running"] is True


def test_on_the_command_line_a_run_is_stopped_with_a_note(tmp_path: Path) -> None:
    """runs-22: the result on standard output, the note on standard error, no process left."""
    seconds = marker()
    words = ["call", "run_command", f"command=sh -c 'echo on; exec sleep {seconds}'", "wait_seconds=0.5"]
    done = warm.run(
        [sys.executable, "-m", "coretools.cli.main", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TREE)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert re.fullmatch(r"\[run-[0-9a-f]{8} running, .*\]\non\n", done.stdout)
    assert re.search(r"coretools: run-[0-9a-f]{8} was still running and is stopped", done.stderr)
    assert processes_with(f"sleep {seconds}") == []
