"""One command, and the process that answers for its whole tree.

The supervisor is child subreaper: whatever the command starts, however it detaches itself, comes back to it. It ends
with its command, and it ends everything when the server says so or is gone. The command is forked early, held by all
that will hold it, and waits for its argv: so that a call pays for an exec and nothing else. Runs in the spawner's
children; standard library only, no threads.
"""

import marshal
import os
import resource
import select
import signal
import socket
import time
from contextlib import suppress

from coretools.confinement import landlock, syscalls
from coretools.process.fork_server.command_process import Restrictions, run_command
from coretools.process.fork_server.descendants import (
    descendants,
    group_of,
    has_no_descendants,
    kill_descendants,
    reap,
    send_signal,
)
from coretools.process.fork_server.sockets import SocketBroker

TERM, KILL, WATCH = b"T", b"K", b"W"
"""What the server says to a supervisor. An end of file is KILL."""

EXITED, GONE = "exited", "gone"
"""What a supervisor says: the command has ended, with its status, its peak of memory in KiB if known, how many it left
and how many were ended until now; nothing of its tree is left, with the peak, how many processes were ended, and why,
if not by the server's word."""

TOO_MANY = "too many processes"
"""Why a tree was ended by its supervisor itself."""

_CHECK_SECONDS = 0.03
"""Between two looks whether the machine has many more tasks than at the start of the command."""
_COUNT_EVERY = 20
"""Every so many looks the tree is counted without suspicion: threads of others may have ended meanwhile."""
_EXITING_CHECK_SECONDS = 0.005
"""Between two looks when the command has ended and something of it has not."""

_COPY_MARGIN_KIB = 2048
"""KiB that a waiting command may have beyond what its supervisor has."""


def supervise(control: socket.socket, requests: socket.socket, restrictions: Restrictions) -> None:
    """Fork commands, one after the other, and see to the end of each; returns when the server is gone.

    The next command waits for its argv as soon as nothing is left of the one before.
    """
    syscalls.set_child_subreaper()
    is_scoped = landlock.confine_signals(os.getppid())
    while _run_one(control, requests, restrictions, is_scoped=is_scoped):
        continue
    # Not before the server has closed its end: with words of it unread, the ones for it would be lost (unix(7)).
    with suppress(OSError):
        while control.recv(16):
            continue


def _run_one(control: socket.socket, requests: socket.socket, restrictions: Restrictions, *, is_scoped: bool) -> bool:
    """Fork a command and see to its end; whether another one is wanted."""
    mine = os.getpid()
    ours, theirs = socket.socketpair() if restrictions.sockets is not None else (None, None)
    pid = os.fork()
    if pid == 0:
        control.close()
        try:
            run_command(requests, restrictions, supervisor=mine, filters=theirs)
        finally:
            os._exit(127)
    if theirs is not None:
        theirs.close()
    return _ProcessTree(pid, control, restrictions, is_scoped=is_scoped, filters=ours).run()


class _ProcessTree:
    """The descendants of this process."""

    def __init__(
        self,
        pid: int,
        control: socket.socket,
        restrictions: Restrictions,
        *,
        is_scoped: bool,
        filters: socket.socket | None,
    ) -> None:
        """`is_held`: signals of this process reach its descendants only. By `filters` comes the command's filter."""
        self._pid = pid
        self._is_scoped = is_scoped
        self._last_resort = restrictions.last_resort
        self._control = control
        self._limit = restrictions.processes
        self._pidfd = os.pidfd_open(pid)
        self._has_exited = False
        self._is_traced = False
        """The command has ended, and a process that traces it has not let go of it."""
        self._stopped = 0
        self._was_commanded = False
        """Words may still be on their way then, which would be taken for another command's: this is the last one."""
        self._interval: float | None = None
        self._next_check = 0.0
        self._checks = 0
        self._tasks_before = _tasks_of_machine()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)
        self._broker = None
        if filters is not None and restrictions.sockets is not None:
            self._broker = SocketBroker(*restrictions.sockets, filters, self._poll)

    def run(self) -> bool:
        """Wait for the command and the server's words until nothing is left; whether the server said nothing."""
        try:
            while not self._step():
                continue
        finally:
            os.close(self._pidfd)
            if self._broker is not None:
                self._broker.close()
        return not self._was_commanded

    def _step(self) -> bool:
        """Wait for the next thing to happen and see to it; whether nothing is left then."""
        ready = self._ready()
        if (self._pidfd in ready or self._is_traced) and self._note_exit():
            return True
        if self._control.fileno() in ready and self._handle_command(self._receive()):
            return True
        if self._interval is None or time.monotonic() < self._next_check:
            return False
        self._next_check = time.monotonic() + self._interval
        return self._check_tree()

    def _ready(self) -> dict[int, int]:
        """Wait for the next thing to happen, or for a look; sockets are seen to at once."""
        pauses = [self._interval]
        if self._interval is not None:
            pauses = [max(0.0, self._next_check - time.monotonic()) if self._next_check else self._interval]
        if self._broker is not None:
            pauses.append(self._broker.pause)
        wait = min((pause for pause in pauses if pause is not None), default=None)
        ready = dict(self._poll.poll(wait and wait * 1000))
        if self._broker is not None:
            self._broker.handle_events(ready)
        return ready

    def _check_tree(self) -> bool:
        """Look whether something is left, or too much; whether nothing is left then."""
        if self._has_exited and not self._count_remaining():
            self._finish(self._stopped, "")
            return True
        if self._is_too_large():
            self._end(TOO_MANY)
            return True
        return False

    def _receive(self) -> bytes:
        """What the server says; nothing when it is gone."""
        try:
            return self._control.recv(16)
        except OSError:
            return b""

    def _handle_command(self, word: bytes) -> bool:
        """Do what the server says; whether nothing is left then."""
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
        """Tell the server of the command's end; whether nothing is left of it.

        While something is left the command is not reaped: its number is also that of the group which is then ended.
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
        self._send(EXITED, status, self._reap_leader() if left == 0 else 0, left, self._stopped)
        return left == 0

    def _status(self) -> int | None:
        """Of the command, which has ended, as wait(2) has it; it is not reaped. None: its tracer has it (ptrace(2))."""
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return None
        return ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status

    def _count_remaining(self) -> int:
        """How many descendants live, 0 only when it is certain; those that came back to us dead are reaped."""
        if has_no_descendants(spare=self._pid):
            return 0
        reap(spare=self._pid)
        return max(1, len(descendants(os.getpid(), most=self._limit + 1)))

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
        found = 0 if self._is_scoped else self._count_remaining() - (not self._has_exited)
        send_signal(-self._pid, signal.SIGKILL)
        # It may wait for its order still, and not be the leader of its group yet.
        send_signal(self._pid, signal.SIGKILL)
        more = kill_descendants(spare=self._pid, is_scoped=self._is_scoped)
        while not has_no_descendants(spare=self._pid):
            if self._last_resort is not None and not self._is_scoped:
                self._last_resort()
            more += kill_descendants(spare=self._pid, is_scoped=self._is_scoped)
        if not self._has_exited:
            # Not that nothing is left: that is said next, with the reason.
            self._send(EXITED, self._status() or 0, 0, 1, self._stopped)
        self._finish(max(found, more, self._stopped), why)

    def _finish(self, ended: int, why: str) -> None:
        self._send(GONE, self._reap_leader(), ended, why)

    def _reap_leader(self) -> int:
        """Reap the command; its peak of memory in KiB, 0 when it was reaped before."""
        with suppress(ChildProcessError):
            return _peak_memory(os.wait4(self._pid, 0)[2])
        return 0

    def _send(self, *words: str | int) -> None:
        with suppress(OSError):  # the server is gone
            self._control.send(marshal.dumps(words))


def _peak_memory(usage: resource.struct_rusage) -> int:
    """KiB; 0 when the command stayed below what it had as a copy of this process, which the kernel counts too."""
    as_copy = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + _COPY_MARGIN_KIB
    return usage.ru_maxrss if usage.ru_maxrss > as_copy else 0


def _tasks_of_machine() -> int:
    """How many processes and threads there are anywhere (proc(5), loadavg); one short read, for a first suspicion."""
    with suppress(OSError, ValueError), open("/proc/loadavg", "rb", buffering=0) as file:
        return int(file.read().split()[3].partition(b"/")[2])
    return 0
