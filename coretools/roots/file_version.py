"""File kinds, as callers see them, and file versions: the identity of one state of a file. Pure."""

import os
import stat
from typing import Literal, NamedTuple

Kind = Literal["file", "directory", "link", "fifo", "socket", "device"]

_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}

SETTLED_NS = 100_000_000
"""A file that changed less than this ago is read again: a second change within one tick of the file system's clock
(4 ms on Linux, HZ=250) need not show in its version."""
SETTLED_SECONDS_NS = 2_100_000_000
"""The same for timestamps in whole seconds: ext4 with 128-byte inodes (mke2fs(8)); on FAT, two seconds."""


def kind_of(mode: int) -> Kind:
    """The kind for a mode from stat(2)."""
    return _KINDS.get(stat.S_IFMT(mode), "device")


class Version(NamedTuple):
    """The identity of one state of a file: equal versions have equal content.

    Two changes within one tick of the kernel's clock that keep the size are not distinguished.
    """

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int
    """Unlike the modification time, it cannot be set by the file's owner. chmod and chown change it too."""

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        return self.device, self.inode

    def is_settled(self, at_ns: int) -> bool:
        """Whether every change after `at_ns` will show in a version taken then."""
        # FAT has no change time: there only the modification time shows a change.
        latest = max(self.changed_ns, self.modified_ns)
        return at_ns - latest > (SETTLED_NS if latest % 1_000_000_000 else SETTLED_SECONDS_NS)


def version_of(status: os.stat_result) -> Version:
    """The version for a result of stat(2)."""
    return Version(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


# Outside the roots: may another program be allowed to open this file? Opens and reads nothing, and answers one bit, so
# that a refusal reveals nothing about the file.


def is_harmless_to_open(path: str, *, limit_bytes: int) -> bool:
    """Whether this absolute path is a regular file of at most `limit_bytes`, or does not exist. Links are followed.

    May block on a slow file system: call it in a worker thread that can be abandoned.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= limit_bytes
