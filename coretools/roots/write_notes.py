"""Notes of the temporary files that a server is writing, so that the next server removes what a kill left of them.

A server has one file of notes in the state directory, locked as long as it lives. A note takes two small writes to it:
the path of the temporary file before that is made, and nothing in its place when it is gone.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex

from coretools.regular_file import NEW_FILE

_NOTE_BYTES = 4096
"""A path that is longer is not noted. A page: of a write within one page a kill leaves all or nothing."""

_MOST_BYTES = 64 * 1024 * 1024
"""Of the notes of another server: 16,384 temporary files at once."""


class WriteNotes:
    """The notes of one server. A write never fails because of them. Safe to use from several threads."""

    def __init__(self, directory: str | None = None) -> None:
        """`directory` is for the notes of all servers of the user; None to note nothing."""
        self._directory = directory
        self._fd = -1
        self._path = ""
        self._lock = threading.Lock()
        self._free: list[int] = []
        self._count = 0

    def close(self) -> None:
        """Remove the file of notes."""
        with self._lock:
            self._directory = None
            if self._fd >= 0:
                with suppress(OSError):
                    os.unlink(self._path)
                os.close(self._fd)
                self._fd = -1

    @contextmanager
    def noted(self, path: str) -> Iterator[None]:
        """Note the absolute path of a temporary file that the block makes and removes or renames."""
        with self._lock:
            self._open()
            number = self._free.pop() if self._free else self._count
            self._count = max(self._count, number + 1)
        self._write(number, os.fsencode(path))
        try:
            yield
        finally:
            self._write(number, b"")
            with self._lock:
                self._free.append(number)

    def _write(self, number: int, path: bytes) -> None:
        if self._fd >= 0 and len(path) < _NOTE_BYTES:
            with suppress(OSError):
                os.pwrite(self._fd, path + b"\0", number * _NOTE_BYTES)

    def _open(self) -> None:
        """Make the file of notes for the first write."""
        if self._fd >= 0 or self._directory is None:
            return
        directory, self._directory = self._directory, None
        with suppress(OSError):
            os.makedirs(directory, mode=0o700, exist_ok=True)
            self._path = os.path.join(directory, token_hex(8))
            fd = os.open(self._path, NEW_FILE, 0o600)
            # Until it was locked, another server may have taken it for that of a killed one.
            if _is_locked_now(fd) and os.fstat(fd).st_nlink:
                self._fd = fd
            else:
                os.close(fd)

    def remove_leftovers(self, is_removed: Callable[[str], bool]) -> None:
        """Remove what servers left that were killed. `is_removed` removes a file, if it is one of this server's."""
        if self._directory is None:
            return
        with suppress(OSError):
            for name in os.listdir(self._directory):
                _remove_leftovers(os.path.join(self._directory, name), is_removed)


def _is_locked_now(fd: int) -> bool:
    """Lock a file until it is closed; False if another process has locked it, or its file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_leftovers(notes: str, is_removed: Callable[[str], bool]) -> None:
    """Remove what the notes of a killed server name; and the notes, if all of it is removed."""
    with suppress(OSError), open(notes, "r+b", buffering=0) as file:
        if not _is_locked_now(file.fileno()):
            return
        found = file.read(_MOST_BYTES)
        paths = [found[at:].partition(b"\0")[0] for at in range(0, len(found), _NOTE_BYTES)]
        removed = [is_removed(os.fsdecode(path)) for path in paths if path]
        if all(removed):
            os.unlink(notes)
