"""Files and directories that were hidden, remembered by inode: they stay hidden under any name, for tools and commands.

Filled by the scan before each command (`confinement.hidden`), so what a command finds hidden is known when it is
renamed. An inode number is given again to a new file; a birth time with it is not.
"""

import os
import stat
from typing import NamedTuple

from coretools.roots.resolver import birth_time

MOST = 10_000
"""Remembered; beyond that the one that was seen longest ago is forgotten."""


class Inode(NamedTuple):
    """A file whatever its name."""

    device: int
    number: int
    birth_ns: int
    is_directory: bool


def inode_of(path: str, top: int | None = None) -> Inode | None:
    """What has this path, relative to the directory if there is one, links not followed; None when nothing has."""
    try:
        found = os.stat(path, dir_fd=top, follow_symlinks=False)
        is_directory = stat.S_ISDIR(found.st_mode)
        # Without a birth time the time of the last change to the content stands in: a rename leaves it as it is. That
        # of a directory changes too often.
        birth = birth_time(path, top) or (0 if is_directory else found.st_mtime_ns)
    except OSError:
        return None
    return Inode(found.st_dev, found.st_ino, birth, is_directory)


class HiddenInodes:
    """What was hidden, and of which kind it was. Written by one thread at a time, read by any."""

    def __init__(self) -> None:
        self._kinds: dict[Inode, str] = {}
        self._numbers: set[int] = set()
        """Inode numbers among them, so that a file that is none of them costs one look-up."""
        self.has_directories = False

    def remember(self, inode: Inode, kind: str) -> None:
        """Keep it hidden, as a suspect of this kind."""
        self._kinds.pop(inode, None)
        self._kinds[inode] = kind
        self._numbers.add(inode.number)
        self.has_directories = self.has_directories or inode.is_directory
        if len(self._kinds) > MOST:
            del self._kinds[next(iter(self._kinds))]
            self._numbers = {one.number for one in self._kinds}

    def forget(self, inode: Inode) -> None:
        """It is hidden no longer."""
        self._kinds.pop(inode, None)

    def kind_of(self, top: int, path: str, number: int) -> str:
        """The kind of suspect that what has this path and inode number was hidden as; "" for nearly all."""
        if number not in self._numbers:
            return ""
        inode = inode_of(path, top)
        return "" if inode is None else self._kinds.get(inode, "")

    def has(self, number: int) -> bool:
        """Whether something of this inode number may be among them."""
        return number in self._numbers
