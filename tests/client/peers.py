"""Entries for servers of the tests, and hubs with them."""

import json
import os
import select
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from coretools.client.configuration.server_entries import load_configuration
from coretools.client.connection.options import ConnectionOptions
from coretools.client.connection.server_connection import Connection
from coretools.client.hub import open_hub
from tests.checkout import TREE
from tests.variables import NO_LOGIN_SHELL

WAIT_SECONDS = 60.0


def misbehaving(way: str, log: str = os.devnull) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(TREE / "tests" / "client" / "misbehaving.py"), way, log]}


def workstation(root: Path) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": ["-P", "-m", "coretools.servers.workstation", "--log-level", "error", str(root)],
        "env": {"PYTHONPATH": str(TREE), **NO_LOGIN_SHELL},
    }


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def hub(
    folder: Path, servers: Mapping[str, Any], **options: Any
) -> AbstractAsyncContextManager[Mapping[str, Connection]]:
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    found = load_configuration(str(folder), environment(folder), file=str(file))
    return open_hub(found.effective, environment(folder), options=ConnectionOptions(**options))


class EventLog:
    """A FIFO to which a server writes lines: each is an event to wait for."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "events")
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self._text = ""

    def wait_for(self, start: str) -> str:
        """Return the rest of the next line that begins with `start`. Blocks, bounded."""
        while True:
            line, newline, rest = self._text.partition("\n")
            if newline:
                self._text = rest
                if line.startswith(start):
                    return line.removeprefix(start).strip()
                continue
            ready, _, _ = select.select([self._fd], [], [], WAIT_SECONDS)
            assert ready, f"no {start!r} in {WAIT_SECONDS} s"
            self._text += os.read(self._fd, 65536).decode()

    def rest(self) -> str:
        """Return the lines that nobody waited for."""
        ready, _, _ = select.select([self._fd], [], [], 0)
        text = self._text + (os.read(self._fd, 65536).decode() if ready else "")
        self._text = ""
        return text

    def close(self) -> None:
        os.close(self._fd)


def wait_gone(pid: int) -> bool:
    """Wait for the end of a process that is no child of ours."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], WAIT_SECONDS)[0])
    finally:
        os.close(handle)
