"""One command, and the process that answers for its whole tree.

The supervisor is child subreaper: whatever the command starts, however it detaches itself, comes back to it. It ends
with its command, and it ends everything when the server says so or is gone. The command is forked early, held by all
that will hold it, and waits for its argv: so that a call pays for an exec and nothing else. Runs in the spawner's
children; standard library only, no threads.
"""

import fcntl
import marshal
import os
import resource
import select
import signal
import socket
import termios
import time
import warnings  # noqa: F401  # os.get_exec_path imports it, too late to be found in the view
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from coretools.confinement import landlock, seccomp, syscalls
from coretools.process.fork_server.descendants import (
    descendants,
    end_descendants,
    group_of,
    is_alone,
    reap,
    send_signal,
)
from coretools.process.fork_server.listeners import Listeners
from coretools.process.fork_server.sockets import Broker, Watch

TERM, KILL, WATCH = b"T", b"K", b"W"
"""What the server says to a supervisor. An end of file is KILL."""

EXITED, GONE = "exited", "gone"
"""What a supervisor says: the command has ended, with its status, its peak of memory in KiB if known, how many it left
and how many were ended until now; nothing of its tree is left, with the peak, how many processes were ended, and why,
if not by the server's word."""

TOO_MANY = "too many processes"
"""Why a tree was ended by its supervisor itself."""

_LOOK_SECONDS = 0.03
"""Between two looks whether the machine has many more tasks than at the start of the command."""
_LOOKS_TO_COUNT = 20
"""Every so many looks the tree is counted without suspicion: threads of others may have ended meanwhile."""
_LEAVING_SECONDS = 0.005
"""Between two looks when the command has ended and something of it has not."""

_COPY_MORE = 2048
"""KiB that a waiting command may have beyond what its supervisor has."""

_HANDLES = 6
"""Descriptors that come with an order: itself, the three standard ones, the working directory, and the pipe whose end
tells the server that the program runs."""
_ORDER_BYTES = 64


class Hold(NamedTuple):
    """What every command of a spawner is held to; made once."""

    ruleset: int
    """Landlock; -1 for none."""
    filter: bytes
    """seccomp; empty for none."""
    limits: Sequence[tuple[int, int]]
    """Of resources (`resource.RLIMIT_*`)."""
    processes: int
    """Most processes of one command at once."""
    by_path: bool
    """Enter the working directory by its path: the handle is one of another view."""
    last_resort: Callable[[], None] | None
    """Ends a tree that multiplies faster than it can be ended, and every other command with it; None where there is no
    such way."""
    sockets: tuple[Watch, Listeners] | None
    """What sockets may reach where the supervisor makes them; None where the command does."""


class Order(NamedTuple):
    """What a command is started with; sent through `marshal`, since both ends are the same interpreter."""

    argv: tuple[bytes, ...]
    environment: tuple[tuple[bytes, bytes], ...]
    directory: bytes
    identity: tuple[int, int]
    """Device and inode of the directory."""
    terminal: bool
    """Standard input is a terminal, to be the controlling one."""
    program: bytes
    """Where the program was found; empty: look in the PATH of the environment."""


def supervise(control: socket.socket, go: socket.socket, hold: Hold) -> None:
    """Fork commands, one after the other, and see to the end of each; returns when the server is gone.

    The next command waits for its argv as soon as nothing is left of the one before.
    """
    syscalls.set_child_subreaper()
    is_held = landlock.confine_signals(os.getppid())
    while _saw_to_command(control, go, hold, is_held=is_held):
        continue
    # Not before the server has closed its end: with words of it unread, the ones for it would be lost (unix(7)).
    with suppress(OSError):
        while control.recv(16):
            continue


def _saw_to_command(control: socket.socket, go: socket.socket, hold: Hold, *, is_held: bool) -> bool:
    """Fork a command and see to its end; whether another one is wanted."""
    mine = os.getpid()
    ours, theirs = socket.socketpair() if hold.sockets is not None else (None, None)
    pid = os.fork()
    if pid == 0:
        control.close()
        try:
            _be_command(go, hold, supervisor=mine, filters=theirs)
        finally:
            os._exit(127)
    if theirs is not None:
        theirs.close()
    return _Tree(pid, control, hold, is_held=is_held, filters=ours).attend()


class _Tree:
    """The descendants of this process."""

    def __init__(
        self, pid: int, control: socket.socket, hold: Hold, *, is_held: bool, filters: socket.socket | None
    ) -> None:
        """`is_held`: signals of this process reach its descendants only. By `filters` comes the command's filter."""
        self._pid = pid
        self._is_held = is_held
        self._last_resort = hold.last_resort
        self._control = control
        self._most = hold.processes
        self._handle = os.pidfd_open(pid)
        self._has_exited = False
        self._is_traced = False
        """The command has ended, and a process that traces it has not let go of it."""
        self._ended = 0
        self._was_told = False
        """Words may still be on their way then, which would be taken for another command's: this is the last one."""
        self._pause: float | None = None
        self._next_look = 0.0
        self._looks = 0
        self._before = _tasks_of_machine()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._handle, select.POLLIN)
        self._broker = None
        if filters is not None and hold.sockets is not None:
            self._broker = Broker(*hold.sockets, filters, self._poll)

    def attend(self) -> bool:
        """Wait for the command and the server's words until nothing is left; whether the server said nothing."""
        try:
            while not self._is_over():
                continue
        finally:
            os.close(self._handle)
            if self._broker is not None:
                self._broker.close()
        return not self._was_told

    def _is_over(self) -> bool:
        """Wait for the next thing to happen and see to it; whether nothing is left then."""
        ready = self._ready()
        if (self._handle in ready or self._is_traced) and self._note_exit():
            return True
        if self._control.fileno() in ready and self._obey(self._word()):
            return True
        if self._pause is None or time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + self._pause
        return self._looked()

    def _ready(self) -> dict[int, int]:
        """Wait for the next thing to happen, or for a look; sockets are seen to at once."""
        pauses = [self._pause]
        if self._pause is not None:
            pauses = [max(0.0, self._next_look - time.monotonic()) if self._next_look else self._pause]
        if self._broker is not None:
            pauses.append(self._broker.pause)
        wait = min((pause for pause in pauses if pause is not None), default=None)
        ready = dict(self._poll.poll(wait and wait * 1000))
        if self._broker is not None:
            self._broker.attend(ready)
        return ready

    def _looked(self) -> bool:
        """Look whether something is left, or too much; whether nothing is left then."""
        if self._has_exited and not self._left():
            self._finish(self._ended, "")
            return True
        if self._is_too_large():
            self._end(TOO_MANY)
            return True
        return False

    def _word(self) -> bytes:
        """What the server says; nothing when it is gone."""
        try:
            return self._control.recv(16)
        except OSError:
            return b""

    def _obey(self, word: bytes) -> bool:
        """Do what the server says; whether nothing is left then."""
        self._was_told = True
        if word == WATCH:
            self._pause = self._pause or _LOOK_SECONDS
        elif word == TERM:
            self._ended = max(self._ended, self._signal_all(signal.SIGTERM))
        else:
            self._end("")
        return word not in (WATCH, TERM)

    def _is_too_large(self) -> bool:
        self._looks += 1
        is_suspect = self._looks % _LOOKS_TO_COUNT == 0 or _tasks_of_machine() - self._before > self._most // 2
        return is_suspect and self._left() > self._most

    def _note_exit(self) -> bool:
        """Tell the server of the command's end; whether nothing is left of it.

        While something is left the command is not reaped: its number is also that of the group which is then ended.
        """
        if not self._is_traced:
            self._poll.unregister(self._handle)
            self._pause, self._next_look = _LEAVING_SECONDS, 0.0
        status = self._status()
        self._is_traced = status is None
        if status is None:
            return False
        self._has_exited = True
        left = self._left()
        self._say(EXITED, status, self._reaped() if left == 0 else 0, left, self._ended)
        return left == 0

    def _status(self) -> int | None:
        """Of the command, which has ended, as wait(2) has it; it is not reaped. None: its tracer has it (ptrace(2))."""
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return None
        return ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status

    def _left(self) -> int:
        """How many descendants live, 0 only when it is certain; those that came back to us dead are reaped."""
        if is_alone(spare=self._pid):
            return 0
        reap(spare=self._pid)
        return max(1, len(descendants(os.getpid(), most=self._most + 1)))

    def _signal_all(self, number: int) -> int:
        """Signal all of the tree; how many there are beside the command itself."""
        found = set(descendants(os.getpid())) - {self._pid}
        send_signal(-self._pid, number)
        send_signal(self._pid, number)
        for pid in found:
            if group_of(pid) != self._pid:
                send_signal(pid, number)
        return len(found)

    def _end(self, why: str) -> None:
        found = 0 if self._is_held else self._left() - (not self._has_exited)
        send_signal(-self._pid, signal.SIGKILL)
        # It may wait for its order still, and not be the leader of its group yet.
        send_signal(self._pid, signal.SIGKILL)
        more = end_descendants(spare=self._pid, is_held=self._is_held)
        while not is_alone(spare=self._pid):
            if self._last_resort is not None and not self._is_held:
                self._last_resort()
            more += end_descendants(spare=self._pid, is_held=self._is_held)
        if not self._has_exited:
            # Not that nothing is left: that is said next, with the reason.
            self._say(EXITED, self._status() or 0, 0, 1, self._ended)
        self._finish(max(found, more, self._ended), why)

    def _finish(self, ended: int, why: str) -> None:
        self._say(GONE, self._reaped(), ended, why)

    def _reaped(self) -> int:
        """Reap the command; its peak of memory in KiB, 0 when it was reaped before."""
        with suppress(ChildProcessError):
            return _own_peak(os.wait4(self._pid, 0)[2])
        return 0

    def _say(self, *words: str | int) -> None:
        with suppress(OSError):  # the server is gone
            self._control.send(marshal.dumps(words))


def _own_peak(usage: resource.struct_rusage) -> int:
    """KiB; 0 when the command stayed below what it had as a copy of this process, which the kernel counts too."""
    as_copy = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + _COPY_MORE
    return usage.ru_maxrss if usage.ru_maxrss > as_copy else 0


def _tasks_of_machine() -> int:
    """How many processes and threads there are anywhere (proc(5), loadavg); one short read, for a first suspicion."""
    with suppress(OSError, ValueError), open("/proc/loadavg", "rb", buffering=0) as file:
        return int(file.read().split()[3].partition(b"/")[2])
    return 0


def _be_command(go: socket.socket, hold: Hold, *, supervisor: int, filters: socket.socket | None) -> None:
    """Be held, wait for the order, and become the program. Returns only when that failed, after saying why."""
    os.setsid()
    syscalls.set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != supervisor:
        return
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):  # the C library keeps two of them for itself
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for limit, value in hold.limits:
        _, hard = resource.getrlimit(limit)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (most, most))
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"1000")  # when memory runs out, the command goes and not the server
    _enter(hold, filters)
    _rehearse()
    message, handles, _, _ = socket.recv_fds(go, _ORDER_BYTES, _HANDLES)
    if not message or len(handles) != _HANDLES:  # a slot that nobody took
        return
    with open(handles[0], "rb", closefd=False) as file:
        file.seek(0)
        order = Order(*marshal.load(file))  # noqa: S302  # the server's own file
    _start(order, handles, by_path=hold.by_path)


def _rehearse() -> None:
    """Do once, without effect, what is done when the order comes.

    A page is copied when a process first writes to it; there is time for that now.
    """
    letter = os.memfd_create("rehearsal")
    try:
        os.write(letter, marshal.dumps(((b"/",), ((b"a", b"b"),) * 32, b".", (0, 0), False, b"/")))
        with open(letter, "rb", closefd=False) as file:
            file.seek(0)
            order = Order(*marshal.load(file))  # noqa: S302  # written above
        os.stat(".")
        os.dup2(letter, os.dup(letter))
        os.execve(order.program, order.argv, dict(order.environment))  # noqa: S606  # a directory, which is refused
    except OSError:
        os.close(letter)


def _enter(hold: Hold, filters: socket.socket | None) -> None:
    syscalls.drop_privileges()
    if hold.ruleset >= 0:
        landlock.restrict_thread(hold.ruleset)
    if filters is not None:
        notices = seccomp.install_watched(hold.filter)
        socket.send_fds(filters, [b"."], [notices])
        os.close(notices)
        filters.close()
    elif hold.filter:
        seccomp.install(hold.filter)


def _start(order: Order, handles: Sequence[int], *, by_path: bool) -> None:
    what = "directory"
    # The one handle that stays is closed by the exec itself, which is how the server knows of it.
    _, stdin, stdout, stderr, directory, telling = handles
    try:
        if by_path:
            os.chdir(order.directory)
            found = os.stat(".")
            if (found.st_dev, found.st_ino) != tuple(order.identity):
                raise FileNotFoundError(2, "was replaced")
        else:
            os.fchdir(directory)
        what = "program"
        for number, handle in enumerate((stdin, stdout, stderr)):
            os.dup2(handle, number)
        if order.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.set_inheritable(telling, False)
        os.closerange(3, telling)
        os.closerange(telling + 1, 1 << 20)
        environment = dict(order.environment)
        if order.program:
            with suppress(FileNotFoundError):  # not in this view: then another one of the name may be
                os.execve(order.program, order.argv, environment)  # noqa: S606  # a shell is what it is not to be
        os.execvpe(order.argv[0], order.argv, environment)  # noqa: S606  # as above
    except OSError as error:
        os.write(telling, marshal.dumps((what, error.errno or 0)))
