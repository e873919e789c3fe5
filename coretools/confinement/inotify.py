"""Find directories that changed since they were listed (inotify(7)), and what is mounted (mountinfo). Linux only.

Each watch is one-shot: its first event ends it, so the queue holds one event for each changed directory, however much
happens in it. Nothing runs between two scans; the kernel queues an event before the causing system call returns.
"""

import ctypes
import errno
import os
import select
import struct
import sys

from coretools.mounts import TABLE, parse_mounts
from coretools.reach import is_beneath

_ON_DISK = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "jfs", "vfat", "exfat", "ntfs3")
LOCAL = frozenset((*_ON_DISK, "tmpfs", "overlay", "squashfs", "erofs", "iso9660"))
"""File systems that only this kernel changes, so that inotify reports every change. Others may be changed by another
machine or a program (NFS, CIFS, 9p, virtiofs, FUSE), or are unknown."""

_EVENTS = 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""IN_ATTRIB, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF."""
_ONE_SHOT = 0x80000000
_ONLY_DIRECTORY = 0x01000000
_OVERFLOW = 0x4000
_HEAD = struct.Struct("iIII")
"""Watch descriptor, mask, cookie and length of the name that follows."""
_READ_BYTES = 1 << 20

_LIMIT = "/proc/sys/fs/inotify/max_user_watches"
_SHARE = 2
"""Divisor: the server uses at most half of the user's watches, since editors need them too."""

if sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)


class InotifyWatches:
    """One inotify instance. `close` must be called."""

    def __init__(self) -> None:
        """Create the instance.

        Raises:
            OSError: the user has too many instances, or the system has no inotify.
        """
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "needs Linux")
        self._fd = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        self.most = _most_watches()
        """Most watches to use at once."""

    def add(self, directory: int, *, events: int = _EVENTS | _ONE_SHOT) -> int:
        """Watch an open directory until its next change; return the watch descriptor. List the directory afterwards.

        Raises:
            OSError: ENOSPC when the user has too many watches, EACCES when the directory cannot be read.
        """
        # By descriptor: a name could lead elsewhere by now. inotify takes paths only, and this one is a link to the
        # directory.
        path = b"/proc/self/fd/%d" % directory
        return _checked(_libc.inotify_add_watch(self._fd, path, events | _ONLY_DIRECTORY))

    def fileno(self) -> int:
        """Return the inotify descriptor, which is readable after a change."""
        return self._fd

    def remove(self, watch: int) -> None:
        """Remove a watch; harmless if it has ended."""
        _libc.inotify_rm_watch(self._fd, watch)

    def changed(self) -> set[int] | None:
        """Return the watches that a change has ended. None when events were lost: anything may have changed."""
        ended: set[int] = set()
        is_lost = False
        while (names := self.names()) is None or names:
            is_lost = is_lost or names is None
            ended |= {watch for watch, _ in names or ()}
        return None if is_lost else ended

    def names(self) -> set[tuple[int, bytes]] | None:
        """Return watch and entry name of each change, for watches that persist. None when events were lost.

        Reads once, so that it ends even while changes continue.
        """
        changes: set[tuple[int, bytes]] = set()
        is_lost = False
        data, at = self._read(), 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            is_lost = is_lost or bool(mask & _OVERFLOW)
            changes.add((watch, data[at - length : at].rstrip(b"\0")))
        return None if is_lost else changes

    def close(self) -> None:
        """Close the instance and with it all watches."""
        os.close(self._fd)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return b""


class MountTable:
    """The mounts beneath and above some directories. `close` must be called."""

    def __init__(self, tops: tuple[str, ...]) -> None:
        """Open mountinfo.

        Raises:
            OSError: the system has none.
        """
        self._tops = tops
        self._fd = os.open(TABLE, os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        # The kernel reports a changed mount table as POLLPRI and POLLERR (proc(5), mounts).
        self._poll.register(self._fd, select.POLLPRI)
        self._found: list[tuple[int, str, str]] = []
        self._is_read = False
        self.kinds: dict[str, str] = {}
        """File system type by mount point; of several mounts on one point the last counts."""
        self.names: dict[str, list[str]] = {}
        """Names of mount points, by directory."""
        self.has_foreign = True
        """Whether any of them is not local."""

    def changed(self) -> bool:
        """Whether these mounts changed since the last call; True at first."""
        if self._is_read and not self._poll.poll(0):
            return False
        found = [
            (mount.number, mount.path, mount.kind)
            for mount in parse_mounts(self._table())
            if any(is_beneath(mount.path, top) or is_beneath(top, mount.path) for top in self._tops)
        ]
        is_other = not self._is_read or found != self._found
        self._found, self._is_read = found, True
        self.kinds = {path: kind for _, path, kind in found}
        self.names = {}
        for point in self.kinds:
            self.names.setdefault(os.path.dirname(point), []).append(os.path.basename(point))
        # Mounts above a root matter only by the file system of the root itself.
        beneath = [kind for point, kind in self.kinds.items() if any(is_beneath(point, top) for top in self._tops)]
        self.has_foreign = not LOCAL.issuperset([*beneath, *(self.kind_of(top) for top in self._tops)])
        return is_other

    def kind_of(self, path: str) -> str:
        """Return the file system type at a path, by its text."""
        while path not in self.kinds and path != "/":
            path = os.path.dirname(path)
        return self.kinds.get(path, "")

    def close(self) -> None:
        """Close mountinfo."""
        os.close(self._fd)

    def _table(self) -> bytes:
        os.lseek(self._fd, 0, os.SEEK_SET)
        data = b""
        while piece := os.read(self._fd, _READ_BYTES):
            data += piece
        return data


def _most_watches() -> int:
    try:
        with open(_LIMIT, encoding="ascii") as file:
            return int(file.read()) // _SHARE
    except (OSError, ValueError):
        return 4096  # half of the default before Linux 5.11


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
