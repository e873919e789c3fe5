"""Start child processes, and wait for their exit. A start blocks shortly, until the child has reached exec.

Nothing runs between fork and exec: a `preexec_fn` would cost the vfork (2.3 ms instead of 0.34 ms for a start). To
confine a child, a confined thread calls `spawn`: a child inherits the restrictions of the thread that starts it.
"""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

import anyio

from coretools.errors import Busy, CannotStart, CoreError, InputOutput, InvalidArguments
from coretools.process.children import reaper
from coretools.roots.root import Directory

HAS_PIDFD = sys.platform == "linux" and hasattr(os, "pidfd_open")
"""Whether a pidfd reports the exit of a child (Linux 5.3); elsewhere a thread waits for each child."""

MAX_SHOWN_PROGRAM = 200
"""Characters of a program's name in an error."""

_STATUS_UNKNOWN = 256
"""Placeholder for an exit code that the kernel did not keep; real ones end at 255."""


def exit_handle(pid: int) -> int:
    """A descriptor that becomes readable when the child exits. It does not reap the child."""
    if HAS_PIDFD:
        try:
            return os.pidfd_open(pid)
        except OSError:  # blocked by a seccomp filter, or no descriptors left
            pass
    return exit_handle_by_thread(pid)


def exit_handle_by_thread(pid: int) -> int:
    """The same without a pidfd: a pipe whose other end a waiting thread closes."""
    reading, writing = os.pipe()

    def wait() -> None:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # reaped meanwhile
            pass
        finally:
            os.close(writing)

    threading.Thread(target=wait, name=f"exit of {pid}", daemon=True).start()
    return reading


def signal_name_of(exit_code: int | None) -> str | None:
    """Return the name of the signal that a negative exit code stands for ("SIGKILL"); None for any other."""
    if exit_code is None or exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:  # real-time signals between SIGRTMIN and SIGRTMAX have no names
        return f"SIG{-exit_code}"


class ChildProcess:
    """One child. Only `wait` and `kill` block. `close` must be called, on the event loop."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        exit_handle: int,
        pipes: tuple[int | None, int, int],
        started: float,
        peak_floor: int,
    ) -> None:
        self.pid = process.pid
        self.stdin, self.stdout, self.stderr = pipes
        self._process = process
        self._exit_handle = exit_handle
        self._started = started
        self._peak_floor = peak_floor
        self._has_exited = False
        self.duration_seconds = 0.0
        self.peak_memory_bytes = 0
        self.stopped_for = ""
        """Always empty: only a supervisor stops commands for reasons of its own."""

    @property
    def has_exited(self) -> bool:
        """Whether `wait` or `reap` has seen the exit of the program."""
        return self._has_exited

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while it runs, after a signal, or when the kernel kept no status."""
        code = self._process.returncode
        return code if code is not None and 0 <= code < _STATUS_UNKNOWN else None

    @property
    def signal_name(self) -> str | None:
        """Name of the signal that terminated the program ("SIGKILL"), or None."""
        return signal_name_of(self._process.returncode)

    async def wait(self) -> None:
        """Wait until the program itself exits, whoever else holds its pipes."""
        if not self._has_exited:
            await anyio.wait_readable(self._exit_handle)
            self._record_exit()

    def reap(self) -> bool:
        """Collect the exit status if the program has exited; False while it runs."""
        if self._process.returncode is not None:
            return True
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:  # the server was started with SIGCHLD ignored: the kernel keeps no status
            self._record_exit()
            self._process.returncode = _STATUS_UNKNOWN
            return True
        if pid == 0:
            return False
        self._record_exit()
        # Popen must neither wait for it again nor warn about a child that was never waited for.
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if usage.ru_maxrss > self._peak_floor:
            self.peak_memory_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return True

    def group_exists(self) -> bool:
        """Whether the process group has members. Only valid after `reap`: until then the child itself is one.

        The kernel does not reuse the number while the group has a member.
        """
        try:
            # A server that is process 1 of a container inherits orphans; as zombies they would count as members.
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            pass
        return reaper.group_exists(self.pid)

    def signal_group(self, number: int) -> None:
        """Signal the whole process group."""
        reaper.signal_group(self.pid, number)

    def kill(self) -> None:
        """Kill and reap. Blocks: for a child that no task waits for any more."""
        self.signal_group(signal.SIGKILL)
        self._process.wait()
        self.close()

    def close_stdin(self) -> None:
        """Close the standard input of the child."""
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def close(self) -> None:
        """Close our descriptors."""
        self.close_stdin()
        for descriptor in (self._exit_handle, self.stdout, self.stderr):
            os.close(descriptor)

    def _record_exit(self) -> None:
        if not self._has_exited:
            self._has_exited = True
            self.duration_seconds = time.monotonic() - self._started


NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell for a program that it can't start (POSIX, sh: 2.8.2)."""


def start_error(
    error: OSError, argv: Sequence[str], cwd: Directory, *, place: str, environment: Mapping[str, str]
) -> CoreError:
    """The error for a failed start of `argv` in `cwd` (entered as `place`): what is wrong, and what would work."""
    program = argv[0]
    shown = program if len(program) <= MAX_SHOWN_PROGRAM else f"{program[:MAX_SHOWN_PROGRAM]}..."
    if error.filename == place:
        return CannotStart(f"{cwd.display_path}: can't be the working directory: {error.strerror}")
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return Busy(f"{shown}: the system has no room for another process now; try again later")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return InputOutput(f"{shown}: the server has no file descriptors left; try again when fewer commands run")
    exit_code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
    if error.errno == errno.E2BIG:
        why = _too_long(argv, environment)
    elif error.errno == errno.ENOEXEC:
        why = f"has no #! line and no format that this system runs; try: sh {shown}"
    else:
        why = _reason(error, program, cwd, environment)
    return CannotStart(f"{shown or '(empty name)'}: {why}", exit_code=exit_code)


def _reason(error: OSError, program: str, cwd: Directory, environment: Mapping[str, str]) -> str:
    """What is wrong with the program, found by searching as the child would have done."""
    status = _first_existing(program, cwd, environment)
    if status is None and "/" in program:
        return f"no such program (working directory: {cwd.display_path})"
    if status is None:
        return f"not found in PATH{_advice(program, cwd)}"
    if stat.S_ISDIR(status.st_mode):
        return "is a directory, not a program"
    if error.errno == errno.ENOENT:
        return "is there, but the interpreter that its first line names, or its loader, is not"
    if error.errno == errno.EACCES and not status.st_mode & 0o111:
        return "is not executable; start it with its interpreter, or make it executable (chmod +x)"
    return error.strerror or "can't be started"


def _too_long(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    words = sum(len(os.fsencode(word)) + 1 for word in argv)
    variables = sum(len(os.fsencode(name)) + len(os.fsencode(text)) + 2 for name, text in environment.items())
    size = f"{words} bytes, and {variables} bytes of variables"
    return f"argument list too long ({size}); pass the data in a file or on stdin"


def _first_existing(program: str, cwd: Directory, environment: Mapping[str, str]) -> os.stat_result | None:
    folders = [""] if "/" in program or not program else os.get_exec_path(environment)
    for folder in folders:
        try:
            return os.stat(os.path.join(folder, program), dir_fd=cwd.fd)
        except (OSError, ValueError):
            continue
    return None


def _advice(program: str, cwd: Directory) -> str:
    if "=" in program:
        return "; to set a variable for a command, run it by `env` or by an explicit `sh -c '...'`"
    try:
        os.stat(program, dir_fd=cwd.fd, follow_symlinks=False)
    except OSError:
        return ""
    return f"; to start the one in {cwd.display_path}, write ./{program}"


CWD_BY_HANDLE = sys.platform == "linux" and os.path.isdir("/proc/self/fd")
"""Whether a child enters its working directory through the open descriptor, so that nobody can replace the path."""


def check_argv(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Refuse arguments and variables that execve can't pass on.

    Raises:
        InvalidArguments: empty argv, a NUL, a character outside the file system encoding, `=` in a variable's name.
    """
    if not argv:
        raise InvalidArguments("no program named: argv is empty")
    words = (*argv, *environment, *environment.values())
    # One check for all of them: a git call has a hundred words, nearly always plain ASCII.
    together = "".join(words)
    if "\0" in together or not together.isascii():
        for word in words:
            _check_word(word)
    for name in environment:
        if not name or "=" in name:
            raise InvalidArguments(f"environment variable {name!r}: not a name")


def find_program(program: str, environment: Mapping[str, str]) -> str | None:
    """Find the program in the PATH of the child; None leaves the search, and its error, to the system.

    Otherwise the child tries execve in one directory after the other: 10 us for each that lacks the program.
    """
    if "/" in program:
        return None
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        if not folder.startswith("/"):
            return None  # relative to the working directory of the child, not to ours
        file = f"{folder}/{program}"
        if os.access(file, os.X_OK) and os.path.isfile(file):
            return file
    return None


def _check_word(word: str) -> None:
    if "\0" in word:
        raise InvalidArguments(f"{word[:80]!r}: holds a NUL character, which no argument or variable can carry")
    try:
        os.fsencode(word)
    except UnicodeEncodeError:
        raise InvalidArguments(f"{word[:80]!r}: holds a lone surrogate, which has no bytes") from None


class InheritedFiles(NamedTuple):
    """Descriptors that a child inherits besides its pipes."""

    connection: int | None = None
    """A socket in place of standard input and output."""
    passed: tuple[int, ...] = ()
    """Inherited under the same numbers."""


_NONE_INHERITED = InheritedFiles()


def spawn(
    argv: Sequence[str],
    *,
    cwd: Directory,
    environment: Mapping[str, str],
    fed: bool,
    inherited: InheritedFiles = _NONE_INHERITED,
) -> ChildProcess:
    """Start a program in a session and process group of its own.

    Standard input is a pipe if `fed`, else /dev/null; the outputs are pipes with non-blocking reading ends. The program
    is searched in the PATH of `environment`, a relative one (`./build.sh`) in `cwd`.

    Raises:
        CannotStart: not found, not executable, no interpreter, too long, or the directory is gone.
        Busy: no more processes for this user. InputOutput: no more descriptors.
    """
    place = f"/proc/self/fd/{cwd.fd}" if CWD_BY_HANDLE else cwd.path
    # A removed directory can still be entered through its descriptor, and then every program fails in its own way.
    if os.fstat(cwd.fd).st_nlink == 0:
        raise CannotStart(f"{cwd.display_path}: the working directory is gone")
    with ExitStack() as ours, ExitStack() as theirs:
        try:
            stdin_read, stdin_write = pipe(theirs, ours) if fed else (subprocess.DEVNULL, None)
            stdout_read, stdout_write = pipe(ours, theirs)
            stderr_read, stderr_write = pipe(ours, theirs)
            started = time.monotonic()
            streams = (stdin_read, stdout_write, stderr_write)
            if inherited.connection is not None:
                streams = (inherited.connection, inherited.connection, stderr_write)
            process = _popen(argv, streams, place, environment, inherited.passed)
            handle = _exit_handle(process)
        except OSError as error:
            raise start_error(error, argv, cwd, place=place, environment=environment) from error
        ours.pop_all()
    for descriptor in (stdin_write, stdout_read, stderr_read):
        if descriptor is not None:
            os.set_blocking(descriptor, False)
    return ChildProcess(
        process,
        exit_handle=handle,
        pipes=(stdin_write, stdout_read, stderr_read),
        started=started,
        # Through vfork and exec a child inherits the peak of its parent (Linux, exec_mmap: `true` started by a server
        # of 215 MB reports 215 MB), so a figure belongs to the child only if it is above this one.
        peak_floor=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def limit_memory(pid: int, most_bytes: int) -> None:
    """Limit the memory for data of a child that has just started, and of what it will start."""
    # Not between fork and exec: Python would have to run there. The child has not got far by now.
    with suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (most_bytes, most_bytes))


def _popen(
    argv: Sequence[str],
    streams: tuple[int, int, int],
    place: str,
    environment: Mapping[str, str],
    passed: tuple[int, ...],
) -> "subprocess.Popen[bytes]":
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        argv,
        executable=find_program(argv[0], environment),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=place,
        env=environment,
        start_new_session=True,
        pass_fds=passed,
    )


def _exit_handle(process: "subprocess.Popen[bytes]") -> int:
    """The exit handle of the child. Without one the child is killed, since nobody would notice its exit."""
    try:
        return exit_handle(process.pid)
    except OSError:
        reaper.signal_group(process.pid, signal.SIGKILL)
        process.wait()
        raise


def pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Create a pipe; the two stacks close its reading and its writing end."""
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing
