"""Regular files: read one up to a limit, without waiting; replace one so that no reader finds half of it.

Names are paths, or single names in an open directory.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex

from coretools.cancellation import check_cancelled

NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_BLOCK_BYTES = 1024 * 1024


def read_regular(
    name: str, limit_bytes: int, *, directory: int | None = None, follow: bool = False, pipes: bool = False
) -> tuple[bytes, os.stat_result]:
    """Return content and status of a regular file, or of a pipe where `pipes`; of a link only where `follow`.

    Raises:
        OSError: it can't be read, is no such file, or larger than the limit.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    fd = os.open(name, flags, dir_fd=directory)
    try:
        status = os.fstat(fd)
        if pipes and stat.S_ISFIFO(status.st_mode):
            os.set_blocking(fd, True)  # it ends with its writers
        elif not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        with open(fd, "rb", closefd=False) as file:
            data = file.read(limit_bytes + 1)
    finally:
        os.close(fd)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"larger than {limit_bytes} bytes", name)
    return data, status


@contextmanager
def temporary_file(name: str, *, directory: int | None = None, mode: int = 0o666) -> Iterator[int]:
    """Create a file, with permissions `mode` less the umask, and yield its descriptor.

    It is deleted at the end of the block, unless it was renamed.
    """
    fd = os.open(name, NEW_FILE, mode, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


@contextmanager
def replacing(
    name: str, *, directory: int | None = None, mode: int = 0o666, temporary: str = "", durable: bool = True
) -> Iterator[int]:
    """Yield the descriptor of a new file, which takes the name at the end of the block, unless that fails.

    A link of this name is replaced and not followed. `temporary` is the name of the new file until then.

    Raises:
        OSError: the file is as it was.
    """
    new = temporary or f"{name}.{token_hex(8)}"
    with temporary_file(new, directory=directory, mode=mode) as fd:
        yield fd
        if durable:
            os.fsync(fd)  # before the rename: after a crash the name must not lead to an empty file
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)


def write_all(fd: int, data: bytes) -> None:
    """Write all data, in as many calls as needed."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest[:_BLOCK_BYTES]) :]
        if rest:
            check_cancelled()


def copy_owner_and_mode(fd: int, model: os.stat_result) -> None:
    """Give a new file the owner, group and permissions of another, as far as the system allows.

    The set-user-ID and set-group-ID bits are dropped, as by write(2).
    """
    own = os.fstat(fd)
    for user, group in ((model.st_uid, -1), (-1, model.st_gid)):
        if user not in (-1, own.st_uid) or group not in (-1, own.st_gid):
            with suppress(PermissionError):
                os.fchown(fd, user, group)
    os.fchmod(fd, stat.S_IMODE(model.st_mode) & 0o777)
