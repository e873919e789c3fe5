"""A client written by hand: JSON lines over pipes, so that what is timed is the server.

The SDK's client costs more than the servers it would measure. Lines are built before the clock starts and read as JSON
after it has stopped.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.failure import NotMeasured

TREE = Path(__file__).parent.parent

ANSWER_MILLISECONDS = 60_000
READ_BYTES = 1 << 20

CLIENT = {"name": "benchmarks", "version": "1"}
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""Goes with every request of the stateless revision, under `_meta` (2026-07-28, basic/lifecycle)."""


class Era(Enum):
    """How the connection is opened; the first request decides."""

    HANDSHAKE = "handshake"
    STATELESS = "stateless"


class Peer:
    """One server process and the two pipes to it, started by the constructor. What it logs goes to our stderr."""

    def __init__(
        self, words: Sequence[str], era: Era, *, bytecode: str, program: Sequence[str] = (sys.executable, "-m")
    ) -> None:
        self._era = era
        self._partial = b""
        self._last_id = 0
        self._process = subprocess.Popen(
            [*program, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment_with(bytecode),
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin.fileno()
        self._output = self._process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._output, select.POLLIN)

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def open(self) -> None:
        """Open the connection: everything before the first call."""
        if self._era is Era.HANDSHAKE:
            self.ask("initialize", HANDSHAKE)
            os.write(self._input, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        else:
            self.ask("server/discover", {})

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send one request; returns its result."""
        results: list[dict[str, Any]] = []
        self._exchange(method, params, count=1, results=results)
        return results[0]

    def time_call(self, tool: str, arguments: dict[str, Any], *, count: int = 1) -> float:
        """Seconds from the first byte written to the last answer read, with `count` calls in flight at once.

        Raises:
            NotMeasured: a call was refused.
        """
        results: list[dict[str, Any]] = []
        seconds = self._exchange("tools/call", {"name": tool, "arguments": arguments}, count=count, results=results)
        for result in results:
            if result.get("isError") or not result["content"]:
                raise NotMeasured(f"{tool}: {result}")
        return seconds

    def time_beside(self, call: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]], *, reads: int) -> float:
        """Seconds of one call while this many of another are in flight, each followed by the next.

        Raises:
            NotMeasured: the call was refused.
        """
        started = time.perf_counter()
        os.write(self._input, self._call(call))
        wanted, waiting, result = self._last_id, reads + 1, None
        os.write(self._input, b"".join(self._call(other) for _ in range(reads)))
        while waiting:
            for line in self._answers(1):
                waiting -= 1
                if json.loads(line)["id"] == wanted:
                    seconds, result = time.perf_counter() - started, _result(line)
                elif result is None:
                    os.write(self._input, self._call(other))
                    waiting += 1
        if result is None or result.get("isError"):
            raise NotMeasured(f"{call[0]}: {result}")
        return seconds

    def time_list(self, method: str, kind: str, *, least: int) -> float:
        """Seconds from the first byte of a request for a list written to its answer read.

        Raises:
            NotMeasured: the list has fewer items.
        """
        results: list[dict[str, Any]] = []
        seconds = self._exchange(method, {}, count=1, results=results)
        if len(results[0][kind]) < least:
            raise NotMeasured(f"{method}: {len(results[0][kind])} items, {least} wanted")
        return seconds

    def close(self) -> None:
        """Close the server's input and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(ANSWER_MILLISECONDS / 1000)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, method: str, params: dict[str, Any], *, count: int, results: list[dict[str, Any]]) -> float:
        lines = b"".join(self._line(method, params) for _ in range(count))
        started = time.perf_counter()
        # One write: a client with many calls in flight has them all on the wire before it reads.
        os.write(self._input, lines)
        answers = self._answers(count)
        seconds = time.perf_counter() - started
        results += [_result(answer) for answer in answers]
        return seconds

    def _call(self, call: tuple[str, dict[str, Any]]) -> bytes:
        return self._line("tools/call", {"name": call[0], "arguments": call[1]})

    def _line(self, method: str, params: dict[str, Any]) -> bytes:
        self._last_id += 1
        if self._era is Era.STATELESS:
            params = {**params, "_meta": ENVELOPE}
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def _answers(self, count: int) -> list[bytes]:
        answers: list[bytes] = []
        pieces, missing = [self._partial], count
        while missing > 0:
            if not self._poll.poll(ANSWER_MILLISECONDS):
                raise NotMeasured(f"no answer within {ANSWER_MILLISECONDS / 1000:.0f} s: {self._process.args!r}")
            data = os.read(self._output, READ_BYTES)
            if not data:
                raise NotMeasured(f"the server has ended: {self._process.args!r}")
            missing -= data.count(b"\n")
            pieces.append(data)
            if missing <= 0:
                *lines, self._partial = b"".join(pieces).split(b"\n")
                answers += [line for line in lines if b'"id"' in line]  # no notifications
                pieces, missing = [self._partial], count - len(answers)
        return answers


def environment_with(bytecode: str) -> dict[str, str]:
    """Our environment, with bytecode in a directory of the run if one is given; the warm-up fills it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    prefix = {"PYTHONPYCACHEPREFIX": bytecode} if bytecode else {}
    return {**kept, "PYTHONPATH": str(TREE), **prefix}


def _result(line: bytes) -> dict[str, Any]:
    message = json.loads(line)
    if "result" not in message:
        raise NotMeasured(f"refused: {line[:500]!r}")
    result: dict[str, Any] = message["result"]
    return result
