"""A command under its supervisor, as the runner sees it: start, exit, and termination of its tree.

The counterpart of `spawn.ChildProcess` for sandboxed commands, with the same attributes for `Streams`, and a backend of
`termination`. The supervisor reports over one socket; nothing here reads /proc or signals processes by pid.
"""

import errno
import fcntl
import marshal
import os
import shutil
import signal
import socket
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

import anyio

from coretools.errors import CannotStart, CoreError, Unsupported
from coretools.process.children import reaper
from coretools.process.children.spawn import find_program, pipe, signal_name_of, start_error
from coretools.process.children.streams import TerminalSize
from coretools.process.fork_server import messages
from coretools.process.fork_server.client import PreforkedProcess
from coretools.process.fork_server.messages import SpawnRequest
from coretools.roots.path_text import printable
from coretools.roots.root import Directory
from coretools.truncation import and_more

START_SECONDS = 10.0
"""Deadline for a start, which takes a tenth of a second on a loaded machine."""

WATCH_SECONDS = 0.03
"""After this time a supervisor begins to count the processes of its command; most commands have exited by then."""

UNCERTAIN_END = "not all that it started is known to have ended"
"""Why a command is given up: a process outlasts SIGKILL, or no process is left that could report its exit."""

SUPERVISOR_LOST = "its supervisor was ended, or could end it only together with all commands"
"""Why a command has ended whose supervisor is gone."""

_MESSAGE_BYTES = 512

MAX_NAMED = 5
"""Replaced files that a result names."""

_REPLACED = {
    True: "replaced outside while the command ran, open to it for a moment, and closed again",
    False: "replaced outside while the command ran, and open to it until it ended",
}
"""By whether the file is covered again."""


class SpawnFailed(Exception):
    """The supervisor could not start the program."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}: {os.strerror(number)}")
        self.what = what
        """`directory`, `program`, or `supervisor` if that did not answer."""
        self.number = number


_Opened = tuple[tuple[int | None, int, int], list[int]]
"""Our ends of the streams, and those of the command."""


class StandardStreams(NamedTuple):
    """What a command has as standard input, output and error output: three pipes if nothing else is said."""

    fed: bool = False
    """Whether standard input is a pipe, not /dev/null."""
    size: TerminalSize | None = None
    """Of a pseudoterminal in place of the pipes."""
    files: tuple[int, int, int] | None = None
    """Descriptors in place of the pipes; they stay open here."""

    def opened(self, ours: ExitStack, theirs: ExitStack) -> _Opened:
        """Open both ends."""
        if self.files is not None:
            return (None, _at_end(ours), _at_end(ours)), list(self.files)
        return _pipes(ours, theirs, fed=self.fed) if self.size is None else _terminal(ours, theirs, self.size)


class SupervisedProcess:
    """One command. Everything that waits is async. `close` must be called."""

    def __init__(
        self, preforked: PreforkedProcess, argv: Sequence[str], pipes: tuple[int | None, int, int], status_pipe: int
    ) -> None:
        """End of file on `status_pipe` means that the program runs, a message in it why it does not."""
        self.stdin, self.stdout, self.stderr = pipes
        self._argv = argv
        self._approvals = preforked.approvals
        self._admitted = None if self._approvals is None else self._approvals.started(argv)
        self._preforked = preforked
        self._status_pipe = status_pipe
        self._was_commanded = False
        self._started = time.monotonic()
        self._status: int | None = None
        self._is_gone = False
        self._is_orphaned = False
        self._stopped = 0
        self.stopped_for = ""
        """Why the supervisor stopped the tree by itself; empty if it did not."""
        self.spool = ""
        """Directory in the spool that records its changes; empty before its end, and if it changed nothing."""
        self.duration_seconds = 0.0
        self.peak_memory_bytes = 0

    @property
    def has_exited(self) -> bool:
        """Whether `wait` or `reap` has seen the exit of the program."""
        return self._status is not None

    @property
    def argv(self) -> Sequence[str]:
        """The program and its arguments."""
        return self._argv

    @property
    def is_orphaned(self) -> bool:
        """Whether its supervisor was killed, so that `spool` is not known."""
        return self._is_orphaned

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while it runs and after a signal."""
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        return code if code is not None and code >= 0 else None

    @property
    def signal_name(self) -> str | None:
        """Name of the signal that terminated the program ("SIGKILL"), or None."""
        return None if self._status is None else signal_name_of(os.waitstatus_to_exitcode(self._status))

    async def wait_started(self) -> None:
        """Wait until the program runs.

        Raises:
            SpawnFailed: it can't be started, and why.
        """
        reply = None
        with anyio.move_on_after(START_SECONDS):
            await anyio.wait_readable(self._status_pipe)
            reply = os.read(self._status_pipe, _MESSAGE_BYTES)
        if reply is None:
            raise SpawnFailed("supervisor", errno.ETIMEDOUT)
        # A process that was killed closes the pipe as an exec does. Once its program may have run, it is not started
        # again, even if it is gone by now, with its supervisor.
        if not self._has_executed() and not reply:
            raise SpawnFailed("supervisor", 0)
        if reply:
            what, number = marshal.loads(reply)  # noqa: S302  # from our own child, before it became another program
            raise SpawnFailed(what, number)

    async def failure(self) -> SpawnFailed | None:
        """Why the program does not start; None when it runs. Otherwise our descriptors are closed."""
        with ExitStack() as undo:
            undo.callback(self.close)
            try:
                await self.wait_started()
            except SpawnFailed as failure:
                return failure
            undo.pop_all()
        return None

    async def wait(self) -> None:
        """Wait until the program itself exits, whoever else holds its pipes."""
        if not self.has_exited:
            with anyio.move_on_after(WATCH_SECONDS):
                await self._wait_for_exit()
        if not self.has_exited:
            self._send(messages.WATCH)
            await self._wait_for_exit()

    def reap(self) -> bool:
        """Whether the program has exited; reads pending messages of the supervisor."""
        self._receive()
        return self.has_exited

    async def signal(self, number: int) -> None:
        """Have the supervisor send SIGTERM or SIGKILL to every process of the tree."""
        self._send(messages.TERM if number == signal.SIGTERM else messages.KILL)

    async def wait_empty(self, seconds: float) -> bool:
        """Wait until the supervisor reports that nothing of the tree is left; False after `seconds`."""
        if not self._is_gone:
            with anyio.move_on_after(max(0.0, seconds)):
                while not self._is_gone:
                    await anyio.wait_readable(self._preforked.control)
                    self._receive()
            self._receive()
        return self._is_gone

    async def force(self) -> None:
        """Kill the whole fork server, with every command in it."""
        self._preforked.kill_all()
        await self.wait_empty(reaper.FORCE_SECONDS)

    async def finish(self) -> int:
        """Set `stopped_for` where it is not certain that everything has ended; return how many were stopped."""
        if not self._is_gone or (self._is_orphaned and not await self._preforked.wait_until_empty()):
            self.stopped_for = UNCERTAIN_END
        if not self.has_exited:
            self.duration_seconds = time.monotonic() - self._started
        return self._stopped

    def replaced_covers(self) -> list[str]:
        """Sentences about covered files that were replaced from outside while the command ran."""
        replaced = self._preforked.replaced()
        reply = []
        for is_covered, text in _REPLACED.items():
            paths = sorted(path for path in replaced if replaced[path] is is_covered)
            if paths:
                reply.append(f"{text}: {and_more(map(printable, paths[:MAX_NAMED]), len(paths))}")
        return reply

    def refused_connections(self) -> list[str]:
        """Sentences about connections to other hosts that were refused while the command ran."""
        refusals = self._preforked.refused()
        if not refusals:
            return []
        from coretools.egress.blocked_connections import (
            ASK_AGAIN,
            summary,  # imported here: only where there is a list of hosts
        )

        can_ask = self._approvals is not None and self._approvals.refused(self._argv, refusals)
        return [*summary(refusals), *([ASK_AGAIN] if can_ask else [])]

    def close_stdin(self) -> None:
        """Close the standard input of the program."""
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def close(self) -> None:
        """Close our descriptors.

        The supervisor kills what is left of the tree and exits; if nothing is left and it got no message, it preforks
        the next command and is returned to the pool.
        """
        self.close_stdin()
        if self._approvals is not None and self._admitted is not None:
            self._approvals.ended(self._admitted)
        for descriptor in (self.stdout, self.stderr, self._status_pipe):
            os.close(descriptor)
        if self._is_gone and not self._was_commanded and not self.stopped_for:
            self._preforked.give_back()
        else:
            self._preforked.close()

    async def _wait_for_exit(self) -> None:
        while not self.has_exited:
            await anyio.wait_readable(self._preforked.control)
            self._receive()

    def _receive(self) -> None:
        while not self._is_gone:
            try:
                message = self._preforked.control.recv(_MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            self._handle_message(marshal.loads(message) if message else ())  # noqa: S302  # from our own process

    def _handle_message(self, words: tuple[str | int, ...]) -> None:
        match words:
            case (messages.EXITED, int(status), int(peak), int(left), int(ended), str(spool)):
                self._status, self._stopped = status, ended
                self.duration_seconds = time.monotonic() - self._started
                self.peak_memory_bytes = peak * 1024
                self._is_gone, self.spool = left == 0, spool
            case (messages.GONE, int(peak), int(ended), str(why), str(spool)):
                self.spool = spool
                self._stopped, self.stopped_for, self._is_gone = ended, why, True
                self.peak_memory_bytes = max(self.peak_memory_bytes, peak * 1024)
            case _:
                # The supervisor itself was killed; the fork server kills what it leaves.
                self._is_gone = self._is_orphaned = True
                if self._status is None:
                    self._status = signal.SIGKILL
                    self.stopped_for = SUPERVISOR_LOST
                    self.duration_seconds = time.monotonic() - self._started

    def _has_executed(self) -> bool:
        """Whether the process had come to its exec. Takes the message, so that the next command's is not mixed up."""
        with suppress(OSError):  # it was killed before
            return bool(self._preforked.requests.recv(len(messages.EXECUTES)))
        return False

    def _send(self, word: bytes) -> None:
        self._was_commanded = True
        with suppress(OSError):
            self._preforked.control.send(word)


def spawn_supervised(
    preforked: PreforkedProcess,
    argv: Sequence[str],
    *,
    cwd: Directory,
    environment: Mapping[str, str],
    standard: StandardStreams,
) -> SupervisedProcess:
    """Send a preforked process its argv, its standard streams and its directory. Await `wait_started` afterwards.

    Raises:
        OSError: no descriptors left, or the fork server is gone. The process is used up in any case.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        ours.callback(preforked.close)
        pipes, ends = standard.opened(ours, theirs)
        request = SpawnRequest(
            argv=tuple(map(os.fsencode, argv)),
            environment=tuple((os.fsencode(name), os.fsencode(value)) for name, value in environment.items()),
            directory=os.fsencode(cwd.path),
            identity=preforked.identity_in_view(cwd),
            terminal=standard.size is not None,
            program=os.fsencode(find_program(argv[0], environment) or ""),
        )
        # In a file, since a command line may be longer than a message.
        request_file = os.memfd_create("request")
        theirs.callback(os.close, request_file)
        with open(request_file, "wb", closefd=False) as file:
            file.write(marshal.dumps(tuple(request)))
        status_pipe, status_writer = pipe(ours, theirs)
        socket.send_fds(preforked.requests, [b"."], [request_file, *ends, cwd.fd, status_writer])
        started = SupervisedProcess(preforked, argv, pipes, status_pipe)
        ours.pop_all()
    return started


def _pipes(ours: ExitStack, theirs: ExitStack, *, fed: bool) -> _Opened:
    stdin_read, stdin_write = pipe(theirs, ours) if fed else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), None)
    if not fed:
        theirs.callback(os.close, stdin_read)
    stdout_read, stdout_write = pipe(ours, theirs)
    stderr_read, stderr_write = pipe(ours, theirs)
    for descriptor in (stdin_write, stdout_read, stderr_read):
        if descriptor is not None:
            os.set_blocking(descriptor, False)
    return (stdin_write, stdout_read, stderr_read), [stdin_read, stdout_write, stderr_write]


def _terminal(ours: ExitStack, theirs: ExitStack, size: TerminalSize) -> _Opened:
    """A pseudoterminal: everything written to it counts as standard output; standard error is empty.

    Raises:
        Unsupported: there are no pseudoterminals here.
    """
    try:
        master, slave = os.openpty()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        raise Unsupported(
            f"no terminal can be made for the command ({error.strerror}): the server needs /dev/ptmx and a devpts file"
            " system mounted at /dev/pts; call again without `terminal`"
        ) from error
    theirs.callback(os.close, slave)
    ours.callback(os.close, master)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", size.rows, size.columns, 0, 0))
    os.set_blocking(master, False)
    writing = fcntl.fcntl(master, fcntl.F_DUPFD_CLOEXEC, 3)
    ours.callback(os.close, writing)
    return (writing, master, _at_end(ours)), [slave, slave, slave]


def _at_end(ours: ExitStack) -> int:
    """Return a pipe without a writer: an output that is read elsewhere, or there is none."""
    reading, writing = os.pipe()
    os.close(writing)
    ours.callback(os.close, reading)
    os.set_blocking(reading, False)
    return reading


def start_failure(
    failure: SpawnFailed,
    argv: Sequence[str],
    cwd: Directory,
    *,
    environment: Mapping[str, str],
    sees: Callable[[str], bool],
) -> CoreError:
    """The error for a program that could not be started; `sees` states whether commands can see a path."""
    if failure.what == "directory":
        return CannotStart(f"{cwd.display_path}: can't be the working directory: {os.strerror(failure.number)}")
    error = OSError(failure.number, os.strerror(failure.number))
    program = argv[0] if os.path.isabs(argv[0]) else shutil.which(argv[0], path=environment.get("PATH"))
    is_hidden = failure.number in (errno.ENOENT, errno.EACCES) and program is not None and os.path.exists(program)
    if is_hidden and program is not None and not sees(program):
        return CannotStart(
            f"{argv[0]}: is {program}, which is hidden from commands;"
            " the operator can grant it (readable, in the policy file)"
        )
    return start_error(error, argv, cwd, place="", environment=environment)
