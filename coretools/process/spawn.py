"""The one place where a child is started. Short, but blocking: until the child has reached exec.

Nothing has to run between fork and exec (no `preexec_fn`, which would also cost the vfork: 2.3 ms instead of 0.34 ms a
start): confinement has its place in a thread that restricts itself and calls this, since a child inherits what a thread
restricts of itself.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from coretools.errors import CannotStart, InvalidArguments
from coretools.process import survivors
from coretools.process.child import Child, exit_handle
from coretools.process.refusals import refusal
from coretools.sandbox.reading import Directory

CWD_BY_HANDLE = sys.platform == "linux" and os.path.isdir("/proc/self/fd")
"""Whether a child enters its working directory by the handle itself, with no path to be exchanged underway."""


def check_words(argv: Sequence[str], environment: Mapping[str, str]) -> None:
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


def found_program(program: str, environment: Mapping[str, str]) -> str | None:
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


def spawn(argv: Sequence[str], *, cwd: Directory, environment: Mapping[str, str], fed: bool) -> Child:
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
                executable=found_program(argv[0], environment),
                stdin=stdin_read,
                stdout=stdout_write,
                stderr=stderr_write,
                cwd=place,
                env=environment,
                start_new_session=True,
            )
            handle = _exit_handle(process)
        except OSError as error:
            raise refusal(error, argv, cwd, place=place, environment=environment) from error
        ours.pop_all()
    for descriptor in (stdin_write, stdout_read, stderr_read):
        if descriptor is not None:
            os.set_blocking(descriptor, False)
    return Child(
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
        survivors.signal_group(process.pid, signal.SIGKILL)
        process.wait()
        raise


def pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe whose reading and writing ends are closed with the two stacks."""
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing
