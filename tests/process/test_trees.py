"""Every kind of process tree, with every way in which a run or its server can end: no process remains.

Through a real server and its pipes; remaining processes are counted in /proc by a number that only these trees have.
"""

import os
import secrets
import select
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coretools.confinement import landlock
from tests.docker_profile import under_profile
from tests.process.tree import HEADLESS
from tests.protocol.peer import ANSWER_SECONDS, Peer, peer, processes_with, stop, wait_until_none, wait_until_some

HYDRA = """
import os, select
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    select.poll().poll(5)
"""
"""Forks and exits every 5 ms, each time in a new session."""

RELAY = """
import os
reading, writing = os.pipe()
if os.fork():
    os.read(reading, 1)
    os._exit(0)
generation = 0
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    generation += 1
    if generation == 50:
        os.write(writing, b".")
"""
"""Forks and exits so fast that a scan of the processes often finds none. Its command ends after 50 generations; it goes
on."""

TRACED = """
import ctypes, os, signal
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
libc.prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
reading, writing = os.pipe()
traced = os.getpid()
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    libc.ptrace(0x4206, traced, 0, 0)
    os.write(writing, b".")
    signal.pause()
os.read(reading, 1)
os._exit(0)
"""
"""Ends while its child traces it (PTRACE_SEIZE): wait(2) reports the exit to the tracer only."""

FLEET = """
import os, signal, sys, time
alive = os.open(sys.argv[1], os.O_WRONLY)
nothing = os.open("/dev/null", os.O_RDWR)
go, gate = os.pipe()
begun, begin = os.pipe()
for _ in range(40):
    if os.fork() == 0:
        os.close(gate)
        for number in range(3):
            os.dup2(nothing, number)
        end, is_first = time.monotonic() + 120, True
        while time.monotonic() < end:
            try:
                if os.fork():
                    os._exit(0)
            except OSError:
                continue
            os.setpgid(0, 0)
            if is_first:
                os.write(begin, b".")
                os.read(go, 1)
                is_first = False
        os._exit(0)
for _ in range(40):
    os.read(begun, 1)
os.close(gate)
os.write(alive, b".")
signal.pause()
"""
"""Forty processes that each fork and exit in a loop, each time in a new process group. All hold a pipe, whose EOF shows
that none remains; a byte comes through it once each has forked. After the first fork they wait for each other: one that
went on would take the processor from the start of the rest, for a minute on a busy machine."""

TREES = {
    "child": ("exec sleep {mark}", 1),
    "background": ("sleep {mark} & sleep {mark} & wait", 2),
    "nohup": ("nohup sleep {mark} > /dev/null 2>&1 & wait", 1),
    "setsid": ("setsid sleep {mark} & wait", 1),
    "double fork": ("(setsid sh -c 'sleep {mark} & sleep {mark}' > /dev/null 2>&1 &); sleep {mark}", 3),
    "deaf to TERM": ("trap '' TERM INT HUP; while :; do sleep {mark}; done", 1),
    "cleared environment": ("env -i setsid sleep {mark} & wait", 1),
    "fork and exit": ("{python} -c {hydra} {mark} & sleep {mark}", 2),
    "without its first thread": ("exec {python} -c {headless} {mark}", 2),
    "60 sleepers": ("for i in $(seq 30); do setsid sleep {mark} & sleep {mark} & done; wait", 60),
}
"""Shell text, and the least number of its processes that carry the mark."""

ALIVE = sum(count for _, count in TREES.values())

DEADLINES = (2, 6, 18, 54)
"""Seconds, tried one after the other: a busy machine needs longer to start what is to be stopped."""


@pytest.fixture
def mark() -> str:
    """A number of seconds to sleep that no other process uses."""
    return f"1000.{secrets.randbelow(10**12):012}"


@pytest.fixture(params=["full", "landlock"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    before = under_profile() if request.param == "landlock" else ()
    with peer(tmp_path, "--limit", "grace_seconds=0.3", before=before) as client:
        client.start_session()
        diagnostics = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        yield client


def start_all(client: Peer, mark: str) -> list[int]:
    """Start every tree and wait until all processes run; return the requests."""
    requests = send_all(client, mark)
    wait_until_some(mark, ALIVE)
    return requests


def send_all(client: Peer, mark: str, **arguments: object) -> list[int]:
    """Send a call for every tree; return the requests."""
    requests = []
    for text, _ in TREES.values():
        line = text.format(mark=mark, python=sys.executable, hydra=shlex.quote(HYDRA), headless=shlex.quote(HEADLESS))
        whole = {"command": shlex.join(["sh", "-c", line]), **arguments}
        requests.append(client.send("tools/call", {"name": "run_command", "arguments": whole}))
    return requests


def test_cancel(server: Peer, mark: str) -> None:
    """confinement-20: a cancelled call leaves no process; the next call is answered."""
    for request in start_all(server, mark):
        server.notify("notifications/cancelled", {"requestId": request})
    assert wait_until_none(mark) == []
    assert server.call("run_command", command="echo on")["content"][0]["text"] == "on"


def test_deadline(server: Peer, mark: str) -> None:
    """confinement-20: a deadline leaves none, and the answer counts the stopped processes."""
    for seconds in DEADLINES:
        requests = send_all(server, mark, timeout_seconds=seconds)
        facts = [server.answer(request)["result"]["_meta"]["coretools/facts"] for request in requests]
        assert processes_with(mark) == []
        assert all(one["timed_out"] for one in facts)
        if facts[-1]["stragglers_stopped"] == 60:  # otherwise the machine was too slow to start them all in this time
            return
    pytest.fail("the sixty processes never all ran before their deadline")


def test_a_chain_of_forks(server: Peer, mark: str) -> None:
    """confinement-20: nor does a chain of processes that no scan of /proc sees; the end is proved, not observed."""
    for _ in range(12):
        result = server.call("run_command", command=shlex.join([sys.executable, "-c", RELAY, mark]))
        assert processes_with(mark) == []
        assert result["_meta"]["coretools/facts"]["stragglers_stopped"] >= 1


def test_a_command_that_is_traced_by_its_child(server: Peer, tmp_path: Path, mark: str) -> None:
    """confinement-20: nor does a child whose exit is not reported to its supervisor; other commands of the server
    continue."""
    line = {"name": "run_command", "arguments": {"command": "sh -c 'echo > up; read go < gate; echo $go'"}}
    os.mkfifo(tmp_path / "gate")
    other = server.send("tools/call", line)
    server.call("run_command", command=shlex.join([sys.executable, "-c", TRACED, mark]), timeout_seconds=4)
    assert processes_with(mark) == []
    (tmp_path / "gate").write_text("on\n")  # the open returns once it has a reader
    assert server.answer(other)["result"]["content"][0]["text"] == "on"


@pytest.mark.parametrize("end", ["deadline", "SIGTERM", "SIGKILL"])
def test_processes_that_fork_in_loops(server: Peer, tmp_path: Path, end: str) -> None:
    """confinement-20: nor do processes that fork faster than a scan can list them."""
    if landlock.abi() < landlock.SIGNAL_SCOPE_ABI:
        pytest.skip("needs signals confined by Landlock (Linux 6.12)")
    os.mkfifo(tmp_path / "alive")
    reading = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    words = {"command": shlex.join([sys.executable, "-c", FLEET, str(tmp_path / "alive")])}
    try:
        if end == "deadline":
            end_fleet_at_its_deadline(server, words, reading)
            assert came(reading, select.POLLHUP, seconds=0)
            assert server.call("run_command", command="echo on")["content"][0]["text"] == "on"
        else:
            server.send("tools/call", {"name": "run_command", "arguments": words})
            assert came(reading, select.POLLIN)
            assert os.read(reading, 2) == b"."
            stop(server.process, signal.Signals[end])
            assert came(reading, select.POLLHUP)
    finally:
        os.close(reading)


def end_fleet_at_its_deadline(server: Peer, words: dict[str, Any], reading: int) -> None:
    """Let a run reach its deadline after its whole fleet had started; its result reports the stop."""
    for seconds in DEADLINES:
        result = server.call("run_command", **words, timeout_seconds=seconds)
        if came(reading, select.POLLIN, seconds=0):
            assert os.read(reading, 2) == b"."
            assert result["_meta"]["coretools/facts"]["stragglers_stopped"] >= 1, result
            return
    raise AssertionError("the fleet never ran before its deadline")


def came(reading: int, event: int, seconds: float = ANSWER_SECONDS) -> bool:
    """Wait until a pipe has data (POLLIN) or its other end is closed (POLLHUP); return whether that happened."""
    poll = select.poll()
    poll.register(reading, event & select.POLLIN)
    return any(what & event for _, what in poll.poll(int(1000 * seconds)))


def test_client_goes_away(server: Peer, mark: str) -> None:
    """confinement-20: nor does a client that closes its end."""
    start_all(server, mark)
    assert server.end() == 0
    assert processes_with(mark) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_gets_a_signal(server: Peer, mark: str, number: signal.Signals) -> None:
    """confinement-20: nor does a signal that ends the server."""
    start_all(server, mark)
    assert stop(server.process, number) == 128 + number
    assert processes_with(mark) == []


def test_server_is_killed(server: Peer, mark: str) -> None:
    """confinement-20: nor does a killed server, which cleans up nothing itself."""
    start_all(server, mark)
    stop(server.process, signal.SIGKILL)
    assert wait_until_none(mark) == []
