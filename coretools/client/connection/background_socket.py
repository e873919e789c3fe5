"""Where the background process listens, and how lines of JSON are exchanged with it. Without the SDK."""

import json
import os
import socket
import stat
import struct
from collections.abc import Mapping
from typing import Any

from coretools.client.common.state_files import state_path
from coretools.client.configuration.server_entries import ServerEntry
from coretools.errors import BadSetting, Unreachable

MAX_LINE_BYTES = 17 * 1024 * 1024
"""Of a line: the largest message of a server, and what surrounds it."""

ANSWER_SECONDS = 5.0
"""For a small answer of the background process."""

_UCRED = struct.Struct("3i")


def socket_path(environment: Mapping[str, str]) -> str:
    """Return the path of the socket: in the user's runtime directory, else in the state directory.

    Raises:
        BadSetting: there is neither, or the path is too long for a socket.
    """
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    path = os.path.join(runtime, "coretools", "mcp.sock") if _is_private(runtime) else None
    path = path or state_path(environment, "mcp.sock")
    if path is None:
        raise BadSetting("no HOME, no XDG_STATE_HOME and no XDG_RUNTIME_DIR: there is no place for the socket")
    if len(os.fsencode(path)) > 100:  # sun_path has 108 bytes (unix(7))
        raise BadSetting(f"{path}: too long for a socket; set XDG_RUNTIME_DIR to a shorter directory of your own")
    return path


def _is_private(directory: str) -> bool:
    try:
        status = os.stat(directory) if os.path.isabs(directory) else None
    except OSError:
        return False
    return status is not None and status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077


def key_of(entry: ServerEntry) -> str:
    """Identify a server in the background: an entry of one file, for one project."""
    return json.dumps([entry.name, entry.place.path, entry.project])


def is_own_peer(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return bool(_UCRED.unpack(data)[1] == os.geteuid())


def as_line(value: Mapping[str, Any]) -> bytes:
    """Return a value as one line."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def connect(path: str) -> socket.socket | None:
    """Connect to the background process; None if it does not run.

    Raises:
        Unreachable: somebody else listens there.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(path)
        if is_own_peer(connection):
            return connection
    except OSError:
        connection.close()
        return None
    connection.close()
    raise Unreachable(f"{path}: another user listens there; it was not used")


def ask(connection: socket.socket, request: Mapping[str, Any], seconds: float | None) -> dict[str, Any] | None:
    """Send a request and return the answer; None if the background process has ended or does not answer in time."""
    connection.settimeout(seconds)
    found = bytearray()
    try:
        connection.sendall(as_line(request))
        while not found.endswith(b"\n"):  # nothing follows an answer until we send more
            data = connection.recv(65536)
            if not data or len(found) > MAX_LINE_BYTES:
                return None
            found += data
        answer = json.loads(found)
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None
