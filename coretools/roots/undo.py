"""Restore entries of a directory that a program changed, unless the program succeeds.

While it runs, the former state lies in a separate directory next to them: entries that the program replaces are moved
there, small files are copied, and an empty directory `absent-NAME` stands for each entry that did not exist. The server
holds a lock on that directory, which the kernel releases when the process is killed: a later call then knows that the
operation was abandoned, and restores everything.
"""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from coretools.errors import Conflict, CoreError, InvalidPath
from coretools.roots.delete import delete_tree
from coretools.roots.directory_access import translate_errors
from coretools.roots.root import Directory, RootedPath, join_path
from coretools.roots.root_set import Roots

UNDO_DIRECTORY = ".coretools-restore"
"""Name of the directory that holds the former state."""

_DROPPED = ".coretools-restored"
"""Its name while it is being removed: a partly removed state must not be restored."""

_ABSENT = "absent-"
_PART = "part-"
"""Prefix of an incomplete copy."""
_OURS = "begun"
"""An empty directory in it: git cannot store one, so a repository's directory of this name is not mistaken for ours."""
_COPY_BYTES = 32 * 1024 * 1024
"""Largest file that is copied; a larger lock file is not restored."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedEntries:
    """Names in a directory that a program may change, by how their former state is saved."""

    moved: tuple[str, ...] = ()
    """Recreated by the program: existing ones are moved aside."""
    created: tuple[str, ...] = ()
    """Possibly created by the program; existing ones are left in place."""
    copied: tuple[str, ...] = ()
    """Small files that the program may write."""

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return frozenset((*self.moved, *self.created, *self.copied))


class Undo:
    """The former state of some entries of one directory.

    Call `begin`, run the program, then `commit` or `roll_back`.
    """

    def __init__(self, roots: Roots, directory: Directory, entries: SavedEntries) -> None:
        self._roots = roots
        self._directory = directory
        self._entries = entries
        self._fd = -1

    @classmethod
    def recover(cls, roots: Roots, directory: Directory, entries: SavedEntries) -> Self:
        """Restore what a killed server left in this directory, and return an `Undo` for it. Blocks, as all methods do.

        Raises:
            Conflict: another call is changing these entries now.
        """
        undo = cls(roots, directory, entries)
        with translate_errors(directory.display_path):
            if directory.place.root.writable and undo._open_existing():
                undo.roll_back()
        return undo

    def begin(self) -> None:
        """Save the current state.

        Raises:
            Conflict: another call is changing these entries now, or a directory of the name holds something else.
            InvalidPath: an entry that will be recreated is or contains a root.
        """
        if not self._directory.place.root.writable:
            return
        root = next(filter(self._holds_root, self._entries.moved), None)
        if root is not None:
            display_path = f"{self._directory.display_path}/{root}"
            raise InvalidPath(f"{display_path}: is or contains a root, which a restore would recreate; pass `command`")
        with translate_errors(self._directory.display_path):
            self._make()
            for name in self._entries.moved:
                self._move_aside(name)
            for name in (*self._entries.created, *self._entries.copied):
                if not self._is_there(name):
                    os.mkdir(f"{_ABSENT}{name}", dir_fd=self._fd)
                elif name in self._entries.copied and not self._roots.hidden(self._place(name)):
                    self._copy(name)

    def _make(self) -> None:
        """Create and lock the directory for the saved state."""
        while not self._open_existing():
            with suppress(FileExistsError):
                os.mkdir(UNDO_DIRECTORY, dir_fd=self._directory.fd)
        # `roll_back` left something behind, perhaps the only copy.
        if os.listdir(self._fd):
            self._release()
            raise Conflict(
                f"{self._directory.display_path}/{UNDO_DIRECTORY}: contains something that no restore left, or that"
                " could not be restored; move or delete it"
            )
        os.mkdir(_OURS, dir_fd=self._fd)

    def commit(self) -> None:
        """Drop the saved state: the program has succeeded."""
        if self._fd < 0:
            return
        with suppress(OSError, CoreError):
            self._remove(_DROPPED)
            # Renamed first: a server that is killed while it deletes must not restore half of it.
            os.rename(UNDO_DIRECTORY, _DROPPED, src_dir_fd=self._directory.fd, dst_dir_fd=self._directory.fd)
            self._remove(_DROPPED)
        self._release()

    def roll_back(self) -> None:
        """Restore the saved state: the program has failed. What cannot be restored now is tried again later."""
        with suppress(OSError):
            names = os.listdir(self._fd)
            if _OURS in names:
                for kept in names:
                    with suppress(OSError, CoreError):
                        self._restore(kept)
                if os.listdir(self._fd) == [_OURS]:
                    os.rmdir(_OURS, dir_fd=self._fd)
            os.rmdir(UNDO_DIRECTORY, dir_fd=self._directory.fd)
        self._release()

    def _holds_root(self, name: str) -> bool:
        return self._roots.holds_root(self._place(name))

    def _place(self, name: str) -> RootedPath:
        place = self._directory.place
        return RootedPath(place.root, join_path(place.relative, name))

    def _open_existing(self) -> bool:
        """Open and lock a saved state; False if there is none."""
        try:
            self._fd = os.open(UNDO_DIRECTORY, _DIRECTORY, dir_fd=self._directory.fd)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another call may have removed it between `open` and `flock`; the lock is then on nothing.
            is_same = os.path.samestat(os.fstat(self._fd), os.stat(UNDO_DIRECTORY, dir_fd=self._directory.fd))
        except BlockingIOError:
            self._release()
            raise Conflict(
                f"{self._directory.display_path}: a restore of it is under way; call again when it has ended"
            ) from None
        except FileNotFoundError:
            is_same = False
        except OSError as error:  # file systems without locks
            is_same = error.errno in (errno.ENOTSUP, errno.ENOLCK, errno.EBADF)
        if not is_same:
            self._release()
        return is_same

    def _is_there(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._directory.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _move_aside(self, name: str) -> None:
        try:
            os.rename(name, name, src_dir_fd=self._directory.fd, dst_dir_fd=self._fd)
        except FileNotFoundError:
            os.mkdir(f"{_ABSENT}{name}", dir_fd=self._fd)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EXDEV):
                raise
            # Something is mounted there, a volume of a container: it is left to the program.

    def _copy(self, name: str) -> None:
        """Copy a small regular file; anything else is not saved."""
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._directory.fd)
        with open(source, "rb") as file:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _COPY_BYTES:
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            copy = os.open(f"{_PART}{name}", flags, stat.S_IMODE(status.st_mode), dir_fd=self._fd)
            with open(copy, "wb") as kept:
                kept.write(file.read(status.st_size))  # and no more: a command may be appending
                kept.flush()
                os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
        # Complete before it gets its name: `_restore` deletes a part.
        os.rename(f"{_PART}{name}", name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def _restore(self, kept: str) -> None:
        name = kept.removeprefix(_ABSENT)
        if kept.startswith(_PART):
            os.unlink(kept, dir_fd=self._fd)
            return
        if name not in self._entries.names or self._holds_root(name):
            return
        if name != kept:
            if self._is_empty(kept):  # as we made it
                self._remove(name)
                os.rmdir(kept, dir_fd=self._fd)  # last: a kill before it only repeats the work
            return
        if stat.S_ISREG(os.stat(kept, dir_fd=self._fd, follow_symlinks=False).st_mode):
            if self._is_changed(name):
                os.rename(kept, name, src_dir_fd=self._fd, dst_dir_fd=self._directory.fd)
            else:
                os.unlink(kept, dir_fd=self._fd)
            return
        self._remove(name)
        os.rename(kept, name, src_dir_fd=self._fd, dst_dir_fd=self._directory.fd)

    def _is_empty(self, kept: str) -> bool:
        fd = os.open(kept, _DIRECTORY, dir_fd=self._fd)
        try:
            return not os.listdir(fd)
        finally:
            os.close(fd)

    def _is_changed(self, name: str) -> bool:
        kept = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        try:
            now = os.stat(name, dir_fd=self._directory.fd, follow_symlinks=False)
        except FileNotFoundError:
            return True
        return (now.st_mtime_ns, now.st_size) != (kept.st_mtime_ns, kept.st_size)

    def _remove(self, name: str) -> None:
        """Remove whatever has this name; links are not followed."""
        try:
            status = os.stat(name, dir_fd=self._directory.fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(status.st_mode):
            display_path = f"{self._directory.display_path}/{name}"
            delete_tree(
                self._roots, self._place(name), self._directory.fd, display_path=display_path, spares_links=False
            )
        else:
            os.unlink(name, dir_fd=self._directory.fd)

    def _release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
