"""The one place where a child is started. Short, but blocking: until the child has reached exec.

Nothing has to run between fork and exec (no `preexec_fn`, which would also cost the vfork: 2.3 ms instead of 0.34 ms a
start): confinement has its place in a thread that restricts itself and calls this, since a child inherits what a thread
restricts of itself.
"""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from coretools.errors import Busy, CannotStart, CoreError, InputOutput, InvalidArguments
from coretools.process.children import reaper
from coretools.process.children.child import ChildProcess, exit_handle
from coretools.roots.read import Directory

# Why a program did not start, as a sentence: the system's error number alone does not say what would work.


def start_error(
    error: OSError, argv: Sequence[str], cwd: Directory, *, place: str, environment: Mapping[str, str]
) -> CoreError:
    """The error to raise for what starting `argv` in `cwd` (entered as `place`) failed with."""
    program = argv[0]
    if error.filename == place:
        return CannotStart(f"{cwd.shown}: can't be the working directory: {error.strerror}")
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return Busy(f"{program}: the system has no room for another process now; try again later")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return InputOutput(f"{program}: the server has no file descriptors left; try again when fewer commands run")
    if error.errno == errno.E2BIG:
        size = sum(len(os.fsencode(word)) + 1 for word in argv)
        return CannotStart(f"{program}: argument list too long ({size} bytes); pass the data in a file or on stdin")
    if error.errno == errno.ENOEXEC:
        return CannotStart(f"{program}: has no #! line and no format that this system runs; try: sh {program}")
    return CannotStart(f"{program or '(empty name)'}: {_reason(error, program, cwd, environment)}")


def _reason(error: OSError, program: str, cwd: Directory, environment: Mapping[str, str]) -> str:
    """What is wrong with the program, found by looking where the child would have looked."""
    found = _first_existing(program, cwd, environment)
    if found is None and "/" in program:
        return f"no such program (working directory: {cwd.shown})"
    if found is None:
        return f"not found in PATH{_advice(program, cwd)}"
    if stat.S_ISDIR(found.st_mode):
        return "is a directory, not a program"
    if error.errno == errno.ENOENT:
        return "is there, but the interpreter that its first line names, or its loader, is not"
    if error.errno == errno.EACCES and not found.st_mode & 0o111:
        return "is not executable; start it with its interpreter, or make it executable (chmod +x)"
    return error.strerror or "can't be started"


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
    return f"; to start the one in {cwd.shown}, write ./{program}"


CWD_BY_HANDLE = sys.platform == "linux" and os.path.isdir("/proc/self/fd")
"""Whether a child enters its working directory by the handle itself, with no path to be exchanged underway."""


def check_argv(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Refuse what no system call can carry.

    Raises:
        InvalidArguments: no words, a NUL, a character that the file system encoding lacks, `=` in a variable's name.
    """
    if not argv:
        raise InvalidArguments("no program named: argv is empty")
    words = (*argv, *environment, *environment.values())
    # One look at all of them together: a git call has a hundred words, nearly always plain ones.
    together = "".join(words)
    if "\0" in together or not together.isascii():
        for word in words:
            _check_word(word)
    for name in environment:
        if not name or "=" in name:
            raise InvalidArguments(f"environment variable {name!r}: not a name")


def find_program(program: str, environment: Mapping[str, str]) -> str | None:
    """The program in the child's PATH; None leaves the search, and the reason why it fails, to the system.

    Without it the child tries one folder after the other by execve: 10 us for each that lacks the program.
    """
    if "/" in program:
        return None
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        if not folder.startswith("/"):
            return None  # it means one in the child's working directory, not in ours
        found = f"{folder}/{program}"
        if os.access(found, os.X_OK) and os.path.isfile(found):
            return found
    return None


def _check_word(word: str) -> None:
    if "\0" in word:
        raise InvalidArguments(f"{word[:80]!r}: holds a NUL character, which no argument or variable can carry")
    try:
        os.fsencode(word)
    except UnicodeEncodeError:
        raise InvalidArguments(f"{word[:80]!r}: holds a lone surrogate, which has no bytes") from None


def spawn(argv: Sequence[str], *, cwd: Directory, environment: Mapping[str, str], fed: bool) -> ChildProcess:
    """Start a program in a session and process group of its own.

    Its standard input is a pipe when `fed`, else /dev/null; its outputs are pipes whose reading ends never block. The
    program is looked up in the PATH of `environment`, a relative one (`./build.sh`) in `cwd`.

    Raises:
        CannotStart: not found, not executable, no interpreter, too long, or the directory is gone.
        Busy: no more processes for this user. InputOutput: no more descriptors.
    """
    place = f"/proc/self/fd/{cwd.fd}" if CWD_BY_HANDLE else cwd.path
    # Entering a directory that was removed works by handle, and every program in it fails in its own way.
    if os.fstat(cwd.fd).st_nlink == 0:
        raise CannotStart(f"{cwd.shown}: the working directory is gone")
    with ExitStack() as ours, ExitStack() as theirs:
        try:
            stdin_read, stdin_write = pipe(theirs, ours) if fed else (subprocess.DEVNULL, None)
            stdout_read, stdout_write = pipe(ours, theirs)
            stderr_read, stderr_write = pipe(ours, theirs)
            started = time.monotonic()
            process = subprocess.Popen(
                argv,
                executable=find_program(argv[0], environment),
                stdin=stdin_read,
                stdout=stdout_write,
                stderr=stderr_write,
                cwd=place,
                env=environment,
                start_new_session=True,
            )
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
        # Through vfork and exec a child starts with its parent's peak (Linux, exec_mmap: `true` started by a server of
        # 215 MB is reported with 215 MB), so a figure is the child's own only above this one.
        peak_floor=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def _exit_handle(process: "subprocess.Popen[bytes]") -> int:
    """The child's exit handle; without one the child is ended, since nobody would notice its own end."""
    try:
        return exit_handle(process.pid)
    except OSError:
        reaper.signal_group(process.pid, signal.SIGKILL)
        process.wait()
        raise


def pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe whose reading and writing ends are closed with the two stacks."""
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing
