"""The supervisor: a process that owns the whole process tree of one command.

It is a child subreaper, so that everything a command starts, however it detaches itself, is reparented to it. It
reports the exit of the command, and kills the tree on request or when the server is gone. After a command it preforks
the next one. Runs in children of the fork server; standard library only, no threads.
"""

import errno
import marshal
import os
import resource
import select
import signal
import socket
import time
from contextlib import suppress

from coretools.confinement import landlock, syscalls
from coretools.process.fork_server.changing_calls import CHANGING_NUMBERS
from coretools.process.fork_server.command_process import Restrictions, run_command
from coretools.process.fork_server.command_recorder import CommandRecorder
from coretools.process.fork_server.descendants import (
    descendants,
    group_of,
    has_no_descendants,
    kill_descendants,
    reap,
    send_signal,
)
from coretools.process.fork_server.messages import EXITED, GONE, TERM, WATCH
from coretools.process.fork_server.notifications import CallListener, InterceptedCall
from coretools.process.fork_server.sockets import SocketBroker

TOO_MANY = "too many processes"
"""Why a supervisor stops a tree by itself."""

_CHECK_SECONDS = 0.03
"""Between two checks whether the machine has many more tasks than at the start of the command."""
_COUNT_EVERY = 20
"""The tree is counted at every 20th check in any case: tasks of others may have exited meanwhile."""
_EXITING_CHECK_SECONDS = 0.005
"""Between two checks when the command has exited and descendants have not."""

_COPY_MARGIN_KIB = 2048
"""Memory that a preforked process may have beyond its supervisor, in KiB."""


def supervise(control: socket.socket, requests: socket.socket, restrictions: Restrictions) -> None:
    """Fork commands one after the other and supervise each; return when the server is gone.

    The next command is preforked as soon as nothing is left of the one before.
    """
    syscalls.set_child_subreaper()
    # Sent when somebody opens a file at the moment of a lease on it (preimages). Its default action ends a process.
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    handles = () if restrictions.changes is None else restrictions.changes.handles
    is_scoped = landlock.confine_signals(os.getppid(), handles)
    while _run_one(control, requests, restrictions, is_scoped=is_scoped):
        continue
    # Exit only when the server has closed its end: with unread messages of it, ours would be lost (unix(7)).
    with suppress(OSError):
        while control.recv(16):
            continue


def _run_one(control: socket.socket, requests: socket.socket, restrictions: Restrictions, *, is_scoped: bool) -> bool:
    """Fork a command and supervise it; return whether another one is wanted."""
    mine = os.getpid()
    ours, theirs = socket.socketpair() if restrictions.is_intercepted else (None, None)
    pid = os.fork()
    if pid == 0:
        # A command must not keep it: its end tells the server that the supervisor is gone.
        control.close()
        try:
            run_command(requests, restrictions, supervisor=mine, filters=theirs)
        finally:
            os._exit(127)
    if theirs is not None:
        theirs.close()
    return _ProcessTree(pid, control, restrictions, is_scoped=is_scoped, filters=ours).run()


class _ProcessTree:
    """The command and its descendants."""

    def __init__(
        self,
        pid: int,
        control: socket.socket,
        restrictions: Restrictions,
        *,
        is_scoped: bool,
        filters: socket.socket | None,
    ) -> None:
        """`is_scoped`: signals of this process reach only its descendants. `filters` receives the command filter."""
        self._pid = pid
        self._is_scoped = is_scoped
        self._last_resort = restrictions.last_resort
        self._control = control
        self._limit = restrictions.processes
        self._pidfd = os.pidfd_open(pid)
        self._has_exited = False
        self._is_traced = False
        """The command has exited, but its tracer has not released it."""
        self._stopped = 0
        self._was_commanded = False
        """Then more messages may be on their way, which the next command would get: so there is no next one."""
        self._interval: float | None = None
        self._next_check = 0.0
        self._checks = 0
        self._tasks_before = _tasks_of_machine()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)
        self._is_killed = False
        self._listener = None if filters is None else CallListener(filters, self._poll)
        self._broker: SocketBroker | None = None
        self._recorder: CommandRecorder | None = None
        if self._listener is not None and restrictions.sockets is not None:
            self._broker = SocketBroker(*restrictions.sockets, self._listener, self._poll)
        if self._listener is not None and restrictions.changes is not None:
            self._recorder = CommandRecorder(restrictions.changes, self._listener, pid, self._heed_server)

    def run(self) -> bool:
        """Run until nothing of the tree is left; return whether the server sent no message."""
        try:
            while not self._step():
                continue
        finally:
            os.close(self._pidfd)
            for part in (self._broker, self._recorder, self._listener):
                if part is not None:
                    part.close()
        return not self._was_commanded

    def _step(self) -> bool:
        """Wait for the next event and handle it; return whether nothing of the tree is left."""
        ready = self._ready()
        if (self._pidfd in ready or self._is_traced) and self._note_exit():
            return True
        if self._is_killed:
            self._end("")
            return True
        # Asked again: the message may have been received while a file was copied.
        if self._control.fileno() in ready and self._has_message() and self._handle_command(self._receive()):
            return True
        if self._interval is None or time.monotonic() < self._next_check:
            return False
        self._next_check = time.monotonic() + self._interval
        return self._check_tree()

    def _ready(self) -> dict[int, int]:
        """Wait for the next event or check; intercepted calls are answered here."""
        pauses = [self._interval]
        if self._interval is not None:
            pauses = [max(0.0, self._next_check - time.monotonic()) if self._next_check else self._interval]
        if self._broker is not None:
            pauses.append(self._broker.pause)
        wait = min((pause for pause in pauses if pause is not None), default=None)
        # 0 stays 0 and returns at once; None stays None and waits without end.
        ready = dict(self._poll.poll(wait and wait * 1000))
        if self._broker is not None:
            self._broker.handle_events(ready)
        call = None if self._listener is None else self._listener.receive(ready)
        if call is not None:
            self._answer(call)
        return ready

    def _answer(self, call: InterceptedCall) -> None:
        if self._recorder is not None and call.number in CHANGING_NUMBERS:
            self._recorder.handle(call)
        elif self._broker is not None:
            self._broker.handle(call)

    def _heed_server(self) -> None:
        """Handle a message of the server while a large file is copied.

        Raises:
            OSError: EINTR if the tree is to end.
        """
        while not self._is_killed and self._has_message():
            word = self._receive()
            self._is_killed = word not in (WATCH, TERM)
            if not self._is_killed:
                self._handle_command(word)
        if self._is_killed:
            self._was_commanded = True
            raise InterruptedError(errno.EINTR, "the command is ended")

    def _check_tree(self) -> bool:
        """Check whether the tree is empty or too large; return whether nothing is left."""
        if self._has_exited and not self._count_remaining():
            self._finish(self._stopped, "")
            return True
        if self._is_too_large():
            self._end(TOO_MANY)
            return True
        return False

    def _has_message(self) -> bool:
        """Whether a message of the server waits, or it is gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        return bool(poll.poll(0))

    def _receive(self) -> bytes:
        """Receive a message of the server; empty if it is gone."""
        try:
            return self._control.recv(16)
        except OSError:
            return b""

    def _handle_command(self, word: bytes) -> bool:
        """Handle a message of the server; return whether nothing of the tree is left."""
        self._was_commanded = True
        if word == WATCH:
            self._interval = self._interval or _CHECK_SECONDS
        elif word == TERM:
            self._stopped = max(self._stopped, self._signal_all(signal.SIGTERM))
        else:
            self._end("")
        return word not in (WATCH, TERM)

    def _is_too_large(self) -> bool:
        self._checks += 1
        is_suspect = self._checks % _COUNT_EVERY == 0 or _tasks_of_machine() - self._tasks_before > self._limit // 2
        return is_suspect and self._count_remaining() > self._limit

    def _note_exit(self) -> bool:
        """Report the exit of the command; return whether nothing of the tree is left.

        While something is left the command is not reaped: its pid is also the id of the group that is then signalled.
        """
        if not self._is_traced:
            self._poll.unregister(self._pidfd)
            self._interval, self._next_check = _EXITING_CHECK_SECONDS, 0.0
        status = self._status()
        self._is_traced = status is None
        if status is None:
            return False
        self._has_exited = True
        left = self._count_remaining()
        self._send(
            EXITED,
            status,
            self._reap_leader() if left == 0 else 0,
            left,
            self._stopped,
            self._record() if left == 0 else "",
        )
        return left == 0

    def _record(self) -> str:
        """Close the record of changes; return its name."""
        return "" if self._recorder is None else self._recorder.close()

    def _status(self) -> int | None:
        """Wait status of the exited command, which is not reaped. None: its tracer has it (ptrace(2))."""
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return None
        return ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status

    def _count_remaining(self) -> int:
        """Number of live descendants, 0 only if that is certain. Zombies are reaped."""
        if has_no_descendants(spare=self._pid):
            return 0
        reap(spare=self._pid)
        # At least one: there is something, although a scan may miss what forks while it runs.
        return max(1, len(descendants(os.getpid(), most=self._limit + 1)))

    def _signal_all(self, number: int) -> int:
        """Signal the whole tree; return how many processes there are beside the command itself."""
        others = set(descendants(os.getpid())) - {self._pid}
        send_signal(-self._pid, number)
        send_signal(self._pid, number)
        for pid in others:
            if group_of(pid) != self._pid:
                send_signal(pid, number)
        return len(others)

    def _end(self, why: str) -> None:
        counted = 0 if self._is_scoped else self._count_remaining() - (not self._has_exited)
        send_signal(-self._pid, signal.SIGKILL)
        # It may still wait for its request, and not be the leader of its group yet.
        send_signal(self._pid, signal.SIGKILL)
        more = kill_descendants(spare=self._pid, is_scoped=self._is_scoped)
        while not has_no_descendants(spare=self._pid):
            if self._last_resort is not None and not self._is_scoped:
                self._last_resort()
            more += kill_descendants(spare=self._pid, is_scoped=self._is_scoped)
        if not self._has_exited:
            # GONE follows, with the reason.
            self._send(EXITED, self._status() or 0, 0, 1, self._stopped, "")
        self._finish(max(counted, more, self._stopped), why)

    def _finish(self, ended: int, why: str) -> None:
        self._send(GONE, self._reap_leader(), ended, why, self._record())

    def _reap_leader(self) -> int:
        """Reap the command; return its peak memory in KiB, 0 if it was reaped before."""
        with suppress(ChildProcessError):
            return _peak_memory(os.wait4(self._pid, 0)[2])
        return 0

    def _send(self, *words: str | int) -> None:
        with suppress(OSError):  # the server is gone
            self._control.send(marshal.dumps(words))


def _peak_memory(usage: resource.struct_rusage) -> int:
    """Peak in KiB; 0 if it is below what the command had as a copy of this process, which the kernel counts too."""
    as_copy = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + _COPY_MARGIN_KIB
    return usage.ru_maxrss if usage.ru_maxrss > as_copy else 0


def _tasks_of_machine() -> int:
    """Number of processes and threads of the machine (proc(5), loadavg): one short read, as a first indication."""
    with suppress(OSError, ValueError), open("/proc/loadavg", "rb", buffering=0) as file:
        return int(file.read().split()[3].partition(b"/")[2])
    return 0
