"""What servers write to standard error, and their log messages: one bounded file for each entry.

A file that can't be written, on a full disk say, never disturbs the server.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import mcp_types as types
from mcp.client.session import LoggingFnT

from coretools.client.common.state_files import is_own_file
from coretools.client.configuration.server_entries import ServerEntry
from coretools.own_state import state_path
from coretools.redaction.redactor import Redactor

MAX_BYTES = 512 * 1024
"""Largest size of a file; then it becomes the older of two, and a new one begins."""

MAX_LINE = 4096
"""Characters of a line."""


class LogDirectory:
    """The files of a user, in the state directory."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Without a home, nothing is kept."""
        self._path = state_path(environment, "mcp-logs")

    def path_of(self, entry: ServerEntry) -> str | None:
        """Return the file of an entry; None if nothing can be kept."""
        if self._path is None:
            return None
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", entry.name)[:64]
        return os.path.join(self._path, f"{plain}-{hashlib.sha256(entry.key.encode()).hexdigest()[:12]}.log")

    def open(self, entry: ServerEntry, redactor: Redactor) -> "ServerLog":
        """Return what writes the file of an entry; the file is made with the first line."""
        return ServerLog(self.path_of(entry), redactor)

    def lines(self, entry: ServerEntry, count: int) -> list[str]:
        """Return the last lines of an entry, the oldest first."""
        path = self.path_of(entry)
        texts: list[str] = []
        for one in (f"{path}.1", path) if path else ():
            texts += _read(one, 0).decode("utf-8", "replace").splitlines()
        return texts[-count:] if count else []

    def follower(self, entry: ServerEntry) -> "LogFollower":
        """Return what finds the lines that are written from now on."""
        return LogFollower(self.path_of(entry))


class LogFollower:
    """Finds new lines of a file, also after it was replaced by a new one."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._position = self._inode = 0
        self.new_lines()

    def new_lines(self) -> list[str]:
        """Return the whole lines that were written since the last call."""
        if self._path is None:
            return []
        rest = b""
        try:
            inode = os.stat(self._path).st_ino
        except OSError:
            return []
        if self._inode and inode != self._inode:
            rest, self._position = _read(f"{self._path}.1", self._position), 0
        self._inode = inode
        data = _read(self._path, self._position)
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        return (rest + whole).decode("utf-8", "replace").splitlines()


class ServerLog:
    """The file of one server."""

    def __init__(self, path: str | None, redactor: Redactor) -> None:
        self._path = path
        self._redactor = redactor
        self._fd = -1
        self._open_line = b""

    def errors(self, data: bytes) -> None:
        """Take what the program wrote to standard error; an unfinished line waits for its end."""
        *lines, self._open_line = (self._open_line + data).split(b"\n")
        if len(self._open_line) > MAX_LINE:
            lines.append(self._open_line)
            self._open_line = b""
        for line in lines:
            self._write("stderr", line.decode("utf-8", "replace"))

    def message(self, params: types.LoggingMessageNotificationParams) -> None:
        """Take a log message."""
        data = params.data if isinstance(params.data, str) else json.dumps(params.data, ensure_ascii=False)
        self._write(params.level, f"{params.logger}: {data}" if params.logger else data)

    def recorded(self, callback: LoggingFnT | None) -> LoggingFnT:
        """Return a callback of the SDK that keeps a message and then calls `callback`."""

        async def record(params: types.LoggingMessageNotificationParams) -> None:
            self.message(params)
            if callback is not None:
                await callback(params)

        return record

    def close(self) -> None:
        """Write an unfinished line, and close the file."""
        if self._open_line:
            self.errors(b"\n")
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, source: str, text: str) -> None:
        if self._path is None or not text.strip():
            return
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = " ".join(self._redactor.text(text).splitlines())[:MAX_LINE]
        try:
            os.write(self._opened(self._path), f"{time} {source} {line}\n".encode("utf-8", "replace"))
        except OSError:  # a full disk: the log has a gap
            return

    def _opened(self, path: str) -> int:
        """Return the file, a new one if it has its full size or another process has begun a new one."""
        if self._fd < 0:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            self._fd = _open(path)
        if os.fstat(self._fd).st_size >= MAX_BYTES:
            fcntl.flock(self._fd, fcntl.LOCK_EX)  # of two writers one renames
            if os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(self._fd)):
                os.replace(path, f"{path}.1")
            os.close(self._fd)
            self._fd = -1
            self._fd = _open(path)
        return self._fd


def _open(path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    handle = os.open(path, flags, 0o600)
    if not is_own_file(os.fstat(handle), hidden_bits=0o022):
        os.close(handle)
        raise PermissionError(errno.EPERM, "others can write it, or it has another name", path)
    return handle


def _read(path: str, start: int) -> bytes:
    """Return what a file has from `start` on; nothing if there is none."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            file.seek(start)
            return file.read(2 * MAX_BYTES)
    except OSError:
        return b""
