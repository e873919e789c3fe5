"""Replace a git configuration under git's own lock file, without leaving a stale lock when the server is killed.

git creates `config.lock`, and a process that finds one gives up, for ever if its owner was killed. Our lock file
contains one line of text and has an advisory lock (flock(2)), which ends with the process: so a later server recognizes
a stale lock of ours and takes it over. Other locks are left alone: a live git can't be told from one that was killed.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

from coretools.confinement.git_copies import MAX_CONFIG_BYTES
from coretools.regular_file import NEW_FILE, copy_owner_and_mode, read_regular, replacing, write_all
from coretools.roots.replace import rename_no_replace
from coretools.roots.root import identity_of

TEXT = b"A coretools server changes this configuration. When none runs any more, this file may be removed.\n"
"""Content of our lock files, complete before they get their name."""

_EXISTING = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def replace(directory: int, name: str, change: Callable[[bytes], bytes]) -> None:
    """Replace a file by `change` of its content.

    Raises:
        FileExistsError: somebody else holds the lock.
        OSError: the file can't be read or replaced. Exceptions of `change`.
    """
    handle = _acquire(directory, f"{name}.lock")
    try:
        data, found = read_regular(name, MAX_CONFIG_BYTES, directory=directory)
        _write(directory, name, change(data), found)
    finally:
        _release(directory, name, handle)


def replace_without_lock(directory: int, name: str, change: Callable[[bytes], bytes]) -> None:
    """Replace a file by `change` of its content although somebody holds the lock, perhaps to prevent just this.

    Raises:
        OSError: the file can't be read or replaced. Exceptions of `change`.
    """
    data, found = read_regular(name, MAX_CONFIG_BYTES, directory=directory)
    _write(directory, name, change(data), found)


def remove_stale(directory: int, name: str) -> None:
    """Remove the stale lock of a killed server and its temporary file; any other lock stays."""
    with suppress(OSError):
        handle = _take_over_stale(directory, f"{name}.lock")
        if handle is not None:
            _release(directory, name, handle)


def _acquire(directory: int, lock: str) -> int:
    """Acquire the lock, new or stale; the returned descriptor holds it."""
    name = f"{lock}.{token_hex(4)}"  # complete before it gets its name
    handle = os.open(name, NEW_FILE, 0o600, dir_fd=directory)
    try:
        os.write(handle, TEXT)
        with suppress(OSError):  # a file system without flock: then no server takes this lock for a stale one
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        rename_no_replace(directory, name, directory, lock)
    except BaseException as error:
        os.close(handle)
        os.unlink(name, dir_fd=directory)
        if isinstance(error, FileExistsError) and (left := _take_over_stale(directory, lock)) is not None:
            return left
        raise
    return handle


def _take_over_stale(directory: int, lock: str) -> int | None:
    """Acquire the stale lock of a killed server; None if there is none, or somebody may hold it."""
    try:
        handle = os.open(lock, _EXISTING, dir_fd=directory)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        named = os.stat(lock, dir_fd=directory, follow_symlinks=False)
        is_there = identity_of(named) == identity_of(os.fstat(handle))  # another server may have been faster
        if is_there and os.read(handle, len(TEXT) + 1) == TEXT:
            return handle
    os.close(handle)
    return None


def _write(directory: int, name: str, data: bytes, status: os.stat_result) -> None:
    """Write a temporary file with the owner and the mode of the old one, and rename it."""
    new = _temporary_name(name)
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=directory)
    with replacing(name, directory=directory, mode=0o600, temporary=new) as handle:
        copy_owner_and_mode(handle, status)
        write_all(handle, data)


def _release(directory: int, name: str, handle: int) -> None:
    """Remove the lock, and the temporary file if it was not renamed."""
    try:
        for one in (_temporary_name(name), f"{name}.lock"):
            with suppress(FileNotFoundError):
                os.unlink(one, dir_fd=directory)
    finally:
        os.close(handle)


def _temporary_name(name: str) -> str:
    """Name of the temporary file, used under the lock only; `entry_reader` hides `config*` from commands."""
    return f"{name}.lock.new"
