"""Inspect, read, create and remove the entries of an open directory, one name at a time, links never followed.

For the server's own decisions ("what is this repository made of?"), not for answers: deny globs are not applied, so
nothing read through this module may be shown to a caller. The directory was opened beneath a root; a single name
without links cannot lead out of it.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from secrets import token_hex
from types import TracebackType

from coretools.errors import (
    AlreadyExists,
    Busy,
    CoreError,
    InputOutput,
    InvalidPath,
    NotFound,
    OutsideRoot,
    PermissionRefused,
    ReadOnly,
    TooLarge,
    WrongType,
)
from coretools.regular_file import NEW_FILE, replacing, write_all
from coretools.roots.file_version import Version, version_of

# Errors of the operating system, as errors that a caller understands. The only place that maps errno for that.

_MEANINGS: dict[int, tuple[type[CoreError], str]] = {
    errno.ENOENT: (NotFound, "there is nothing at this path"),
    errno.EACCES: (PermissionRefused, "the operating system refused: permission denied"),
    errno.EPERM: (PermissionRefused, "the operating system refused: operation not permitted"),
    errno.EROFS: (ReadOnly, "the file system is mounted read-only"),
    errno.EEXIST: (AlreadyExists, "something already exists at this path"),
    errno.ENOTEMPTY: (AlreadyExists, "a directory that is not empty already exists at this path"),
    errno.ENOTDIR: (WrongType, "a part of the path that must be a directory is not one"),
    errno.EISDIR: (WrongType, "it is a directory"),
    errno.ENXIO: (WrongType, "it is a device or socket without a peer"),
    errno.ELOOP: (OutsideRoot, "a link in the path cannot be followed"),
    errno.EXDEV: (OutsideRoot, "the path leads to another file system"),
    errno.ENAMETOOLONG: (InvalidPath, "the path, or a name in it, is too long for the file system"),
    errno.EILSEQ: (InvalidPath, "the file system does not support this name"),
    errno.EBUSY: (Busy, "the operating system is using it"),
    errno.ETXTBSY: (Busy, "a running program is using it"),
    errno.ENOSPC: (InputOutput, "the disk is full"),
    errno.EDQUOT: (InputOutput, "the disk quota is used up"),
    errno.EFBIG: (InputOutput, "larger than the file system or a resource limit allows"),
    errno.EMFILE: (InputOutput, "too many open files in this server"),
    errno.ENFILE: (InputOutput, "too many open files on this machine"),
    errno.ESTALE: (NotFound, "it no longer exists on its file server"),
}


class translate_errors:  # noqa: N801 - used like a function: `with translate_errors(shown):`
    """Raise an OSError of the block as the matching CoreError, with the path as the caller wrote it."""

    __slots__ = ("_display_path",)

    def __init__(self, display_path: str) -> None:
        self._display_path = display_path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise core_error_for(error, self._display_path) from error


def core_error_for(error: OSError, display_path: str) -> CoreError:
    """The CoreError for an OSError. An unknown errno becomes InputOutput with the system's own text."""
    number = error.errno or errno.EIO
    meaning, sentence = _MEANINGS.get(number, (InputOutput, os.strerror(number)))
    return meaning(f"{display_path}: {sentence}", path=display_path)


DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for opening a directory to list it."""
_PIN = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC


def entry_kinds(directory: int) -> dict[str, str]:
    """Name and kind ("file", "directory", "link", "socket", "other") of every entry of a directory.

    Moves the descriptor's read position and restores it (CPython, scandir): one call at a time for one descriptor.
    """
    with translate_errors("directory"), os.scandir(directory) as entries:
        return {entry.name: _kind(entry) for entry in entries}


def special_entries(directory: int, name: str) -> dict[str, str] | None:
    """Entries of a subdirectory that are neither regular files nor directories; usually none.

    None if there is no such subdirectory. Takes 40 us for 256 directories, as among a repository's objects.
    """
    with translate_errors(name):
        try:
            handle = os.open(name, DIRECTORY, dir_fd=directory)
        except FileNotFoundError:
            return None
        try:
            with os.scandir(handle) as entries:
                return {
                    entry.name: _kind(entry)
                    for entry in entries
                    if not (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False))
                }
        finally:
            os.close(handle)


def entry_kind(directory: int, name: str) -> str | None:
    """Kind of the entry with this name, None if there is none."""
    status = _status(directory, name)
    if status is None:
        return None
    tests = (("file", stat.S_ISREG), ("directory", stat.S_ISDIR), ("link", stat.S_ISLNK), ("socket", stat.S_ISSOCK))
    return next((word for word, test in tests if test(status.st_mode)), "other")


def entry_version(directory: int, name: str) -> Version | None:
    """Version of the entry with this name, None if there is none."""
    status = _status(directory, name)
    return None if status is None else version_of(status)


def read_file(directory: int, name: str, *, limit_bytes: int) -> bytes:
    """Content of a regular file; never blocks on anything else.

    Raises:
        NotFound, OutsideRoot (a link), WrongType (a FIFO, a directory), TooLarge, PermissionRefused.
    """
    with translate_errors(name):
        file = os.open(name, _FILE, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise WrongType(f"{name}: not a regular file")
            with open(file, "rb", closefd=False) as stream:
                data = stream.read(limit_bytes + 1)
        finally:
            os.close(file)
    if len(data) > limit_bytes:
        raise TooLarge(f"{name}: more than {limit_bytes} bytes")
    return data


def create_file(directory: int, name: str, data: bytes) -> None:
    """Create a file with this content. Nothing is replaced, and no link is followed.

    Raises:
        AlreadyExists, PermissionRefused, InputOutput.
    """
    with translate_errors(name):
        file = os.open(name, NEW_FILE, 0o666, dir_fd=directory)
        with open(file, "wb") as stream:
            stream.write(data)


def replace_file(directory: int, name: str, data: bytes) -> None:
    """Give a file this content, in one step; a link of this name is replaced and not followed.

    Raises:
        PermissionRefused, InputOutput: the file is as it was.
    """
    with translate_errors(name), replacing(name, directory=directory) as fd:
        write_all(fd, data)


def create_directory(directory: int, name: str, files: Mapping[str, bytes]) -> None:
    """Create a directory with these files, in one step: nobody sees a part of it, not even after a crash.

    Raises:
        AlreadyExists, PermissionRefused, InputOutput: nothing was created.
    """
    new = f"{name}.{token_hex(8)}"
    with translate_errors(name):
        os.mkdir(new, dir_fd=directory)
    try:
        with open_subdirectory(directory, new) as handle:
            for file, data in files.items():
                create_file(handle, file, data)
        with translate_errors(name):
            os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except CoreError:
        with suppress(CoreError), open_subdirectory(directory, new) as handle:
            for file in files:
                remove_file(handle, file)
        with suppress(OSError):
            os.rmdir(new, dir_fd=directory)
        raise


def remove_file(directory: int, name: str) -> None:
    """Remove a file or a link; nothing happens if there is none."""
    with translate_errors(name), suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def lock(directory: int) -> bool:
    """Lock a directory against everybody else who locks it (flock(2)), until its handle is closed; False: one has.

    Nothing is written, and it ends with the process however that ends. A file system without such locks grants it.
    """
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def open_subdirectory(directory: int, name: str) -> AbstractContextManager[int]:
    """Open the subdirectory of this name.

    Raises:
        NotFound, WrongType (a link, a file), PermissionRefused.
    """
    return _opened(directory, name, DIRECTORY)


def open_handle(directory: int, name: str) -> AbstractContextManager[int]:
    """Open any entry, a link too, by O_PATH: the descriptor identifies it and cannot be read.

    Raises:
        NotFound, PermissionRefused.
    """
    return _opened(directory, name, _PIN)


@contextmanager
def _opened(directory: int, name: str, flags: int) -> Iterator[int]:
    with translate_errors(name):
        handle = os.open(name, flags, dir_fd=directory)
    try:
        yield handle
    finally:
        os.close(handle)


def _status(directory: int, name: str) -> os.stat_result | None:
    with translate_errors(name):
        try:
            return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None


def _kind(entry: "os.DirEntry[str]") -> str:
    # The listing includes the kind; only file systems that omit it cost one call per entry.
    if entry.is_file(follow_symlinks=False):
        return "file"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    if entry.is_symlink():
        return "link"
    return "socket" if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) else "other"
