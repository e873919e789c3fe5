"""The workstation server as a desktop client starts it: a real process, real pipes (docs/specs/workstation.md)."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coretools.process.fork_server.client import MAX_WAITING, MIN_WAITING
from tests.conftest import Figure
from tests.protocol.peer import (
    ENVELOPE,
    HANDSHAKE,
    TREE,
    Peer,
    marker,
    peer,
    processes_with,
    stop,
    wait_until_none,
    wait_until_some,
)

SNAPSHOT = Path(__file__).parent / "tools.json"

MOST_TOOLS = 40
"""Some clients take no more, and models choose worse among more. There is no limit of bytes (ADR 0062)."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "README.md").write_text("# Sample\nhello\n")
    return root


def text(result: dict[str, Any]) -> str:
    message: str = result["content"][0]["text"]
    return message


def test_the_handshake_era_is_served(project: Path) -> None:
    """workstation-1: every handshake revision, with instructions that name the root."""
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        with peer(project) as client:
            answer = client.ask("initialize", {**HANDSHAKE, "protocolVersion": version})["result"]
            assert answer["protocolVersion"] == version
            assert answer["serverInfo"]["name"] == "coretools"
            assert str(project) in answer["instructions"]
            client.notify("notifications/initialized")
            assert "hello" in text(client.call("read_file", path="README.md"))
            assert client.end() == 0


def test_the_stateless_era_is_served(project: Path) -> None:
    """workstation-1: every request carries its envelope, and there is no handshake."""
    with peer(project) as client:
        found = client.ask("server/discover", {"_meta": ENVELOPE})["result"]
        assert "2026-07-28" in found["supportedVersions"]
        listed = client.ask("tools/list", {"_meta": ENVELOPE})["result"]
        assert listed["ttlMs"] > 0
        call = {"name": "read_file", "arguments": {"path": "README.md"}, "_meta": ENVELOPE}
        assert "hello" in text(client.ask("tools/call", call)["result"])
        assert client.end() == 0


def test_the_list_of_tools_is_short_and_equals_its_snapshot(project: Path, figure: Figure) -> None:
    """workstation-2: at most 40 tools, the same in both eras; a change of the public surface shows in review."""
    with peer(project) as client:
        newer = client.ask("tools/list", {"_meta": ENVELOPE})
    with peer(project) as client:
        client.start_session()
        answer = client.ask("tools/list")
    size, size_of_newer = (
        len(json.dumps(one["result"]["tools"], separators=(",", ":"), ensure_ascii=False).encode())
        for one in (answer, newer)
    )
    figure(f"tools of the default profile: {size} bytes, {len(answer['result']['tools'])} tools")
    assert size_of_newer == size
    assert len(answer["result"]["tools"]) <= MOST_TOOLS
    if os.environ.get("CORETOOLS_UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(json.dumps(answer["result"]["tools"], indent=1, sort_keys=True) + "\n")
    assert answer["result"]["tools"] == json.loads(SNAPSHOT.read_text())


def test_every_tool_has_its_four_hints_and_a_description(project: Path) -> None:
    """declarations-1: no default of a client applies."""
    with peer(project, "--profile", "all") as client:
        client.start_session()
        tools = client.ask("tools/list")["result"]["tools"]
    for tool in tools:
        explicit = {"readOnlyHint", "destructiveHint", "openWorldHint"}
        explicit |= set() if tool["annotations"]["readOnlyHint"] else {"idempotentHint"}
        assert set(tool["annotations"]) == explicit
        assert tool["description"]


def test_read_only_takes_precedence_over_every_profile(project: Path) -> None:
    """declarations-7: tools that change something are neither listed nor callable, and the roots are read-only too."""
    with peer(project, "--read-only", "--profile", "all") as client:
        client.start_session()
        tools = client.ask("tools/list")["result"]["tools"]
        assert all(tool["annotations"]["readOnlyHint"] for tool in tools)
        answer = client.ask("tools/call", {"name": "write_file", "arguments": {"path": "x", "content": "y"}})
    assert answer["error"]["code"] == -32602
    assert "read-only" in answer["error"]["message"]
    assert not (project / "x").exists()


BAD_LINES: dict[str, tuple[bytes, int]] = {
    "malformed JSON": (b'{"jsonrpc": "2.0", "id": 1, "method"', -32700),
    "invalid UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xc3\x28"}', -32700),
    "no object": (b'"hello"', -32600),
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    "wrong types": (b'{"jsonrpc":"2.0","id":41,"method":["ping"]}', -32600),
    "params of another type": (b'{"jsonrpc":"2.0","id":41,"method":"tools/call","params":"x"}', -32600),
    "name of another type": (b'{"jsonrpc":"2.0","id":41,"method":"tools/call","params":{"name":5}}', -32602),
    "arguments of another type": (
        b'{"jsonrpc":"2.0","id":41,"method":"tools/call","params":{"name":"read_file","arguments":[1]}}',
        -32602,
    ),
    "unknown method": (b'{"jsonrpc":"2.0","id":41,"method":"tools/destroy"}', -32601),
    "unknown tool": (
        b'{"jsonrpc":"2.0","id":41,"method":"tools/call","params":{"name":"rm_rf","arguments":{}}}',
        -32602,
    ),
    "NUL bytes": (b"\0" * 100, -32700),
    "100,000 brackets": (b"[" * 100_000, -32700),
}


def test_bad_input_is_answered_and_the_next_call_works(project: Path) -> None:
    """workstation-5, workstation-10: an error each, and the server answers the next call."""
    with peer(project) as client:
        client.start_session()
        for case, (line, code) in BAD_LINES.items():
            client.send_line(line)
            assert client.receive()["error"]["code"] == code, case
            assert "hello" in text(client.call("read_file", path="README.md")), case


def test_a_line_of_64_mb_is_an_error_and_costs_no_memory(project: Path) -> None:
    """workstation-4: the limit applies, the next call works, the server did not keep the line."""
    with peer(project) as client:
        client.start_session()
        before = peak_memory(client)
        for _ in range(64):
            assert client.process.stdin is not None
            client.process.stdin.write(b"x" * (1 << 20))
        client.send_line(b"")
        answer = client.receive()
        assert answer["error"]["code"] == -32600
        assert "line too long" in answer["error"]["message"]
        assert "hello" in text(client.call("read_file", path="README.md"))
        assert peak_memory(client) - before < 40 * 1024


def peak_memory(client: Peer) -> int:
    """Peak resident memory of the server in KiB (proc(5), VmHWM)."""
    status = Path(f"/proc/{client.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def test_invalid_arguments_are_an_error_result(project: Path) -> None:
    """workstation-10, workstation-11: the model reads it and tries again; the kind is for programs."""
    with peer(project) as client:
        client.start_session()
        result = client.call("read_file", pth="README.md")
    assert result["isError"]
    assert result["_meta"]["coretools/error"] == "invalid-arguments"
    assert "unknown argument 'pth'; did you mean 'path'?" in text(result)


def test_each_result_is_sent_once(project: Path) -> None:
    """declarations-5: text tools send no structured copy."""
    with peer(project) as client:
        client.start_session()
        result = client.call("read_file", path="README.md")
    assert "structuredContent" not in result
    assert len(result["content"]) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_server_and_its_children(project: Path, number: signal.Signals, code: int) -> None:
    """workstation-9: while a command runs, and with none of its processes left."""
    seconds = marker()
    with peer(project) as client:
        client.start_session()
        client.send("tools/call", {"name": "run_command", "arguments": {"command": f"sh -c 'sleep {seconds} & wait'"}})
        wait_until_some(f"sleep {seconds}", 2)
        assert stop(client.process, number) == code
    assert processes_with(f"sleep {seconds}") == []


def test_the_end_of_input_ends_the_server_and_its_children(project: Path) -> None:
    """workstation-6, workstation-9: a client that closes its end."""
    seconds = marker()
    with peer(project) as client:
        client.start_session()
        command = f"sh -c 'trap \"\" TERM; sleep {seconds}; sleep {seconds}'"
        client.send("tools/call", {"name": "run_command", "arguments": {"command": command}})
        wait_until_some(f"sleep {seconds}", 2)
        assert client.end() == 0
    assert processes_with(f"sleep {seconds}") == []


def test_a_killed_server_leaves_no_process(project: Path) -> None:
    """process: the server cannot handle SIGKILL; its watchdog notices."""
    seconds = marker()
    with peer(project) as client:
        client.start_session()
        for command in (f"sleep {seconds}", f"sh -c 'nohup sleep {seconds} & sleep {seconds}'"):
            client.send("tools/call", {"name": "run_command", "arguments": {"command": command}})
        wait_until_some(f"sleep {seconds}", 4)
        client.process.kill()
        client.process.wait()
        assert wait_until_none(f"sleep {seconds}") == []


def test_cancelling_a_call_terminates_its_children_and_nothing_else(project: Path) -> None:
    """The next call is answered; a cancelled one is not (basic/utilities/cancellation)."""
    seconds = marker()
    with peer(project) as client:
        client.start_session()
        arguments = {"command": f"sleep {seconds}"}
        request_id = client.send("tools/call", {"name": "run_command", "arguments": arguments})
        wait_until_some(f"sleep {seconds}")
        client.notify("notifications/cancelled", {"requestId": request_id})
        assert wait_until_none(f"sleep {seconds}") == []
        assert "hello" in text(client.call("read_file", path="README.md"))


def test_a_timeout_keeps_the_output_and_leaves_no_process(project: Path) -> None:
    """docs/adr/0007: a timeout is a result."""
    seconds = marker()
    with peer(project) as client:
        client.start_session()
        result = client.call("run_command", command=f"sh -c 'echo early; sleep {seconds}'", timeout_seconds=3)
        assert "early" in text(result)
        assert result["_meta"]["coretools/facts"]["timed_out"] is True
        assert processes_with(f"sleep {seconds}") == []


def test_a_background_child_does_not_delay_the_result(project: Path) -> None:
    """A grandchild that keeps the pipe open is terminated; the test's bound is far below its lifetime."""
    seconds = marker()
    with peer(project) as client:
        client.start_session()
        result = client.call("run_command", command=f"sh -c 'sleep {seconds} & echo done'")
        assert "done" in text(result)
        assert result["_meta"]["coretools/facts"]["duration_seconds"] < 1
        assert processes_with(f"sleep {seconds}") == []


def test_stray_prints_and_children_never_touch_the_wire(project: Path) -> None:
    """workstation-3: a child that writes to and reads from the standard descriptors of its parent finds nothing."""
    with peer(project) as client:
        client.start_session()
        command = "sh -c 'cat; echo \"{}\" >/proc/$PPID/fd/1; echo out; echo err >&2'"
        assert "out" in text(client.call("run_command", command=command))
        assert "hello" in text(client.call("read_file", path="README.md"))


def test_200_concurrent_commands_are_all_answered_and_descriptors_are_released(project: Path) -> None:
    """None is lost, nothing leaks: the pool may be larger than before, two sockets for each process."""
    with peer(project) as client:
        client.start_session()
        client.call("run_command", command="true")
        before = open_descriptors(client)
        sent = [
            client.send("tools/call", {"name": "run_command", "arguments": {"command": "sleep 0.2"}})
            for _ in range(200)
        ]
        results = [client.answer(request_id)["result"] for request_id in sent]
        assert all(result["_meta"]["coretools/facts"]["exit_code"] == 0 for result in results)
        client.call("run_command", command="true")
        assert open_descriptors(client) <= before + 2 * (MAX_WAITING - MIN_WAITING)


def open_descriptors(client: Peer) -> int:
    return len(os.listdir(f"/proc/{client.process.pid}/fd"))


def test_a_child_that_floods_both_pipes_ends_and_memory_is_bounded(project: Path) -> None:
    """64 MB alternately on stdout and stderr: no deadlock, and less than 20 MB of the server's memory."""
    flood = "import os\nfor _ in range(1024):\n    os.write(1, b'o' * 65536)\n    os.write(2, b'e' * 65536)\n"
    (project / "flood.py").write_text(flood)
    with peer(project) as client:
        client.start_session()
        client.call("run_command", command="true")
        before = peak_memory(client)
        result = client.call("run_command", command="python3 flood.py")
        grown = peak_memory(client) - before
    assert result["_meta"]["coretools/facts"]["exit_code"] == 0
    assert "left out" in text(result)
    assert grown < 20 * 1024, f"{grown} KiB"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["/does/not/exist"], "/does/not/exist"),
        (["--limit", "run_seconds=soon", "."], "run_seconds=soon"),
        (["--limit", "speed=9", "."], "limit speed"),
        (["/proc"], "/proc"),
    ],
)
def test_an_invalid_setting_ends_the_start(project: Path, words: list[str], sentence: str) -> None:
    """workstation-13: code 78, a sentence on stderr, nothing on stdout."""
    with peer(*words, cwd=project) as client:
        out, message = client.process.communicate(timeout=60)
        assert client.process.returncode == 78
    assert out == b""
    assert sentence in message.decode()
    assert "Traceback" not in message.decode()


def test_an_invalid_variable_ends_the_start(project: Path) -> None:
    """workstation-13: the message names it."""
    with peer(project, environment={"CORETOOLS_PROFILE": "root"}) as client:
        _, message = client.process.communicate(timeout=60)
        assert client.process.returncode == 78
    assert b"CORETOOLS_PROFILE: unknown profile 'root'; choose read, dev, ci or all" in message


def test_the_home_directory_as_default_root_is_refused(project: Path) -> None:
    """A client that starts its servers in / or in the home directory must not open either by accident."""
    with peer(cwd=project, environment={"HOME": str(project)}) as client:
        _, message = client.process.communicate(timeout=60)
        assert client.process.returncode == 78
    assert b"home directory" in message
    with peer(cwd=Path("/")) as client:
        _, message = client.process.communicate(timeout=60)
        assert client.process.returncode == 78


def test_logs_go_to_stderr_one_line_each(project: Path) -> None:
    """workstation-12: the start and what is missing; a forged line in a path stays one line."""
    with peer(project, environment={"CORETOOLS_LOG_LEVEL": "debug"}) as client:
        client.start_session()
        client.call("read_file", path="x\n2026-01-01 ERROR forged \x1b[31m")
        assert client.process.stdin is not None
        _, message = client.process.communicate(timeout=60)
    assert str(project).encode() in message
    assert b"missing protections" in message
    assert b"\x1b" not in message
    assert not [line for line in message.splitlines() if line.startswith(b"2026-01-01")]


def test_a_log_that_nobody_reads_blocks_no_call(project: Path) -> None:
    """workstation-12: what the pipe does not take is dropped and counted; every line is answered all the same."""
    with peer(project) as client:
        client.start_session()
        for _ in range(1500):
            client.send_line(b"none")
            assert client.receive()["error"]["code"] == -32700
        assert client.process.stderr is not None
        os.read(client.process.stderr.fileno(), 1 << 20)
        client.send_line(b"none")
        client.receive()
        assert b"log records were lost" in os.read(client.process.stderr.fileno(), 1 << 20)


@pytest.mark.parametrize(("closed", "code"), [("<&-", 78), (">&-", 78), ("2>&-", 0), ("<&- >&- 2>&-", 78)])
def test_a_closed_standard_stream_is_refused_or_replaced(project: Path, closed: str, code: int) -> None:
    """workstation-3: stdin and stdout are required; stderr is replaced. No file gets the number of either."""
    script = f'exec "$1" -m coretools.servers.workstation "$2" {closed}'
    words = ["sh", "-c", script, "sh", sys.executable, project]
    ended = subprocess.run(words, cwd=TREE, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (code, b"")
    assert b"Traceback" not in ended.stderr


def test_requests_piped_from_a_file_do_not_break_the_server(project: Path) -> None:
    """workstation-6: a shell that pipes requests in and closes gets a clean exit."""
    with peer(project) as client:
        client.start_session()
        client.send("tools/call", {"name": "read_file", "arguments": {"path": "README.md"}})
        assert client.end() == 0


def test_too_few_descriptors_make_an_error_and_not_an_end(project: Path) -> None:
    """A full descriptor table fails the call that needs one; later calls work again."""
    with peer(project) as client:
        client.start_session()
        client.call("run_command", command="true")
        limits = resource.prlimit(client.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(client.process.pid, resource.RLIMIT_NOFILE, (open_descriptors(client), limits[1]))
        assert client.call("run_command", command="true")["isError"]
        assert client.call("read_file", path="README.md")["content"]
        resource.prlimit(client.process.pid, resource.RLIMIT_NOFILE, limits)
        assert "hello" in text(client.call("read_file", path="README.md"))
        assert client.call("run_command", command="true")["_meta"]["coretools/facts"]["exit_code"] == 0


@pytest.mark.parametrize(
    "module", ["coretools.servers.workstation", "coretools.servers.http_server --check", "coretools.cli.main tools"]
)
def test_a_start_in_a_deleted_directory_ends_with_a_message(tmp_path: Path, module: str) -> None:
    """workstation-13: the shell's directory may have been replaced by a deployment."""
    script = f'mkdir gone && cd gone && rmdir ../gone && exec "$0" -m {module}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TREE)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (78, False), done.stderr
    assert "the working directory cannot be found" in done.stderr
