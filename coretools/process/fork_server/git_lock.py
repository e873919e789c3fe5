"""Replace a configuration of git under git's own lock, which a killed server does not leave behind for good.

git creates `config.lock`, and whoever finds one gives up, for ever if its maker was killed. Ours holds one line of text
and an advisory lock (flock(2)), which ends with the process: so a later server knows it as one of ours that nobody
holds, and takes it over. Any other lock is left alone, because a git that holds one can't be told from one that died.
"""

import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

from coretools.confinement.git_copies import read_regular_file
from coretools.roots.replace import rename_no_replace
from coretools.roots.root_set import identity_of

TEXT = b"A coretools server changes this configuration. When none runs any more, this file may be removed.\n"
"""Content of a lock of ours, there from its first moment."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EXISTING = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def replace(directory: int, name: str, change: Callable[[bytes], bytes]) -> None:
    """Replace a file by what `change` makes of its bytes.

    Raises:
        FileExistsError: somebody else has the lock.
        OSError: the file can't be read or replaced. What `change` raises.
    """
    handle = _acquire(directory, f"{name}.lock")
    try:
        data, found = read_regular_file(name, directory)
        _write(directory, name, change(data), found)
    finally:
        _release(directory, name, handle)


def remove_stale(directory: int, name: str) -> None:
    """Remove the lock of a server that was killed, and the new file beside it; any other lock stays."""
    with suppress(OSError):
        handle = _take_over_stale(directory, f"{name}.lock")
        if handle is not None:
            _release(directory, name, handle)


def _acquire(directory: int, lock: str) -> int:
    """A handle on the lock, which holds it: a new one, or one that a killed server left."""
    name = f"{lock}.{token_hex(4)}"  # complete before it has its name, so that no part of it is ever found there
    handle = os.open(name, _NEW, 0o600, dir_fd=directory)
    try:
        os.write(handle, TEXT)
        with suppress(OSError):  # a file system without: then nobody takes this lock for one that is left
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
    """The same of a lock that a killed server left; None when there is none, or it may be held by somebody."""
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


def _write(directory: int, name: str, data: bytes, found: os.stat_result) -> None:
    """Give a new file with the owner and the permissions of the old one its name."""
    new = _temporary_name(name)
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=directory)
    handle = os.open(new, _NEW, 0o600, dir_fd=directory)
    try:
        with suppress(OSError):  # not everybody may give files away
            os.fchown(handle, found.st_uid, found.st_gid)
        os.fchmod(handle, stat.S_IMODE(found.st_mode) & 0o777)
        with open(handle, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(handle)
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(handle)


def _release(directory: int, name: str, handle: int) -> None:
    """Remove the lock, and a new file that got no further."""
    try:
        for one in (_temporary_name(name), f"{name}.lock"):
            with suppress(FileNotFoundError):
                os.unlink(one, dir_fd=directory)
    finally:
        os.close(handle)


def _temporary_name(name: str) -> str:
    """One name for all: only who holds the lock uses it. With `config` in it, it is kept from commands (`masks`)."""
    return f"{name}.lock.new"
