"""The contents of files from before their change: one directory of the user's alone, one file for each content.

A file that is about to be removed is linked where the file system allows it: that costs no bytes and no time. One that
stays, or has other names, is copied, as a clone where the file system has them (ioctl_ficlone(2)).
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Sequence
from contextlib import suppress

from coretools.errors import TooLarge
from coretools.regular_file import write_all
from coretools.undo.change import SAME_CONTENT
from coretools.undo.entry_state import BLOCK_BYTES, READ

_FICLONE = 0x40049409
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES)
"""Another file system, or one without links, or a file of somebody else (proc(5), protected_hardlinks)."""


class ContentStore:
    """Contents by name, in one directory."""

    def __init__(self, directory: str, *, most_copied: int) -> None:
        """`most_copied` is the size of the largest file that is copied."""
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._most_copied = most_copied

    def close(self) -> None:
        """Close the directory."""
        os.close(self._fd)

    def keep(self, name: str, directory: int, entry: str, *, is_removed: bool, display_path: str) -> int:
        """Keep the content of a regular file under a name; return its bytes.

        Raises:
            TooLarge: it would have to be copied, and is too large for that. OSError.
        """
        fd = os.open(entry, READ, dir_fd=directory)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return 0
            if is_removed and status.st_nlink == 1 and self._link(name, directory, entry, status):
                return status.st_size
            if status.st_size > self._most_copied:
                raise TooLarge(
                    f"{display_path}: has {status.st_size} bytes; files of more than {self._most_copied} are not copied"
                    " for undo, so it was left as it is"
                )
            self._copy(name, fd)
            return status.st_size
        finally:
            os.close(fd)

    def take(self, directory: str, prefix: str, names: Sequence[str]) -> list[str]:
        """Move files of a directory of the same file system into the store; return the name of each there.

        "" stands for no content. A name may occur several times. What was moved before is found.
        """
        stored: list[str] = []
        given: dict[str, int] = {}
        source = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in names:
                if name in ("", SAME_CONTENT):
                    stored.append(name)
                    continue
                times = given[name] = given.get(name, 0) + 1
                first = f"{prefix}-{name}"
                if times == 1:
                    with suppress(FileNotFoundError):
                        self._take(source, name, first)
                    stored.append(first)
                    continue
                another = f"{first}-{times}"
                with suppress(FileExistsError, FileNotFoundError):
                    os.link(first, another, src_dir_fd=self._fd, dst_dir_fd=self._fd)
                stored.append(another)
        finally:
            os.close(source)
        return stored

    def _take(self, directory: int, name: str, stored: str) -> None:
        """Move a file into the store. One that has other names is copied: they can be written to."""
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if status.st_nlink == 1 or status.st_size > self._most_copied:
            os.rename(name, stored, src_dir_fd=directory, dst_dir_fd=self._fd)
            return
        try:
            fd = os.open(name, READ, dir_fd=directory)
        except PermissionError:
            os.rename(name, stored, src_dir_fd=directory, dst_dir_fd=self._fd)
            return
        try:
            self.forget(stored)  # of an attempt that was interrupted
            self._copy(stored, fd)
        finally:
            os.close(fd)
        os.utime(stored, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=self._fd)
        os.unlink(name, dir_fd=directory)

    def open(self, name: str) -> int:
        """Open a content for reading.

        Raises:
            OSError: it is gone.
        """
        return os.open(name, READ, dir_fd=self._fd)

    def forget(self, name: str) -> None:
        """Remove a content, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def names(self, *, older_than: float) -> set[str]:
        """The names of contents that were kept more than so many seconds ago."""
        last, found = time.time() - older_than, set[str]()
        with os.scandir(self._fd) as scan:
            for entry in scan:
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_ctime <= last:
                        found.add(entry.name)
        return found

    def _link(self, name: str, directory: int, entry: str, opened: os.stat_result) -> bool:
        """Keep the open file by a link; False if it can't have one, or if its name is another file's by now."""
        try:
            os.link(entry, name, src_dir_fd=directory, dst_dir_fd=self._fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            return False
        if not os.path.samestat(os.stat(name, dir_fd=self._fd, follow_symlinks=False), opened):
            self.forget(name)
            return False
        return True

    def _copy(self, name: str, source: int) -> None:
        target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
        try:
            try:
                fcntl.ioctl(target, _FICLONE, source)
            except OSError:
                os.lseek(source, 0, os.SEEK_SET)
                while block := os.read(source, BLOCK_BYTES):
                    write_all(target, block)
        except BaseException:
            self.forget(name)
            raise
        finally:
            os.close(target)
