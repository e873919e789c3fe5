"""A `coretools-http` process: its URL, its log, and its end."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coretools.web.common.config import VARIABLES
from tests.checkout import TREE
from tests.starting import warm

SECONDS = 60.0

ANONYMOUS = {"CORETOOLS_HTTP_AUTH__ANONYMOUS": "user"}
"""Variables of a server that is configured to need no token."""

_SAID = "listening on "


@dataclass(frozen=True)
class HttpServer:
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The log lines so far."""
        return _whole_lines(self.log)

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Each completed call: the tool, and its outcome."""
        return [(line["tool"], line["outcome"]) for line in self.lines if line["logger"] == "coretools.calls"]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextmanager
def http_server(
    folder: Path, *words: str | Path, environment: Mapping[str, str] | None = None, descriptors: int = 0
) -> Iterator[HttpServer]:
    """One on a free port of 127.0.0.1, until the end of the block. Its log goes to a file in `folder`.

    With `descriptors` it may have so many.

    It knows nothing of the variables by which whoever runs the tests has configured his own.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CORETOOLS_", VARIABLES))}
    log = folder / "coretools-http.log"
    limited = ["sh", "-c", 'ulimit -n "$0"; exec "$@"', str(descriptors)] if descriptors else []
    with log.open("wb") as written:
        process = warm.Popen(
            [*limited, sys.executable, "-m", "coretools.servers.http_server", "--port", "0", *map(str, words)],
            cwd=TREE,
            env={**inherited, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
        )
    try:
        yield HttpServer(_where(process, log), process, log)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def _where(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        for line in _whole_lines(log):
            if line["message"].startswith(_SAID):
                url: str = line["message"].removeprefix(_SAID)
                return url
        assert not ended, log.read_text()
        select.select([], [], [], 0.02)
    raise AssertionError(log.read_text())


def _whole_lines(log: Path) -> list[dict[str, Any]]:
    """The lines that are JSON, without other output on standard error (a traceback of a failed start)."""
    whole, _, _ = log.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
