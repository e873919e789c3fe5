"""Why a program did not start, as a sentence: the system's error number alone does not say what would work."""

import errno
import os
import stat
from collections.abc import Mapping, Sequence

from coretools.errors import Busy, CannotStart, CoreError, InputOutput
from coretools.sandbox.reading import Directory


def refusal(
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
    return CannotStart(f"{program or '(empty name)'}: {_fault(error, program, cwd, environment)}")


def _fault(error: OSError, program: str, cwd: Directory, environment: Mapping[str, str]) -> str:
    """What is wrong with the program, found by looking where the child would have looked."""
    found = _first_there(program, cwd, environment)
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


def _first_there(program: str, cwd: Directory, environment: Mapping[str, str]) -> os.stat_result | None:
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
