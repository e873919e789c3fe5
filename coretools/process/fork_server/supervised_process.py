"""A command under its supervisor, as the runner sees it: start, exit, the end of its whole tree.

The counterpart of `child`, for commands that are held by the kernel: the same attributes, so that `streams` carries
either. What the supervisor says comes over one socket; nothing here looks at /proc or signals by number.
"""

import errno
import fcntl
import marshal
import os
import signal
import socket
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

import anyio

from coretools.process.children import reaper
from coretools.process.children.spawn import find_program, pipe
from coretools.process.children.streams import TerminalSize
from coretools.process.fork_server import supervisor
from coretools.process.fork_server.client import PreforkedProcess
from coretools.process.fork_server.command_process import SpawnRequest
from coretools.roots.path_text import printable
from coretools.roots.read import Directory

START_SECONDS = 10.0
"""A command that has neither started nor failed by then never will; a loaded machine takes a tenth of a second."""

WATCH_SECONDS = 0.03
"""After this long a supervisor begins to count the processes of its command; most commands have ended by then."""

UNCERTAIN_END = "not all that it started is known to have ended"
"""Why a command is given up: what KILL does not end at once, or nobody is left who could tell."""

SUPERVISOR_LOST = "its supervisor was ended, or could end it only together with all commands"
"""Why a command has ended whose supervisor says nothing any more."""

_MESSAGE_BYTES = 512

MAX_NAMED = 5
"""Replaced files that are named."""

_REPLACED = {
    True: "replaced outside while the command ran, open to it for a moment, and closed again",
    False: "replaced outside while the command ran, and open to it until it ended",
}
"""By whether the file was covered again."""


class SpawnFailed(Exception):
    """The supervisor could not start the program."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}: {os.strerror(number)}")
        self.what = what
        """`directory`, `program`, or `supervisor` when there was nobody to start it."""
        self.number = number


class SupervisedProcess:
    """One command. Everything here is quick; what waits is async. `close` must be called."""

    def __init__(self, preforked: PreforkedProcess, pipes: tuple[int | None, int, int], status_pipe: int) -> None:
        """`telling` is a pipe: its end says that the program runs, words in it why it does not."""
        self.stdin, self.stdout, self.stderr = pipes
        self._preforked = preforked
        self._status_pipe = status_pipe
        self._was_commanded = False
        self._started = time.monotonic()
        self._status: int | None = None
        self._is_gone = False
        self._is_orphaned = False
        self._stopped = 0
        self.stopped_for = ""
        """Why the supervisor ended the tree by itself; empty when it did not."""
        self.duration_seconds = 0.0
        self.peak_memory_bytes = 0

    @property
    def has_exited(self) -> bool:
        """Whether `exited` or `reap` saw the end of the program."""
        return self._status is not None

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while it runs, and when a signal ended it."""
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        return code if code is not None and code >= 0 else None

    @property
    def signal_name(self) -> str | None:
        """The signal that ended it ("SIGKILL"), None when there was none."""
        code = 0 if self._status is None else os.waitstatus_to_exitcode(self._status)
        if code >= 0:
            return None
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"SIG{-code}"

    async def wait_started(self) -> None:
        """Wait until the program runs.

        Raises:
            NotStarted: it can't be started, and why.
        """
        reply = None
        with anyio.move_on_after(START_SECONDS):
            await anyio.wait_readable(self._status_pipe)
            reply = os.read(self._status_pipe, _MESSAGE_BYTES)
        # A waiting command that was ended closes the pipe too; its supervisor then says so at once.
        if reply is None:
            raise SpawnFailed("supervisor", errno.ETIMEDOUT)
        if not reply and self._is_supervisor_lost():
            raise SpawnFailed("supervisor", 0)
        if reply:
            what, number = marshal.loads(reply)  # noqa: S302  # from our own child, before it became another program
            raise SpawnFailed(what, number)

    async def wait(self) -> None:
        """Wait for the end of the program itself, whoever else holds its pipes."""
        if not self.has_exited:
            with anyio.move_on_after(WATCH_SECONDS):
                await self._wait_for_exit()
        if not self.has_exited:
            self._send(supervisor.WATCH)
            await self._wait_for_exit()

    def reap(self) -> bool:
        """Whether the program has ended; takes what the supervisor has said until now."""
        self._receive()
        return self.has_exited

    async def signal(self, number: int) -> None:
        """Have the supervisor send SIGTERM or SIGKILL to every process of the tree."""
        self._send(supervisor.TERM if number == signal.SIGTERM else supervisor.KILL)

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
        """What is to be said of covered files that somebody outside replaced while it ran, in sentences."""
        found = self._preforked.replaced()
        reply = []
        for is_covered, text in _REPLACED.items():
            paths = sorted(path for path in found if found[path] is is_covered)
            more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
            if paths:
                reply.append(f"{text}: {', '.join(map(printable, paths[:MAX_NAMED]))}{more}")
        return reply

    def close_stdin(self) -> None:
        """End the input of the program."""
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def close(self) -> None:
        """Close our ends.

        What is left of the tree is ended by the supervisor, which then ends itself; one that has nothing left and was
        told nothing has the next command waiting.
        """
        self.close_stdin()
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
            case (supervisor.EXITED, int(status), int(peak), int(left), int(ended)):
                self._status, self._stopped = status, ended
                self.duration_seconds = time.monotonic() - self._started
                self.peak_memory_bytes = peak * 1024
                self._is_gone = left == 0
            case (supervisor.GONE, int(peak), int(ended), str(why)):
                self._stopped, self.stopped_for, self._is_gone = ended, why, True
                self.peak_memory_bytes = max(self.peak_memory_bytes, peak * 1024)
            case _:
                # The supervisor itself was ended; the spawner ends what it leaves.
                self._is_gone = self._is_orphaned = True
                if self._status is None:
                    self._status = signal.SIGKILL
                    self.stopped_for = SUPERVISOR_LOST
                    self.duration_seconds = time.monotonic() - self._started

    def _is_supervisor_lost(self) -> bool:
        """Whether the command ended without having been the program: its exit says that it was still waiting."""
        self._receive()
        return self.stopped_for == SUPERVISOR_LOST

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
    fed: bool,
    size: TerminalSize | None,
) -> SupervisedProcess:
    """Give a waiting command its argv, its pipes or its terminal, and its directory. Whether it starts tells `started`.

    Raises:
        OSError: no descriptors left, or the spawner is gone. The slot is used up in any case.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        ours.callback(preforked.close)
        pipes, ends = _pipes(ours, theirs, fed=fed) if size is None else _terminal(ours, theirs, size)
        found = os.fstat(cwd.fd)
        request = SpawnRequest(
            argv=tuple(map(os.fsencode, argv)),
            environment=tuple((os.fsencode(name), os.fsencode(value)) for name, value in environment.items()),
            directory=os.fsencode(cwd.path),
            identity=(found.st_dev, found.st_ino),
            terminal=size is not None,
            program=os.fsencode(find_program(argv[0], environment) or ""),
        )
        # In a file, since a message has a limit and a command line a larger one.
        request_file = os.memfd_create("order")
        theirs.callback(os.close, request_file)
        with open(request_file, "wb", closefd=False) as file:
            file.write(marshal.dumps(tuple(request)))
        status_pipe, status_writer = pipe(ours, theirs)
        socket.send_fds(preforked.requests, [b"."], [request_file, *ends, cwd.fd, status_writer])
        started = SupervisedProcess(preforked, pipes, status_pipe)
        ours.pop_all()
    return started


def _pipes(ours: ExitStack, theirs: ExitStack, *, fed: bool) -> tuple[tuple[int | None, int, int], list[int]]:
    stdin_read, stdin_write = pipe(theirs, ours) if fed else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), None)
    if not fed:
        theirs.callback(os.close, stdin_read)
    stdout_read, stdout_write = pipe(ours, theirs)
    stderr_read, stderr_write = pipe(ours, theirs)
    for descriptor in (stdin_write, stdout_read, stderr_read):
        if descriptor is not None:
            os.set_blocking(descriptor, False)
    return (stdin_write, stdout_read, stderr_read), [stdin_read, stdout_write, stderr_write]


def _terminal(ours: ExitStack, theirs: ExitStack, size: TerminalSize) -> tuple[tuple[int | None, int, int], list[int]]:
    """A terminal: what is written to it comes as output, and there is no other output."""
    master, slave = os.openpty()
    theirs.callback(os.close, slave)
    ours.callback(os.close, master)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", size.rows, size.columns, 0, 0))
    os.set_blocking(master, False)
    writing = fcntl.fcntl(master, fcntl.F_DUPFD_CLOEXEC, 3)
    ours.callback(os.close, writing)
    nothing, end = os.pipe()
    os.close(end)
    ours.callback(os.close, nothing)
    os.set_blocking(nothing, False)
    return (writing, master, nothing), [slave, slave, slave]
