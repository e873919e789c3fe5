"""Files in the user's state directory: private, replaced as a whole, locked between processes."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from coretools.regular_file import read_regular, replacing, write_all

MAX_BYTES = 16 * 1024 * 1024
"""Largest file that is read."""


def read_state_file(path: str) -> tuple[bytes, os.stat_result]:
    """Return the content and the status of a file, without following a link.

    Raises:
        OSError: it can't be read.
    """
    return read_regular(path, MAX_BYTES)


def is_own_file(status: os.stat_result, *, hidden_bits: int) -> bool:
    """Whether it is a regular file of ours, under one name, whose mode has none of the bits."""
    is_own = status.st_uid == os.geteuid() and status.st_nlink == 1
    return is_own and stat.S_ISREG(status.st_mode) and not status.st_mode & hidden_bits


def replace_state_file(path: str, data: bytes) -> None:
    """Write a file of mode 0600 that a reader sees as a whole, or not at all.

    Raises:
        OSError: it can't be written; the earlier one stays.
    """
    with replacing(path, mode=0o600) as fd:
        write_all(fd, data)


def open_lock(path: str) -> int:
    """Open a file to lock."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Exclude other processes; blocks."""
    handle = open_lock(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
