"""Use the background process: begin it, let it start and stop servers, and attach to one that it runs."""

import fcntl
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from coretools.client.approval.decisions import launch_digest
from coretools.client.common.state_files import open_lock
from coretools.client.configuration.launch import BackgroundLaunch
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.connection.background_socket import ANSWER_SECONDS, ask, connect, new_secret, socket_path
from coretools.errors import CannotStart, InputOutput, Unreachable

BEGIN_SECONDS = 20.0
"""For the background process to begin, or for another line that begins it."""


def running_servers(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the servers in the background, each with its state.

    Raises:
        BadSetting, Unreachable: the socket can't be used.
    """
    answer = request(environment, {"do": "status"}, ANSWER_SECONDS)
    return [] if answer is None else list(answer.get("servers", ()))


def request(environment: Mapping[str, str], wanted: Mapping[str, Any], seconds: float | None) -> dict[str, Any] | None:
    """Ask the background process; None if it does not run.

    Raises:
        BadSetting, Unreachable: the socket can't be used.
    """
    connection = connect(socket_path(environment))
    if connection is None:
        return None
    with connection:
        return ask(connection, wanted, seconds)


def attach(
    environment: Mapping[str, str], entry: ServerEntry, containment: str | None = None, *, samples: bool = False
) -> BackgroundLaunch | None:
    """Attach to a server that runs in the background with exactly this entry; None if there is none.

    `containment` is the confinement chosen now; None keeps the one chosen at the start. `samples` wants a server that
    was told that it may ask for a model.
    """
    path = socket_path(environment)
    connection = connect(path) if os.path.lexists(path) else None
    if connection is None:
        return None
    wanted: dict[str, Any] = {
        "do": "attach",
        "containment": containment,
        "samples": samples,
        "key": entry.key,
        "digest": launch_digest(entry, environment),
    }
    answer = ask(connection, wanted, ANSWER_SECONDS)
    if answer is None or not answer.get("attached"):
        connection.close()
        return None
    return BackgroundLaunch(connection=connection)


def start(environment: Mapping[str, str], wanted: Mapping[str, Any], idle_seconds: float) -> dict[str, Any]:
    """Start a server in the background; begin the background process if it does not run.

    Raises:
        BadSetting, CannotStart, InputOutput, Unreachable: it can't be begun.
    """
    path = socket_path(environment)
    until = time.monotonic() + BEGIN_SECONDS
    while time.monotonic() < until:
        connection = connect(path)
        if connection is None:
            begin(path, idle_seconds)
            continue
        with connection:
            answer = ask(connection, wanted, None)  # the server's own deadline counts
        if answer is not None:
            return answer
    raise Unreachable(f"the background process does not answer; {path}.log says why")


def begin(path: str, idle_seconds: float) -> None:
    """Begin the background process, unless another line does so now. Its socket accepts connections at once.

    The process holds the lock until it exits, so a socket whose lock is free is stale.

    Raises:
        InputOutput: a file can't be written.
    """
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        lock = open_lock(f"{path}.lock")
    except OSError as error:
        raise InputOutput(f"{path}.lock: cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.05)  # another line begins it, or it is about to end
        return
    else:
        _begin_with(path, lock, idle_seconds)
    finally:
        os.close(lock)


def _begin_with(path: str, lock: int, idle_seconds: float) -> None:
    mask = os.umask(0o177)
    listener = socket.socket(socket.AF_UNIX)
    try:
        new_secret(path)  # before anybody can connect
        if os.path.lexists(path):  # left over: nobody holds the lock
            os.unlink(path)
        listener.bind(path)
        log = os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        listener.close()
        raise InputOutput(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        os.umask(mask)
    listener.listen()
    with listener:
        try:
            _spawn((listener.fileno(), lock), [path, str(idle_seconds)], log)
        finally:
            os.close(log)


def _spawn(kept: Sequence[int], words: Sequence[str], log: int) -> None:
    """Start the process in a session of its own, with the descriptors `kept`; nobody here waits for it."""
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
    files = [nothing, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
    for number in kept:
        os.set_inheritable(number, True)
    argv = [sys.executable, "-P", "-m", "coretools.client.background.process", *map(str, kept), *words]
    try:
        os.posix_spawn(sys.executable, argv, os.environ, file_actions=files, setsid=True)
    except OSError as error:
        raise CannotStart(f"the background process can't be started: {error.strerror}") from error
    finally:
        for number in kept:
            os.set_inheritable(number, False)
