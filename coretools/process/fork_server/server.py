"""The fork server (zygote): a single-threaded process that preforks commands, which then wait for their argv.

`client` starts it with a config and a socket. It enters the namespaces of the config, builds the view, and then forks a
supervisor with a preforked command for every pair of sockets that it receives. It exits when its socket is closed; as
process 1 of its namespace that kills everything in it. Standard library only.
"""

import fcntl
import gc
import marshal
import os
import select
import signal
import socket
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from coretools.confinement import landlock, namespaces, seccomp, syscalls
from coretools.confinement.overmounts import Overmounts
from coretools.process.children import reaper
from coretools.process.fork_server import descendants, supervisor
from coretools.process.fork_server.command_process import Restrictions
from coretools.process.fork_server.messages import (
    COMMAND,
    COVER_LOST,
    COVER_RESTORED,
    PAIR,
    READY,
    READY_UNRECORDED,
    REPORT_WHEN_EMPTY,
    RETIRE,
    SOCKETS,
    ForkServerConfig,
    RecordedChanges,
    SocketRules,
)
from coretools.process.fork_server.tcp_listeners import ListenerTable


def main() -> None:
    """Run the fork server. Standard input is the socket; the last argument is the descriptor of the config."""
    config = _read_config(int(sys.argv[-1]))
    control = _control_socket()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        restrictions, overmounts = _confine(config, control)
        port = 0 if config.view is None else config.view.proxy_port
        listener = namespaces.listen_on_loopback(port) if port else None
    except OSError as error:
        with suppress(OSError):
            why = f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror or error}"
            control.send(f"{error.errno or 0} {why}".encode("utf-8", "surrogateescape")[:500])
        os._exit(1)
    # Objects that exist now stay for good: without garbage collection a child copies none of their pages.
    gc.disable()
    gc.freeze()
    # The kernel reports the exit of process 1 when nothing is left in its namespace (pid_namespaces(7)).
    handle = os.pidfd_open(os.getpid())
    is_unrecorded = config.changes is not None and restrictions.changes is None
    reply = READY_UNRECORDED if is_unrecorded else READY
    socket.send_fds(control, [reply], [handle, *([] if listener is None else [listener.fileno()])])
    os.close(handle)
    if listener is not None:
        listener.close()  # only the server accepts on it
    _ForkServer(control, restrictions, overmounts).serve()


def _control_socket() -> socket.socket:
    """The socket, moved away from the descriptors of a command's standard streams."""
    control = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10))
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1, 2):
        os.dup2(null, number)
    return control


def _read_config(handle: int) -> ForkServerConfig:
    with open(handle, "rb") as file:
        file.seek(0)
        config = ForkServerConfig(*marshal.load(file))  # noqa: S302  # the server's own file
    config = config._replace(
        socket_rules=None if config.socket_rules is None else SocketRules(*config.socket_rules),
        changes=None if config.changes is None else RecordedChanges(*config.changes),
        rules=None if config.rules is None else [_rule(rule) for rule in config.rules],
    )
    if config.view is None:
        return config
    plan = namespaces.NamespacePlan(*config.view)
    return config._replace(view=plan._replace(binds=[namespaces.BindMount(*bind) for bind in plan.binds]))


def _rule(rule: Sequence[Any]) -> landlock.Rule | landlock.EntryGrants:
    return (rule[0], rule[1]) if len(rule) == 2 else landlock.EntryGrants(*rule)


def _confine(config: ForkServerConfig, control: socket.socket) -> tuple[Restrictions, Overmounts | None]:
    overmounts = None if config.view is None else _enter_view(config.view, control)
    can_intercept = _can_intercept(config)
    socket_rules = config.socket_rules if can_intercept else None
    changes = config.changes if can_intercept else None
    is_intercepted = socket_rules is not None
    restrictions = Restrictions(
        ruleset=-1 if config.rules is None else landlock.ruleset(config.rules, tcp=config.tcp, binds=is_intercepted),
        filter=b""
        if config.families is None
        else seccomp.command_filter(
            _allowed_families(config, is_intercepted=is_intercepted),
            watched=is_intercepted,
            changes=changes is not None,
        ),
        limits=config.limits,
        processes=config.processes,
        by_path=config.view is not None,
        last_resort=None if config.view is None else _end_everything,
        sockets=None if socket_rules is None else (socket_rules, ListenerTable()),
        changes=changes,
    )
    return restrictions, overmounts


def _allowed_families(config: ForkServerConfig, *, is_intercepted: bool) -> frozenset[int]:
    """Socket families for the filter: without a supervisor to create them, none that it would have to restrict."""
    families = frozenset(config.families or ())
    if is_intercepted or config.socket_rules is None:
        return families
    return frozenset() if config.socket_rules.loopback else families - {seccomp.UNIX}


def _can_intercept(config: ForkServerConfig) -> bool:
    """Whether seccomp user notification works here: a child tries it, since a filter can't be removed."""
    if config.families is None or (config.socket_rules is None and config.changes is None):
        return False
    pid = os.fork()
    if pid == 0:
        try:
            syscalls.set_no_new_privileges()
            seccomp.install_watched(seccomp.command_filter(frozenset(), watched=True))
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _enter_view(plan: namespaces.NamespacePlan, control: socket.socket) -> Overmounts:
    """Continue as process 1 of a namespace with the view; the original process waits for it."""
    namespaces.unshare_namespaces(network=plan.shares_network)
    # Unsharing puts only the children of a process into the new PID namespace (pid_namespaces(7)).
    pid = os.fork()
    if pid:
        control.close()
        with suppress(OSError):
            os.waitpid(pid, 0)
        os._exit(0)
    # Else the namespace would outlive a fork server that was killed.
    syscalls.set_parent_death_signal(signal.SIGKILL)
    return namespaces.build(plan)


def _end_everything() -> None:
    """Have process 1 of the namespace exit; the kernel then kills all others in it at once."""
    os.kill(1, signal.SIGUSR1)


class _ForkServer:
    """The event loop: requests of the server, exits of supervisors, and lost overmounts."""

    def __init__(self, control: socket.socket, restrictions: Restrictions, overmounts: Overmounts | None) -> None:
        self._control = control
        self._restrictions = restrictions
        self._overmounts = overmounts
        # Process 1 of a namespace kills everything by its own exit.
        self._is_scoped = restrictions.last_resort is None and landlock.confine_signals(os.getppid())
        self._supervisors = set[int]()
        self._is_retiring = False
        self._wakeup, waker = os.pipe()
        # The signal handler writes into the pipe: a full one must not block it.
        for handle in (self._wakeup, waker):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        # With the default action nothing would be written to the wakeup descriptor (signal.set_wakeup_fd).
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGUSR1, lambda *_: os._exit(1))
        syscalls.set_child_subreaper()

    def serve(self) -> None:
        """Run until the server closes its socket; then kill all descendants."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        if self._overmounts is not None and self._overmounts.fileno() >= 0:
            poll.register(self._overmounts, select.POLLIN)
        pause = self._restore_covers()  # files that were replaced before they were watched
        while self._supervisors or not self._is_retiring:
            ready = {handle for handle, _ in poll.poll(pause)}
            pause = self._restore_covers(ready)
            if self._wakeup in ready:
                with suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
                self._reap()
            if self._control.fileno() in ready and not self._handle_request():
                break
        self._end()

    def _restore_covers(self, ready: Collection[int] = ()) -> float | None:
        """Restore lost overmounts if due and report them to the server; return milliseconds until the next check."""
        overmounts = self._overmounts
        if overmounts is None:
            return None
        if not ready or overmounts.poll_seconds is not None or overmounts.fileno() in ready:
            for path, error in overmounts.remount_lost():
                word = COVER_RESTORED if error is None else COVER_LOST
                with suppress(OSError):  # the server has not read hundreds of reports
                    self._control.send(word + os.fsencode(path), socket.MSG_DONTWAIT)
        return overmounts.poll_seconds and overmounts.poll_seconds * 1000

    def _end(self) -> None:
        """Exit with all descendants."""
        while self._restrictions.last_resort is None and not descendants.has_no_descendants():
            descendants.kill_descendants(is_scoped=self._is_scoped)
        os._exit(0)

    def _handle_request(self) -> bool:
        """Handle a request of the server; False if it is gone."""
        try:
            message, handles, _, _ = socket.recv_fds(self._control, 16, PAIR)
        except OSError:
            return False
        self._is_retiring = self._is_retiring or message == RETIRE
        if message == COMMAND and len(handles) == PAIR:
            self._fork(handles)
        elif message in SOCKETS.values():
            _send_socket(message, handles)
        elif message == REPORT_WHEN_EMPTY:
            self._report_when_empty(handles)
        return bool(message)

    def _fork(self, handles: Sequence[int]) -> None:
        try:
            pid = os.fork()
        except OSError:  # out of processes: the server sees both sockets closed
            pid = -1
        if pid == 0:
            code = 1
            try:
                # The pipe is shared: a signal for the supervisor would wake the fork server.
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGUSR1, signal.SIG_DFL)
                self._control.close()
                if self._overmounts is not None:
                    self._overmounts.close_in_child()
                supervisor.supervise(
                    socket.socket(fileno=handles[0]), socket.socket(fileno=handles[1]), self._restrictions
                )
                code = 0
            finally:
                os._exit(code)
        for handle in handles:
            os.close(handle)
        if pid > 0:
            self._supervisors.add(pid)

    def _reap(self) -> None:
        """Reap supervisors, and kill what one left that did not exit by itself."""
        with suppress(ChildProcessError):
            while True:
                # One SIGCHLD may stand for several exits (signal(7)).
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                self._supervisors.discard(pid)
        # A supervisor waits for its whole tree. Other children of ours are orphans of a supervisor that was killed.
        if self._orphans():
            descendants.kill_until_gone(self._orphans)
            if self._orphans() and (self._is_scoped or self._restrictions.last_resort is not None):
                self._end()  # they fork faster than they can be killed one by one

    def _orphans(self) -> list[int]:
        return [pid for pid in descendants.own_children() if pid not in self._supervisors]

    def _report_when_empty(self, handles: Sequence[int]) -> None:
        """Report if nothing is left of commands whose supervisors have exited or are exiting."""
        for pid in filter(reaper.is_exiting, self._supervisors.copy()):
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self._supervisors.discard(pid)
        self._reap()
        for handle in handles:
            if not self._orphans():
                with suppress(OSError):  # nobody waits any more
                    os.write(handle, b".")
            os.close(handle)


def _send_socket(message: bytes, handles: Sequence[int]) -> None:
    """Make a TCP socket, which belongs to the network namespace of this process for ever, and send it."""
    family = next(family for family, word in SOCKETS.items() if word == message)
    for handle in handles:
        with socket.socket(fileno=handle) as channel, suppress(OSError), socket.socket(family) as created:
            socket.send_fds(channel, [b"."], [created.fileno()], socket.MSG_DONTWAIT)


if __name__ == "__main__":
    main()
