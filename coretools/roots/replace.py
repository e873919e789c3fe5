"""The one step in which new content, or a thing that is moved, takes a name; and the temporary file before it.

Works on handles and single names only, beneath the roots by way of its callers' `ResolvedPath`.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from coretools.cancellation import check_cancelled
from coretools.errors import Conflict
from coretools.roots import resolver
from coretools.roots.file_version import Version, version_of
from coretools.roots.resolve import ResolvedPath

TEMPORARY_PREFIX = ".coretools-"
"""Temporary files begin so; one that is found was left by a server that was killed in the act."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK_BYTES = 1024 * 1024
_NO_FLAGS = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
"""renameat2 or its flag is missing: an old kernel, or a file system that lacks it."""

_SECOND_NS = 1_000_000_000
"""A file from further in the future was dated so on purpose, or by another clock."""


@contextmanager
def temporary_file(resolved: ResolvedPath, model: os.stat_result | None) -> Iterator[tuple[int, str]]:
    """A new file beside the resolved, with the mode and owner of `model`: its descriptor and name.

    Gone at the end of the block, however that ends, unless it was renamed.
    """
    name = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}.tmp"
    # A new file gets what the umask and the directory's default ACL leave of 0666.
    fd = os.open(name, _CREATE, 0o666 if model is None else 0o600, dir_fd=resolved.fd)
    try:
        if model is not None:
            _copy_owner_and_mode(fd, model)
        yield fd, name
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=resolved.fd)


def write_all(fd: int, data: bytes) -> None:
    """Write everything, however little the system takes at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest[:_BLOCK_BYTES]) :]
        if rest:
            check_cancelled()


def advance_modification_time(fd: int, old: os.stat_result) -> None:
    """Make the time of modification differ from that of the file that is to be replaced.

    Without it three writes of one size within a tick of the kernel's clock (4 ms, and inode numbers are used again at
    once) could end in a version that a reader of the first takes for its own.
    """
    now = os.fstat(fd).st_mtime_ns
    if old.st_mtime_ns - _SECOND_NS < now <= old.st_mtime_ns:
        os.utime(fd, ns=(now, old.st_mtime_ns + 1))


def commit(resolved: ResolvedPath, name: str, *, overwrite: bool, expected: Version | None = None) -> None:
    """Give the temporary file of this name the name of the resolved.

    Raises:
        Conflict, OSError (EEXIST where it must not overwrite).
    """
    if not overwrite:
        rename_no_replace(resolved.fd, name, resolved.fd, resolved.name)
        return
    if expected is not None:
        require_version(resolved, expected)
    os.rename(name, resolved.name, src_dir_fd=resolved.fd, dst_dir_fd=resolved.fd)


def require_version(resolved: ResolvedPath, expected: Version) -> None:
    """Look again.

    Raises:
        Conflict: what has the name now has another version.
    """
    try:
        now = version_of(os.stat(resolved.name, dir_fd=resolved.fd, follow_symlinks=False))
    except FileNotFoundError:
        now = None
    if now != expected:
        raise Conflict(f"{resolved.shown}: changed since it was read; read it again", path=resolved.shown)


def rename_no_replace(source_directory: int, source: str, directory: int, name: str) -> None:
    """Rename to a name that nothing has; atomic by renameat2, else by what the file system offers.

    Raises:
        OSError: EEXIST when something has the name.
    """
    try:
        resolver.rename(source_directory, source, directory, name, flags=resolver.NO_REPLACE)
    except OSError as error:
        if error.errno not in _NO_FLAGS:
            raise
        rename_without_flags(source_directory, source, directory, name)


def rename_without_flags(source_directory: int, source: str, directory: int, name: str) -> None:
    """The same without renameat2: mkdir(2) and link(2) fail on a name that is taken, too."""
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


def _copy_owner_and_mode(fd: int, model: os.stat_result) -> None:
    """Give a new file the owner, group and permissions of another, as far as the system allows.

    The set-user-ID and set-group-ID bits go, as they do when a file is written to (write(2)).
    """
    own = os.fstat(fd)
    for user, group in ((model.st_uid, -1), (-1, model.st_gid)):
        if user not in (-1, own.st_uid) or group not in (-1, own.st_gid):
            with suppress(PermissionError):
                os.fchown(fd, user, group)
    os.fchmod(fd, stat.S_IMODE(model.st_mode) & 0o777)
