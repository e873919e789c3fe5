"""Let a git that may not write a repository refresh its index: in a copy, which then takes the index's place.

git compares the size and times of each file with those in its index, and reads the files for which they differ. After
`cp -r`, or in a restored cache, they differ for all; plain `git status` then writes the new times to the index.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_hex

from coretools.errors import CoreError
from coretools.regular_file import NEW_FILE, copy_owner_and_mode, read_regular, replacing, write_all
from coretools.roots.directory_access import read_file
from coretools.roots.git_index import MAX_INDEX_BYTES
from coretools.roots.root import identity_of

_NAME = "index"
_LOCK = "index.lock"
_FILE_SYSTEM_MONITOR = b"FSMN"
"""Extension of an index that a file system monitor keeps up to date. git drops it where it may start no monitor."""


def directory_of_copies(above: str, git_path: str) -> str:
    """Create the directory for copies of one repository's index, and return its path; "" if that fails.

    Each repository has its own: a git that reads one of them can't change the copies of another.
    """
    path = f"{above}/index-{sha256(git_path.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return ""
    return path


@dataclass(frozen=True, slots=True)
class IndexCopy:
    """A copy of an index, and which state of the index it is a copy of."""

    path: str
    written: tuple[int, int]
    """Inode and modification time of the copy before git ran; git replaces a file that it changes."""
    original: os.stat_result

    @property
    def is_refreshed(self) -> bool:
        """Whether git has written the copy."""
        return _state(self.path) not in (None, self.written)

    def remove(self) -> None:
        """Remove the copy, and the lock of a git that was stopped."""
        for path in (self.path, f"{self.path}.lock"):
            with suppress(OSError):
                os.unlink(path)

    def put_in_place(self, directory: int) -> None:
        """Replace the index of a git directory by the refreshed copy, as git does: under `index.lock`.

        Nothing happens if another process holds the lock, if the index was changed meanwhile, or if its owner can't
        be kept. The next call refreshes again.
        """
        with suppress(OSError, CoreError):
            data, copied = read_regular(self.path, 2 * MAX_INDEX_BYTES)
            lock = os.open(_LOCK, NEW_FILE, 0o600, dir_fd=directory)
            # Not written to the lock: somebody may remove it and create one of his own, and a rename goes by name.
            try:
                # Not durable, as git's own: a lost index is a refresh more.
                with replacing(_NAME, directory=directory, mode=0o600, durable=False) as file:
                    write_all(file, data)
                    copy_owner_and_mode(file, self.original)
                    # git reads a file again if it changed as late as the index did: the copy was written before it.
                    os.utime(file, ns=(copied.st_mtime_ns, copied.st_mtime_ns))
                    self._require_same(file, directory)
            finally:
                with suppress(FileNotFoundError):
                    # Unless the name has come to mean another file.
                    named = os.stat(_LOCK, dir_fd=directory, follow_symlinks=False)
                    if identity_of(named) == identity_of(os.fstat(lock)):
                        os.unlink(_LOCK, dir_fd=directory)
                os.close(lock)

    def _require_same(self, file: int, directory: int) -> None:
        now = os.stat(_NAME, dir_fd=directory, follow_symlinks=False)
        if _identity(now) != _identity(self.original) or os.fstat(file).st_uid != now.st_uid:
            raise PermissionError


def copy_index(directory: int, copies: str) -> IndexCopy | None:
    """Copy the index of a git directory; None if there is none, or git must not change it."""
    try:
        original = os.stat(_NAME, dir_fd=directory, follow_symlinks=False)
        data = read_file(directory, _NAME, limit_bytes=MAX_INDEX_BYTES)
        after = os.stat(_NAME, dir_fd=directory, follow_symlinks=False)
        if _identity(after) != _identity(original) or _FILE_SYSTEM_MONITOR in data:
            return None
        path = f"{copies}/{token_hex(8)}"
        file = os.open(path, NEW_FILE, 0o600)
        try:
            write_all(file, data)
            os.utime(file, ns=(original.st_mtime_ns, original.st_mtime_ns))
        finally:
            os.close(file)
    except (OSError, CoreError):
        return None
    state = _state(path)
    return None if state is None else IndexCopy(path, state, original)


def _state(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
