"""A real Redis: a child with a socket in its own folder, which can be killed, suspended and restarted."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.clients.conftest import without

PROGRAM = "redis-server"

WITH_ITS_PARENT = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
"""Prefix of a child's command: the child ends with the tests, however these end."""

CHECKPOINTS = 5
"""Time for an event loop to read the end of its connections."""


class RedisServer:
    """One redis-server without persistence: its data is gone when it is killed."""

    def __init__(self, *words: str) -> None:
        if shutil.which(PROGRAM) is None:
            without(f"no {PROGRAM}: apt-get install redis-server")
        self._folder = tempfile.mkdtemp(prefix="redis-")
        self._words = words
        self.socket = Path(self._folder) / "socket"
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start, and return when it answers."""
        where = ("--port", "0", "--unixsocket", str(self.socket), "--dir", self._folder)
        self._process = subprocess.Popen(
            [*WITH_ITS_PARENT, PROGRAM, *where, "--save", "", "--appendonly", "no", *self._words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        output = b""
        for line in self._process.stdout:
            output += line
            if b"eady to accept connections" in line:
                return
        raise AssertionError(output.decode())

    def kill(self) -> None:
        """Kill it, as when the machine fails."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.socket.unlink(missing_ok=True)

    async def restart(self) -> None:
        """Kill and start again; between the two, clients have time to see the end of their connections."""
        self.kill()
        for _ in range(CHECKPOINTS):
            await anyio.lowlevel.checkpoint()
        self.start()

    def hold(self) -> None:
        """Suspend it: it accepts bytes and answers nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._folder)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """For a test that damages it; a restart empties it."""
    server = RedisServer()
    yield server
    server.close()
