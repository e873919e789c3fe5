"""The command's own process, from the fork to the exec of its program.

It is forked early, restricts itself, and waits for its argv, so that a call pays for an exec and nothing else. Runs in
a child of its supervisor; standard library only, no threads.
"""

import fcntl
import marshal
import os
import resource
import signal
import socket
import termios
import warnings  # noqa: F401  # os.get_exec_path imports it, too late to be found in the view
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from coretools.confinement import landlock, seccomp, syscalls
from coretools.process.fork_server.messages import EXECUTES, RecordedChanges, SocketRules, SpawnRequest
from coretools.process.fork_server.tcp_listeners import ListenerTable

_HANDLES = 6
"""Descriptors that come with a request: its file, the three standard streams, the working directory, and the status
pipe, whose end of file tells the server that the program runs."""
_REQUEST_BYTES = 64


class Restrictions(NamedTuple):
    """Restrictions of every command of a fork server; created once."""

    ruleset: int
    """Descriptor of the Landlock ruleset; -1 for none."""
    filter: bytes
    """seccomp filter; empty for none."""
    limits: Sequence[tuple[int, int]]
    """Resource limits (`resource.RLIMIT_*`)."""
    processes: int
    """Limit of processes of one command."""
    by_path: bool
    """Enter the working directory by its path: the descriptor belongs to another view."""
    last_resort: Callable[[], None] | None
    """Kills a tree that forks faster than it can be killed, and every other command with it; None if that is
    impossible."""
    sockets: tuple[SocketRules, ListenerTable] | None
    """What sockets may reach if the supervisor creates them; None if the command does."""
    changes: RecordedChanges | None
    """What is recorded of its changes; None for nothing."""

    @property
    def is_intercepted(self) -> bool:
        """Whether the filter has the supervisor answer calls."""
        return self.sockets is not None or self.changes is not None


def run_command(
    requests: socket.socket, restrictions: Restrictions, *, supervisor: int, filters: socket.socket | None
) -> None:
    """Apply the restrictions, wait for the request, and exec the program. Returns only after a reported failure."""
    os.setsid()
    syscalls.set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != supervisor:
        return
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):  # the C library reserves two of them
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for limit, value in restrictions.limits:
        _, hard = resource.getrlimit(limit)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (most, most))
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"1000")  # out of memory, the kernel kills the command and not the server
    _restrict(restrictions, filters)
    _pretouch_pages()
    message, handles, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, _HANDLES)
    if not message or len(handles) != _HANDLES:  # a preforked process that was never used
        return
    with open(handles[0], "rb", closefd=False) as file:
        file.seek(0)
        request = SpawnRequest(*marshal.load(file))  # noqa: S302  # the server's own file
    _exec(request, handles, requests, by_path=restrictions.by_path)


def _pretouch_pages() -> None:
    """Do once, without effect, what is done when the request comes.

    A page is copied when a process first writes to it; here that costs no call its time.
    """
    request_file = os.memfd_create("pretouch")
    try:
        os.write(request_file, marshal.dumps(((b"/",), ((b"a", b"b"),) * 32, b".", (0, 0), False, b"/")))
        with open(request_file, "rb", closefd=False) as file:
            file.seek(0)
            request = SpawnRequest(*marshal.load(file))  # noqa: S302  # written above
        os.stat(".")
        os.dup2(request_file, os.dup(request_file))
        os.execve(request.program, request.argv, dict(request.environment))  # noqa: S606  # a directory, which is refused
    except OSError:
        os.close(request_file)


def _restrict(restrictions: Restrictions, filters: socket.socket | None) -> None:
    syscalls.drop_privileges()
    if restrictions.ruleset >= 0:
        landlock.restrict_thread(restrictions.ruleset)
    if filters is not None:
        notices = seccomp.install_watched(restrictions.filter)
        socket.send_fds(filters, [b"."], [notices])
        os.close(notices)
        filters.close()
    elif restrictions.filter:
        seccomp.install(restrictions.filter)


def _exec(request: SpawnRequest, handles: Sequence[int], requests: socket.socket, *, by_path: bool) -> None:
    what = "directory"
    # The status pipe is closed by the exec itself, which is how the server learns of it.
    _, stdin, stdout, stderr, directory, status_pipe = handles
    try:
        if by_path:
            os.chdir(request.directory)
            status = os.stat(".")
            device, inode = request.identity
            if device not in (0, status.st_dev) or inode not in (0, status.st_ino):
                raise FileNotFoundError(2, "was replaced")
        else:
            os.fchdir(directory)
        what = "program"
        for number, handle in enumerate((stdin, stdout, stderr)):
            os.dup2(handle, number)
        if request.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.set_inheritable(status_pipe, False)
        requests.send(EXECUTES)
        os.closerange(3, status_pipe)
        os.closerange(status_pipe + 1, 1 << 20)
        environment = dict(request.environment)
        if request.program:
            with suppress(FileNotFoundError):  # not in this view: another program of that name may be
                os.execve(request.program, request.argv, environment)  # noqa: S606  # a shell is what it is not to be
        os.execvpe(request.argv[0], request.argv, environment)  # noqa: S606  # as above
    except OSError as error:
        os.write(status_pipe, marshal.dumps((what, error.errno or 0)))
