"""Kinds of things in a file system, in the words that callers see, and what tells two states of a file apart. Pure."""

import os
import stat
from dataclasses import dataclass
from typing import Literal

Kind = Literal["file", "directory", "link", "fifo", "socket", "device"]

_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}

SETTLED_NS = 100_000_000
"""What changed less than this ago is read again: a change within one tick of the file system's clock (4 ms on Linux,
HZ=250) need not show in its version."""
SETTLED_SECONDS_NS = 2_100_000_000
"""The same where times are whole seconds, as on ext4 with inodes of 128 bytes (mke2fs(8)); FAT has every second one."""


def kind_of(mode: int) -> Kind:
    """The kind that a mode of stat(2) says."""
    return _KINDS.get(stat.S_IFMT(mode), "device")


@dataclass(frozen=True, slots=True)
class Version:
    """The state of a file, short of its content: equal versions hold equal content.

    Two changes within one tick of the kernel's clock that keep the size are not told apart.
    """

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int
    """Unlike the time of modification it can't be set back by whoever writes the file. Also by chmod and chown."""

    def is_settled(self, at_ns: int) -> bool:
        """Whether what changes after that moment will show in a version taken then."""
        apart = SETTLED_NS if self.changed_ns % 1_000_000_000 else SETTLED_SECONDS_NS
        return at_ns - self.changed_ns > apart


def version_of(found: os.stat_result) -> Version:
    """The version of what stat(2) found."""
    return Version(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


# What stands outside the roots, as far as a decision needs it: may another program be left to open this file?
#
# Opens nothing and reads nothing; and the answer is one bit, so that a refusal need not say what stands there.


def is_harmless_to_open(path: str, *, limit_bytes: int) -> bool:
    """Whether nothing is at this absolute path, or a regular file of at most `limit_bytes`. Links are followed.

    Blocks as long as the file system does: for a worker thread that can be abandoned.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size <= limit_bytes
