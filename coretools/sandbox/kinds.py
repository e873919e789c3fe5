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
    """Unlike the time of modification it can't be set back by whoever writes the file."""


def version_of(found: os.stat_result) -> Version:
    """The version of what stat(2) found."""
    return Version(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
