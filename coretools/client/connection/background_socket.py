"""Where the background process listens, and how lines of JSON are exchanged with it. Without the SDK."""

import json
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from secrets import token_hex
from typing import Any

from coretools.client.common.state_files import is_own_file, read_state_file, replace_state_file
from coretools.errors import BadSetting, Unreachable
from coretools.own_state import runtime_path, state_path

MAX_LINE_BYTES = 17 * 1024 * 1024
"""Longest line: the largest message of a server, and what surrounds it."""

ANSWER_SECONDS = 5.0
"""How long a small answer of the background process may take."""

_UCRED = struct.Struct("3i")


def socket_path(environment: Mapping[str, str]) -> str:
    """Return the path of the socket: in the user's runtime directory, else in the state directory.

    Raises:
        BadSetting: there is neither, or the path is too long for a socket.
    """
    path = runtime_path(environment, "mcp.sock") or state_path(environment, "mcp.sock")
    if path is None:
        raise BadSetting("no HOME, no XDG_STATE_HOME and no XDG_RUNTIME_DIR: there is no place for the socket")
    if len(os.fsencode(path)) > 100:  # sun_path has 108 bytes (unix(7))
        raise BadSetting(f"{path}: too long for a socket; set XDG_RUNTIME_DIR to a shorter directory of your own")
    return path


def new_secret(path: str) -> None:
    """Write the secret that clients of the socket at a path have to send, in place of an earlier one.

    The user of a process is no proof: a command in the sandbox is a process of this user too. It can't read the secret.

    Raises:
        OSError: it can't be written.
    """
    replace_state_file(f"{path}.secret", token_hex(32).encode())


def read_secret(path: str) -> bytes:
    """Return the secret of the socket at a path.

    Raises:
        Unreachable: there is none that only this user can read.
    """
    try:
        data, status = read_state_file(f"{path}.secret")
    except OSError as error:
        raise Unreachable(f"{path}.secret: cannot be read: {error.strerror}") from error
    if not data or not is_own_file(status, hidden_bits=0o077):
        raise Unreachable(f"{path}.secret: others can read it, or it has another name")
    return data


def is_own_peer(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user."""
    return _peer(connection)[1] == os.geteuid()


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    """Return process, user and group at the other end."""
    process, user, group = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return process, user, group


def as_line(value: Mapping[str, Any]) -> bytes:
    """Return a value as one line."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def connect(path: str) -> socket.socket | None:
    """Connect to the background process, and send the secret; None if it does not run.

    Raises:
        Unreachable: somebody else listens there, or the secret is gone.
    """
    connection = socket.socket(socket.AF_UNIX)
    with ExitStack() as undo:
        undo.callback(connection.close)
        try:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(path)
            peer, user, _ = _peer(connection)
            if user != os.geteuid():
                raise Unreachable(f"{path}: another user listens there; it was not used")
            connection.sendall(_secret_of(path, peer) + b"\n")
        except OSError:
            return None
        undo.pop_all()
    return connection


def _secret_of(path: str, peer: int) -> bytes:
    try:
        return read_secret(path)
    except Unreachable as error:
        raise Unreachable(f"{error}; end the background process (kill {peer}) and start it again") from error


def ask(connection: socket.socket, request: Mapping[str, Any], seconds: float | None) -> dict[str, Any] | None:
    """Send a request and return the answer; None if the background process has ended or does not answer in time."""
    connection.settimeout(seconds)
    received = bytearray()
    try:
        connection.sendall(as_line(request))
        while not received.endswith(b"\n"):  # nothing follows an answer until we send more
            data = connection.recv(65536)
            if not data or len(received) > MAX_LINE_BYTES:
                return None
            received += data
        answer = json.loads(received)
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None
