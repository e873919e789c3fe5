"""Objects that a fetch receives: in a directory of their own until git has verified them, then moved as whole packs.

Whatever ends a fetch early, the object store has what it had before. The name of the directory begins like those of
git's own temporary directories, so `git gc` removes one that a killed server left.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex

from coretools.roots.directory_access import DIRECTORY, open_subdirectory, translate_errors

PREFIX = "tmp_objdir-incoming-coretools-"

_PACK = re.compile(r"pack-(?:[0-9a-f]{40}|[0-9a-f]{64})\.(pack|rev|idx)")
_ORDER = ("pack", "rev", "idx")
"""The index last: git looks for packs by their index."""


class IncomingObjects:
    """The directory of one fetch."""

    def __init__(self, objects: int, name: str) -> None:
        self._objects = objects
        self.name = name
        """Its name in the object store."""

    def keep(self) -> int:
        """Move complete packs into the object store; return how many there were.

        Raises:
            InputOutput: the disk is full, or something else than this server changed the store.
        """
        with (
            translate_errors(self.name),
            open_subdirectory(self._objects, self.name) as incoming,
            open_subdirectory(self._objects, "pack") as store,
        ):
            try:
                packs = os.open("pack", DIRECTORY, dir_fd=incoming)
            except FileNotFoundError:
                return 0
            try:
                return _move_packs(packs, store)
            finally:
                os.close(packs)


@contextmanager
def incoming_objects(git_directory: int) -> Iterator[IncomingObjects]:
    """Create the directory, and remove it with everything in it at the end.

    Raises:
        InputOutput, PermissionRefused: the object store can't be written.
    """
    with open_subdirectory(git_directory, "objects") as objects:
        _remove_abandoned(objects)
        with translate_errors("objects"):
            with suppress(FileExistsError):
                os.mkdir("pack", dir_fd=objects)
            name = f"{PREFIX}{token_hex(8)}"
            os.mkdir(name, 0o700, dir_fd=objects)
            held = os.open(name, DIRECTORY, dir_fd=objects)
        try:
            fcntl.flock(held, fcntl.LOCK_SH)
            yield IncomingObjects(objects, name)
        finally:
            _remove(objects, name)
            os.close(held)


def _move_packs(packs: int, store: int) -> int:
    names = sorted(os.listdir(packs))
    files = [(match[1], name) for name in names if (match := _PACK.fullmatch(name))]
    for _, name in sorted(files, key=lambda one: _ORDER.index(one[0])):
        # A link, which replaces nothing: a pack of this name has the same objects.
        with suppress(FileExistsError):
            os.link(name, name, src_dir_fd=packs, dst_dir_fd=store, follow_symlinks=False)
    os.fsync(store)
    return sum(kind == "idx" for kind, _ in files)


def _remove_abandoned(objects: int) -> None:
    """Remove directories of servers that were killed: nobody holds a lock on them."""
    for name in os.listdir(objects):
        if not name.startswith(PREFIX):
            continue
        with suppress(OSError):
            held = os.open(name, DIRECTORY, dir_fd=objects)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(objects, name)
            finally:
                os.close(held)


def _remove(directory: int, name: str) -> None:
    """Remove a directory and what is in it, without following links."""
    with suppress(OSError):
        handle = os.open(name, DIRECTORY, dir_fd=directory)
        try:
            for entry in os.listdir(handle):
                try:
                    os.unlink(entry, dir_fd=handle)
                except IsADirectoryError:
                    _remove(handle, entry)
        finally:
            os.close(handle)
        os.rmdir(name, dir_fd=directory)
