"""Create temporary files and rename them, or moved files, into place atomically.

Works on descriptors and single names only; the callers' `ResolvedPath` keeps it beneath the roots.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from coretools import regular_file
from coretools.errors import Conflict
from coretools.roots import open_beneath
from coretools.roots.file_version import Version, version_of
from coretools.roots.root import ResolvedPath, join_path
from coretools.roots.write_notes import WriteNotes

TEMPORARY_PREFIX = ".coretools-"
"""Prefix of temporary files; a leftover one is from a server that was killed, and the next removes it."""

_SUFFIX = ".tmp"

NO_FLAGS = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
"""renameat2 or its flag is not supported by the kernel or the file system."""

_SECOND_NS = 1_000_000_000
"""A modification time further in the future was set on purpose, or by another clock."""


def is_temporary(path: bytes) -> bool:
    """Whether a path has the name of a temporary file, of a write that goes on or was killed."""
    name = path.rpartition(b"/")[2]
    return name.startswith(TEMPORARY_PREFIX.encode()) and name.endswith(_SUFFIX.encode())


def temporary_name() -> str:
    """Return a new name of a temporary file."""
    return f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"


def noted(notes: WriteNotes, resolved: ResolvedPath, name: str) -> AbstractContextManager[None]:
    """Note that a file next to the path has this temporary name during the block."""
    return notes.noted(join_path(join_path(resolved.root.path, resolved.above), name))


@contextmanager
def temporary_file(
    notes: WriteNotes, resolved: ResolvedPath, model: os.stat_result | None
) -> Iterator[tuple[int, str]]:
    """Create a temporary file next to the path, with the mode and owner of `model`; yields its descriptor and name.

    It is deleted at the end of the block, unless it was renamed.
    """
    name = temporary_name()
    # A new file gets mode 0666 minus the umask, or the directory's default ACL.
    mode = 0o666 if model is None else 0o600
    with noted(notes, resolved, name), regular_file.temporary_file(name, directory=resolved.fd, mode=mode) as fd:
        if model is not None:
            regular_file.copy_owner_and_mode(fd, model)
        yield fd, name


def advance_modification_time(fd: int, old: os.stat_result) -> None:
    """Make the modification time later than that of the file that will be replaced.

    Otherwise three writes of the same size within one tick of the kernel's clock (4 ms; inode numbers are reused at
    once) could end with the version of the first.
    """
    now = os.fstat(fd).st_mtime_ns
    if old.st_mtime_ns - _SECOND_NS < now <= old.st_mtime_ns:
        os.utime(fd, ns=(now, old.st_mtime_ns + 1))


def commit(resolved: ResolvedPath, name: str, *, overwrite: bool, expected: Version | None = None) -> None:
    """Rename the temporary file to the final name.

    Raises:
        Conflict, OSError (EEXIST unless `overwrite`).
    """
    if not overwrite:
        rename_no_replace(resolved.fd, name, resolved.fd, resolved.name)
        return
    if expected is not None:
        require_version(resolved, expected)
    os.rename(name, resolved.name, src_dir_fd=resolved.fd, dst_dir_fd=resolved.fd)


def require_version(resolved: ResolvedPath, expected: Version) -> None:
    """Check that the file still has the expected version.

    Raises:
        Conflict: it has another version, or is gone.
    """
    try:
        now = version_of(os.stat(resolved.name, dir_fd=resolved.fd, follow_symlinks=False))
    except FileNotFoundError:
        now = None
    if now != expected:
        raise Conflict(f"{resolved.display_path}: changed since it was read; read it again", path=resolved.display_path)


def rename_no_replace(source_directory: int, source: str, directory: int, name: str) -> None:
    """Rename to an unused name, atomically: with renameat2, else with link(2) or mkdir(2).

    Raises:
        OSError: EEXIST if the name is taken.
    """
    try:
        open_beneath.rename(source_directory, source, directory, name, flags=open_beneath.NO_REPLACE)
    except OSError as error:
        if error.errno not in NO_FLAGS:
            raise
        rename_without_flags(source_directory, source, directory, name)


def rename_without_flags(source_directory: int, source: str, directory: int, name: str) -> None:
    """The same without renameat2: mkdir(2) and link(2) also fail if the name is taken."""
    if not stat.S_ISDIR(os.stat(source, dir_fd=source_directory, follow_symlinks=False).st_mode):
        os.link(source, name, src_dir_fd=source_directory, dst_dir_fd=directory, follow_symlinks=False)
        os.unlink(source, dir_fd=source_directory)
        return
    os.mkdir(name, dir_fd=directory)
    try:
        # A directory may replace an empty one.
        os.rename(source, name, src_dir_fd=source_directory, dst_dir_fd=directory)
    except OSError:
        os.rmdir(name, dir_fd=directory)
        raise
