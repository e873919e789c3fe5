"""Read on the event loop what the kernel has in memory, on Linux.

A worker thread costs a call 0.2 ms, twenty times as much as reading 4 KB from the page cache. Here the kernel returns
only cached data, and fails with EAGAIN where it would have to wait: RESOLVE_CACHED (openat2(2), Linux 5.12) for the
path, RWF_NOWAIT (preadv2(2)) for the content. Every other case, links and errors too, is left to the blocking
functions, which report what is wrong.
"""

import os
import resource
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coretools.errors import CoreError
from coretools.roots.file_version import version_of
from coretools.roots.git_credentials import may_be_configuration
from coretools.roots.git_layout import may_be_git_object
from coretools.roots.open_beneath import HANDLE, open_cached, statx_identity
from coretools.roots.read import READ, FileContent
from coretools.roots.root import Root, RootedPath
from coretools.roots.root_set import Roots

MAX_BYTES = 8 * 1024
"""Largest file read this way. Larger ones are worth a thread: finding the last of 16,000 lines in 16 KB takes 7 ms."""

LATE_SECONDS = 0.1

PAUSE_SECONDS = 600.0
"""After a read that waited longer, because a program that watches the file system (fanotify(7)) delayed it, all reads
use threads for ten minutes. On a busy machine a read also takes long because its thread got no processor: then it has
not waited (`_waits`), and a thread would not help."""

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


def read_nonblocking(roots: Roots, path: str, *, limit_bytes: int) -> FileContent | None:
    """The content of a regular file, or None if reading it could block, or would fail."""
    with attempt_nonblocking(roots) as may_try:
        if not may_try:
            return None
        try:
            place = _plain_place(roots, path)
            return None if place is None else _read(roots, place, min(limit_bytes, MAX_BYTES))
        except OSError:
            return None


def _waits() -> int:
    """How often this thread has given up the processor to wait for something (getrusage(2), `ru_nvcsw`)."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


@contextmanager
def attempt_nonblocking(
    roots: Roots, *, clock: Callable[[], float] = time.monotonic, waits: Callable[[], int] = _waits
) -> Iterator[bool]:
    """Whether a non-blocking read may be tried now. One that waits long disables further attempts for a while."""
    began = clock()
    may_try = can_read_nonblocking(roots) and began >= roots.nonblocking_from
    waited = waits() if may_try else 0
    try:
        yield may_try
    finally:
        ended = clock()
        if may_try and ended - began > LATE_SECONDS and waits() > waited:
            roots.disable_nonblocking_until(ended + PAUSE_SECONDS)


def _read(roots: Roots, place: RootedPath, most: int) -> FileContent | None:
    if not _is_present(place.root):
        return None
    seen = _status(place)
    if roots.may_be_renamed(seen.st_ino):
        return None
    if not stat.S_ISREG(seen.st_mode) or seen.st_size > most:
        return None
    data = _data(place, seen)
    # What may be a configuration of git is searched for credentials first.
    return (
        None
        if data is None or may_be_configuration(data)
        else FileContent(data, roots.display_path(place), place, version_of(seen))
    )


def can_read_nonblocking(roots: Roots) -> bool:
    """Whether this machine supports it: with openat2, and without nested roots."""
    return sys.platform == "linux" and _NOWAIT != 0 and roots.resolver_name == "openat2" and not roots.are_nested


def _plain_place(roots: Roots, path: str) -> RootedPath | None:
    """The place of a path whose text alone decides where it leads, on a local file system; else None."""
    try:
        place = roots.place(path)
        roots.require_allowed(place, path)
    except CoreError:
        return None
    # For a suspect name the content, and perhaps a git index, has to be checked first.
    is_plain = place.root.is_on_disk and ".." not in place.relative and not may_be_git_object(place.relative)
    return place if is_plain and not roots.secret_format(place, exists=_is_cached) else None


def _is_cached(top: int, path: str) -> bool:
    """Whether an entry exists, as `entry_exists`.

    Raises:
        OSError: EAGAIN if that would block.
    """
    try:
        os.close(open_cached(top, path, os.O_PATH))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _is_present(root: Root) -> bool:
    """Whether the root is still at its path, as `Roots.require_present` checks."""
    fd = open_cached(None, root.path, HANDLE)
    try:
        return statx_identity(fd) == root.identity
    finally:
        os.close(fd)


def _status(place: RootedPath) -> os.stat_result:
    """The status of the file, without opening a device or a FIFO."""
    fd = open_cached(place.root.fd, place.relative, os.O_PATH)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def _data(place: RootedPath, seen: os.stat_result) -> bytes | None:
    fd = open_cached(place.root.fd, place.relative, READ)
    try:
        status = os.fstat(fd)
        if version_of(status) != version_of(seen) or status.st_mode != seen.st_mode:
            return None
        # One byte more than expected, to notice a file that grows.
        buffer = bytearray(seen.st_size + 1)
        if os.preadv(fd, [buffer], 0, _NOWAIT) != seen.st_size:
            return None
        del buffer[seen.st_size :]
        return bytes(buffer)
    finally:
        os.close(fd)
