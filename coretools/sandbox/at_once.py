"""Reading a small file, or looking at a few names, without ever waiting for a disk, a network or another program.

Linux only. A worker thread costs a call 0.2 ms, twenty times what reading 4 KB from memory does. Here the kernel is
asked for what it has in memory, and says EAGAIN where it would have to wait: RESOLVE_CACHED (openat2(2), Linux 5.12)
for the way to the file, RWF_NOWAIT (preadv2(2)) for its content. Everything that is not plain, links and errors too, is
left to `reading`, which says what is wrong.
"""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from coretools.errors import CoreError
from coretools.sandbox.git_directories import may_be_stored
from coretools.sandbox.inside import DIRECTORY
from coretools.sandbox.kinds import version_of
from coretools.sandbox.openat2 import open_cached
from coretools.sandbox.reading import READ, Content, Directory
from coretools.sandbox.roots import Place, Root, Roots
from coretools.sandbox.signature import mount_of, signature, stamp_from
from coretools.sandbox.walk import HANDLE

MOST_BYTES = 8 * 1024
"""Of a file that is read so. More is work enough for a thread: of 16 KB the last of 16,000 lines are found in 7 ms."""

LATE_SECONDS = 0.1
PAUSE_SECONDS = 600.0
"""After one that took longer, because a program that watches the file system (fanotify(7)) held it up, nothing is read
so for ten minutes."""

Signatures = tuple[bytes | None, ...]

_PIN = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


def read_at_once(roots: Roots, path: str, *, limit_bytes: int) -> Content | None:
    """The content of a regular file, or None where it is not to be had without waiting, or not at all."""
    with attempted(roots) as may_try:
        place = _plain_place(roots, path) if may_try else None
        if place is None:
            return None
        try:
            return _read(roots, place, min(limit_bytes, MOST_BYTES))
        except OSError:
            return None


def open_directory_at_once(roots: Roots, path: str) -> Directory | None:
    """Handle of a directory, or None where it is not to be had without waiting, or not at all. Within `attempted`."""
    place = _plain_place(roots, path)
    if place is None:
        return None
    with ExitStack() as stack:
        try:
            if not _is_present(place.root):
                return None
            directory = Directory(open_cached(place.root.fd, place.relative, HANDLE), place, roots.shown(place))
            stack.callback(directory.close)
            # Another root that was moved here is not used, as it is not where it was.
            if place.relative != "." and roots.root_with(_identity(directory.fd)) is not None:
                return None
        except OSError:
            return None
        stack.pop_all()
    return directory


@contextmanager
def opened_at_once(directory: int, name: str, *, mount: bytes, most_bytes: int) -> Iterator[int | None]:
    """Handle of the directory of this name in another one, which can be listed. Begun within `attempted`.

    None as before, where it does not lie on this mount, and where the directory itself takes more bytes.
    """
    with ExitStack() as stack:
        handle = None
        try:
            pin = open_cached(directory, name, HANDLE, across=True)
            stack.callback(os.close, pin)
            signed = signature(pin)
            if mount_of(signed) == mount and stamp_from(signed).size <= most_bytes:
                handle = open_cached(pin, ".", DIRECTORY)
                stack.callback(os.close, handle)
        except OSError:
            pass
        yield handle


def signatures_at_once(directory: int, names: Sequence[str]) -> Signatures | None:
    """What `signatures` says, or None where it is not to be had without waiting. Within `attempted`."""
    return _signatures(partial(open_cached, across=True), directory, names)


def signatures(roots: Roots, directory: int, names: Sequence[str]) -> Signatures | None:
    """Signature of each name beneath a directory, None for one that nothing has.

    None in all where a link is on the way. No file is opened for it, so no program that watches them is asked.
    """
    return _signatures(roots.engine.open, directory, names)


def _signatures(opening: Callable[[int, str, int], int], directory: int, names: Sequence[str]) -> Signatures | None:
    found: list[bytes | None] = []
    try:
        for name in names:
            try:
                fd = opening(directory, name, _PIN)
            except FileNotFoundError:
                found.append(None)
                continue
            try:
                found.append(signature(fd))
            finally:
                os.close(fd)
    except OSError:
        return None
    return tuple(found)


@contextmanager
def attempted(roots: Roots, *, clock: Callable[[], float] = time.monotonic) -> Iterator[bool]:
    """Whether it may be tried now. What took long is the last for a while."""
    began = clock()
    try:
        yield can_read_at_once(roots) and began >= roots.at_once_from
    finally:
        ended = clock()
        if ended - began > LATE_SECONDS:
            roots.at_once_from = ended + PAUSE_SECONDS


def _read(roots: Roots, place: Place, most: int) -> Content | None:
    if not _is_present(place.root):
        return None
    seen = _status(place)
    if roots.may_be_renamed(seen.st_ino):
        return None
    has_other_names = roots.refuse_hard_links and seen.st_nlink > 1
    if not stat.S_ISREG(seen.st_mode) or seen.st_size > most or has_other_names:
        return None
    data = _data(place, seen)
    return None if data is None else Content(data, roots.shown(place), version_of(seen))


def can_read_at_once(roots: Roots) -> bool:
    """Whether this machine can do it: with openat2, and with roots of which none lies in another."""
    return sys.platform == "linux" and _NOWAIT != 0 and roots.resolver == "openat2" and not roots.are_nested


def _plain_place(roots: Roots, path: str) -> Place | None:
    """The place of a path that says by its text where it leads, on a file system that may be asked."""
    try:
        place = roots.place(path)
        roots.require_open(place, path)
    except CoreError:
        return None
    # What a suspect file holds has to be looked at first, and perhaps an index.
    is_plain = place.root.is_on_disk and ".." not in place.relative and not roots.suspicion(place)
    is_plain = is_plain and not may_be_stored(place.relative)
    return place if is_plain else None


def _is_present(root: Root) -> bool:
    """Whether the root is where it was opened, as `Roots.require_present` asks."""
    fd = open_cached(None, root.path, HANDLE)
    try:
        return _identity(fd) == root.identity
    finally:
        os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    found = stamp_from(signature(fd))
    return found.device, found.inode


def _status(place: Place) -> os.stat_result:
    """What stands there. A device or a FIFO is not opened for it."""
    fd = open_cached(place.root.fd, place.relative, os.O_PATH)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def _data(place: Place, seen: os.stat_result) -> bytes | None:
    fd = open_cached(place.root.fd, place.relative, READ)
    try:
        found = os.fstat(fd)
        if version_of(found) != version_of(seen) or found.st_mode != seen.st_mode:
            return None
        # One byte more than there should be: a file that grows meanwhile shows.
        buffer = bytearray(seen.st_size + 1)
        if os.preadv(fd, [buffer], 0, _NOWAIT) != seen.st_size:
            return None
        del buffer[seen.st_size :]
        return bytes(buffer)
    finally:
        os.close(fd)
