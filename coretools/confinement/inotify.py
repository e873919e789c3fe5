"""Which directories changed since they were last listed (inotify(7)), and what is mounted (mountinfo). Linux only.

Each watch is one-shot: its first event ends it, so a queue holds one event for each changed directory, however much
happens in it. Nothing runs between two looks; events are queued before the system call that causes them returns.
"""

import ctypes
import errno
import os
import re
import select
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

_ON_DISK = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "jfs", "vfat", "exfat", "ntfs3")
LOCAL = frozenset((*_ON_DISK, "tmpfs", "overlay", "squashfs", "erofs", "iso9660"))
"""File systems whose every change passes through this kernel, so that it is seen. Others may be changed by another
machine or by a program (NFS, CIFS, 9p, virtiofs, FUSE), or are unknown."""

_EVENTS = 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""IN_ATTRIB, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF."""
_ONE_SHOT = 0x80000000
_ONLY_DIRECTORY = 0x01000000
_OVERFLOW = 0x4000
_HEAD = struct.Struct("iIII")
"""Watch, mask, cookie, length of the name that follows."""
_READ_BYTES = 1 << 20

_LIMIT = "/proc/sys/fs/inotify/max_user_watches"
_SHARE = 2
"""A half of the user's watches at most: editors need them too."""

_MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")

if sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)


class InotifyWatches:
    """One inotify instance. `close` must be called."""

    def __init__(self) -> None:
        """Open it.

        Raises:
            OSError: the user has too many of them, or the system has none.
        """
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "needs Linux")
        self._fd = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        self.most = _most_watches()
        """Watches that may be in use at once."""

    def add(self, directory: int, *, events: int = _EVENTS | _ONE_SHOT) -> int:
        """Watch an open directory until its next change; the number of the watch. List it afterwards, not before.

        Raises:
            OSError: ENOSPC when the user has too many, EACCES for a directory that can't be read.
        """
        path = b"/proc/self/fd/%d" % directory
        return _checked(_libc.inotify_add_watch(self._fd, path, events | _ONLY_DIRECTORY))

    def fileno(self) -> int:
        """Can be read when something has changed."""
        return self._fd

    def remove(self, watch: int) -> None:
        """End a watch; one that has ended already is none the worse."""
        _libc.inotify_rm_watch(self._fd, watch)

    def changed(self) -> set[int] | None:
        """Watches that ended by a change; they are to be added again. None when events were lost: anything changed."""
        found: set[int] = set()
        is_lost = False
        while (names := self.names()) is None or names:
            is_lost = is_lost or names is None
            found |= {watch for watch, _ in names or ()}
        return None if is_lost else found

    def names(self) -> set[tuple[int, bytes]] | None:
        """What changed, with the names of entries, by watches that may go on; None when events were lost.

        One reading, so that it ends while others go on to change things.
        """
        found: set[tuple[int, bytes]] = set()
        is_lost = False
        data, at = self._read(), 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            is_lost = is_lost or bool(mask & _OVERFLOW)
            found.add((watch, data[at - length : at].rstrip(b"\0")))
        return None if is_lost else found

    def close(self) -> None:
        """Give the handle back, and all watches with it."""
        os.close(self._fd)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return b""


class Mount(NamedTuple):
    """Something mounted."""

    number: int
    point: str
    kind: str
    """Name of the file system."""


class MountTable:
    """What is mounted beneath some directories, and where they lie themselves. `close` must be called."""

    def __init__(self, tops: tuple[str, ...]) -> None:
        """Open the list of mounts.

        Raises:
            OSError: there is none.
        """
        self._tops = tops
        self._fd = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLPRI)
        self._found: tuple[Mount, ...] = ()
        self._is_read = False
        self.kinds: dict[str, str] = {}
        """The file system at each point where something is mounted; of several on one point the last counts."""
        self.names: dict[str, list[str]] = {}
        """By directory, the names in it on which something is mounted."""
        self.has_foreign = True
        """Whether a part of it is on a file system that is not local."""

    def changed(self) -> bool:
        """Whether something was mounted or unmounted there since the last time it was asked; true at first."""
        if self._is_read and not self._poll.poll(0):
            return False
        found = tuple(mount for mount in _mounts(self._fd) if self._concerns(mount.point))
        is_other = not self._is_read or found != self._found
        self._found, self._is_read = found, True
        self.kinds = {mount.point: mount.kind for mount in found}
        self.names = {}
        for point in self.kinds:
            self.names.setdefault(os.path.dirname(point), []).append(os.path.basename(point))
        beneath = [kind for point, kind in self.kinds.items() if any(_lies_in(point, top) for top in self._tops)]
        self.has_foreign = not LOCAL.issuperset([*beneath, *(self.kind_of(top) for top in self._tops)])
        return is_other

    def kind_of(self, path: str) -> str:
        """The file system that a path lies on, by its text."""
        while path not in self.kinds and path != "/":
            path = os.path.dirname(path)
        return self.kinds.get(path, "")

    def close(self) -> None:
        """Give the handle back."""
        os.close(self._fd)

    def _concerns(self, point: str) -> bool:
        return any(_lies_in(point, top) or _lies_in(top, point) for top in self._tops)


def _mounts(fd: int) -> Iterator[Mount]:
    os.lseek(fd, 0, os.SEEK_SET)
    data = b""
    while piece := os.read(fd, _READ_BYTES):
        data += piece
    for line in data.splitlines():
        words = line.split(b" ")
        point = os.fsdecode(_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), words[4]))
        yield Mount(int(words[0]), point, words[words.index(b"-") + 1].decode())


def _lies_in(path: str, top: str) -> bool:
    return path == top or path.startswith(top if top == "/" else f"{top}/")


def _most_watches() -> int:
    try:
        with open(_LIMIT, encoding="ascii") as file:
            return int(file.read()) // _SHARE
    except (OSError, ValueError):
        return 4096  # half of what kernels before 5.11 gave


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
