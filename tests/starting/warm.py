"""`subprocess.Popen` and `run` for our own entry points: forked, where that is the same as started (ADR 0025).

What is started with more than our own settings changed in its environment, behind a program of others, or on a machine
other than Linux is started the ordinary way; so is everything with `CORETOOLS_COLD_TESTS=1`.
"""

import atexit
import inspect
import marshal
import os
import socket
import subprocess
import sys
from functools import cache
from threading import Lock
from typing import Any

from tests.checkout import TREE
from tests.starting import zygote

COLD = "CORETOOLS_COLD_TESTS"
"""Set: nothing is forked."""

ENTRY_POINTS = (
    "coretools.servers.workstation",
    "coretools.servers.http_server",
    "coretools.cli.main",
    "tests.protocol.featured",
    "tests.cli.controlled",
    "tests.hosting.own_program",
    "tests.undo.random_changes",
)

OWN = ("CORETOOLS_", "XDG_", "PYTHONPATH")
"""Beginnings of the names of variables that are read when an entry point runs. Any other may be read by an interpreter
or a library at its start, or be looked for in /proc by a test: a process for which one differs is started."""
READ_LATE = frozenset({
    *("HOME", "PATH", "TERM", "NO_COLOR", "BROWSER", "TMPDIR", "GNUPGHOME", "SSH_AUTH_SOCK"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_SEQUENCE_EDITOR"),
    *("CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT", "GOPATH", "NVM_DIR", "JAVA_HOME"),
    *("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_SERVICE_NAME"),
})  # fmt: skip
"""Further ones: no module that is imported before the fork uses what it finds in them then."""


_MAKING = Lock()


class Popen(subprocess.Popen[Any]):
    """Takes the arguments of `subprocess.Popen`."""

    def _execute_child(self, *arguments: Any, **named: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*arguments, **named).arguments
        divided = _divided(asked["args"]) if _is_forkable(asked) else None
        if divided is None:
            super()._execute_child(*arguments, **named)
            return
        wrapper, is_safe, words = divided
        pipes = [asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        theirs = [handle if handle >= 0 else number for number, handle in enumerate(pipes[i] for i in (0, 3, 5))]
        directory = os.fspath(asked["cwd"] or os.getcwd())
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        self.pid = _zygote(wrapper).fork((words, is_safe, directory, environment, asked["start_new_session"]), theirs)
        self._child_created = True
        self._close_pipe_fds(*pipes)


def run(words: list[str], *, timeout: float, check: bool = False, **named: Any) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run` with this module's `Popen`."""
    given = named.pop("input", None)
    if given is not None:
        named["stdin"] = subprocess.PIPE
    if named.pop("capture_output", False):
        named["stdout"] = named["stderr"] = subprocess.PIPE
    with Popen(words, **named) as process:
        try:
            out, err = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(words, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class _Zygote:
    def __init__(self, wrapper: tuple[str, ...]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*wrapper, sys.executable, "-m", zygote.__name__, str(theirs.fileno())],
                cwd=TREE,
                env={**_outer(os.environ), "PYTHONPATH": str(TREE)},
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        self._lock = Lock()
        atexit.register(self.close)

    def fork(self, request: tuple[Any, ...], standard: list[int]) -> int:
        """Fork a process that becomes the given command; returns its pid."""
        letter = os.memfd_create("request")
        try:
            os.write(letter, marshal.dumps(request))
            with self._lock:  # a test may start several at once
                socket.send_fds(self._control, [b"."], [letter, *standard])
                pid: int = marshal.loads(self._control.recv(zygote.REQUEST_BYTES))
        finally:
            os.close(letter)
        return pid

    def close(self) -> None:
        self._control.close()
        self._process.wait()


@cache
def _known(wrapper: tuple[str, ...]) -> _Zygote:
    return _Zygote(wrapper)


def _zygote(wrapper: tuple[str, ...]) -> _Zygote:
    with _MAKING:
        return _known(wrapper)


def _divided(words: list[str]) -> tuple[tuple[str, ...], bool, list[str]] | None:
    """What stands before one of our entry points, whether it has `-P`, and what follows `-m`; None where it is none.

    Before it may stand programs of the tests, which give something up and then become the next one: what they gave up
    a process has given up that is forked behind them.
    """
    for at, name in enumerate(words[2:]):
        if name in ENTRY_POINTS and words[at + 1] == "-m":
            is_safe = words[at] == "-P"
            wrapper = tuple(words[: at - is_safe])
            is_ours = not wrapper or (wrapper[:2] == (sys.executable, "-m") and wrapper[2].startswith("tests."))
            if is_ours and words[len(wrapper)] == sys.executable:
                return wrapper, is_safe, words[at + 2 :]
    return None


def _is_forkable(asked: dict[str, Any]) -> bool:
    if COLD in os.environ or not zygote.is_possible() or not isinstance(asked["args"], list) or asked["executable"]:
        return False
    if asked["pass_fds"] or asked["preexec_fn"] or not asked["close_fds"]:
        return False
    return asked["env"] is None or _outer(asked["env"]) == _outer(os.environ)


def _outer(environment: Any) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(OWN) and name not in READ_LATE}
