"""A hand-written client for what a well-behaved one never sends: raw lines over the pipes of a real server."""

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.checkout import TREE
from tests.starting import warm

ANSWER_SECONDS = 60.0

HANDSHAKE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "peer", "version": "1"},
}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "peer", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Peer:
    """One server process and the two pipes to it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._buffer = b""
        self._id = 0
        self._early: dict[object, dict[str, Any]] = {}

    def send_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params or {}}
        self.send_line(json.dumps(message).encode())
        return self._id

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send_line(json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}}).encode())

    def receive(self) -> dict[str, Any]:
        """Return the next message of any kind."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the server did not answer"
            data = os.read(fd, 1 << 20)
            if not data:
                raise EOFError("the server closed its end")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def answer(self, request_id: object) -> dict[str, Any]:
        """Return the response to a request; other responses are kept for later, notifications are dropped."""
        while request_id not in self._early:
            message = self.receive()
            if "id" in message:
                self._early[message["id"]] = message
        return self._early.pop(request_id)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.answer(self.send(method, params))

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Return the result of a tool, in the handshake era."""
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        result: dict[str, Any] = answer["result"]
        return result

    def start_session(self) -> None:
        self.ask("initialize", HANDSHAKE)
        self.notify("notifications/initialized")

    def end(self) -> int:
        """Close the server's input and wait for its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(ANSWER_SECONDS)


@contextmanager
def peer(
    *words: str | Path,
    environment: dict[str, str] | None = None,
    cwd: Path | None = None,
    before: Sequence[str] = (),
) -> Iterator[Peer]:
    """A workstation server, started as a desktop client starts it; `before` precedes its command line."""
    words = (*before, sys.executable, "-m", "coretools.servers.workstation", *map(str, words))
    with connected(started(*words, environment=environment, cwd=cwd)) as client:
        yield client


def started(*words: str, environment: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    """A program with a pipe for each standard stream, and these variables beside our own."""
    return warm.Popen(
        list(words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TREE), **(environment or {})},
        cwd=cwd,
    )


@contextmanager
def connected(process: subprocess.Popen[bytes]) -> Iterator[Peer]:
    """The peer of a process, which is killed at the end."""
    try:
        yield Peer(process)
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        process.wait()


def marker() -> str:
    """A number of seconds that no other process sleeps, by which a test finds its children."""
    return f"3{uuid.uuid4().int % 10**12:012d}.5"


def processes_with(marker: str) -> list[int]:
    """Processes whose command line contains the marker, without zombies."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if pid != os.getpid() and marker in command_line(pid)]


def command_line(pid: int) -> str:
    """The command line of a process, empty when it has ended; if its first thread ended, another thread shows it."""
    with suppress(OSError):
        for place in (f"/proc/{pid}", *Path(f"/proc/{pid}/task").iterdir()):
            with suppress(OSError):
                if line := Path(place, "cmdline").read_bytes():
                    return line.replace(b"\0", b" ").decode(errors="replace")
    return ""


def wait_until_none(marker: str) -> list[int]:
    """The processes with the marker that are left when none should be, after a bounded wait."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while (left := processes_with(marker)) and time.monotonic() < deadline:
        select.select([], [], [], 0.02)
    return left


def wait_until_some(marker: str, count: int = 1) -> None:
    """Wait until so many processes with the marker run."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while len(processes_with(marker)) < count:
        assert time.monotonic() < deadline, f"{marker}: not started"
        select.select([], [], [], 0.02)


def stop(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """Send a signal and wait for the exit code."""
    process.send_signal(number)
    return process.wait(ANSWER_SECONDS)
