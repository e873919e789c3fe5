"""Hidden files by inode: a file that is hidden stays hidden under any name."""

import os
import stat
from typing import NamedTuple

from coretools.roots.open_beneath import birth_time

MAX_INODES = 10_000
"""Entries kept; beyond that the least recently seen one is dropped."""


class Inode(NamedTuple):
    """The identity of a file, independent of its name. Numbers are reused; a number with a birth time is not."""

    device: int
    number: int
    birth_ns: int
    is_directory: bool


def inode_of(path: str, top: int | None = None) -> Inode | None:
    """The identity of what a path names, relative to `top` if given, links not followed; None if there is nothing."""
    try:
        status = os.stat(path, dir_fd=top, follow_symlinks=False)
        is_directory = stat.S_ISDIR(status.st_mode)
        # Without a birth time use the modification time, which a rename does not change. A directory's changes too
        # often.
        birth = birth_time(path, top) or (0 if is_directory else status.st_mtime_ns)
    except OSError:
        return None
    return Inode(status.st_dev, status.st_ino, birth, is_directory)


class HiddenInodes:
    """The hidden files and directories, and the kind of each. Written by one thread at a time, read by any.

    The scan before each command (`confinement.hidden`) records them, so a hidden file is recognised after a rename.
    """

    def __init__(self) -> None:
        self._kinds: dict[Inode, str] = {}
        self._numbers: set[int] = set()
        """Their inode numbers, so that any other file costs one lookup."""
        self.has_directories = False

    def remember(self, inode: Inode, kind: str) -> None:
        """Record a hidden file with its kind."""
        # Moved to the end: the first entry is the one that was seen least recently.
        self._kinds.pop(inode, None)
        self._kinds[inode] = kind
        self._numbers.add(inode.number)
        self.has_directories = self.has_directories or inode.is_directory
        if len(self._kinds) > MAX_INODES:
            del self._kinds[next(iter(self._kinds))]
            self._numbers = {one.number for one in self._kinds}

    def forget(self, inode: Inode) -> None:
        """Remove a file that is no longer hidden."""
        self._kinds.pop(inode, None)

    def kind_of(self, top: int, path: str, number: int) -> str:
        """The kind that the file with this path and inode number was hidden as; "" for nearly all."""
        if number not in self._numbers:
            return ""
        inode = inode_of(path, top)
        return "" if inode is None else self._kinds.get(inode, "")

    def has(self, number: int) -> bool:
        """Whether a file with this inode number may be among them."""
        return number in self._numbers
