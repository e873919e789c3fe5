"""Open and read files and directories beneath the roots, and report their status. Listings are in `directory_listing`.

Content is read from regular files only; a FIFO, a socket or a device is refused by its type, before it is opened.
"""

import errno
import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass

from coretools.cancellation import check_cancelled
from coretools.errors import Conflict, NotFound, TooLarge, WrongType
from coretools.roots.directory_access import translate_errors
from coretools.roots.file_version import Kind, Version, kind_of, version_of
from coretools.roots.git_directories import require_not_git_object, require_servable
from coretools.roots.open_beneath import HANDLE
from coretools.roots.resolve import refuse_secret, reopen, resolve
from coretools.roots.root import Closing, Directory, ResolvedPath, RootedPath
from coretools.roots.root_set import Roots

# O_NONBLOCK and O_NOCTTY protect against a file that is replaced by a FIFO or a terminal between check and open.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""Flags for opening content."""
_BLOCK_BYTES = 1024 * 1024
"""Read between two checks for cancellation."""
_REST_BYTES = 64 * 1024
"""Block size beyond the size that the file had when it was opened."""

_MAX_TRIES = 16
"""Attempts to resolve a path that becomes a link between check and open."""


@dataclass(slots=True)
class OpenFile(Closing):
    """A regular file that is open for reading. Use as a context manager, or close it."""

    fd: int
    display_path: str
    place: RootedPath
    """Its location, links followed."""
    version: Version
    """At the time of opening."""
    mode: int

    @property
    def size(self) -> int:
        """Bytes, at the time of opening."""
        return self.version.size

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def read(self, limit_bytes: int) -> bytes:
        """The rest of the file.

        Raises:
            TooLarge: it has more than `limit_bytes`; a sparse file is refused by its size, unread.
        """
        if self.size > limit_bytes:
            raise self._too_large(limit_bytes, self.size)
        blocks = []
        total = 0
        with translate_errors(self.display_path):
            while total <= limit_bytes:
                expected = self.size - total
                # Ask for one byte more than expected, to notice a file that has grown.
                block = os.read(self.fd, min(_BLOCK_BYTES, expected + 1 if expected > 0 else _REST_BYTES))
                if not block:
                    break
                blocks.append(block)
                total += len(block)
                if total > _BLOCK_BYTES:
                    check_cancelled()
        if total > limit_bytes:
            raise self._too_large(limit_bytes, total)
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    def read_at(self, position: int, count: int) -> bytes:
        """Up to `count` bytes from `position`; fewer only at the end of the file."""
        data = b""
        with translate_errors(self.display_path):
            while len(data) < count and (block := os.pread(self.fd, count - len(data), position + len(data))):
                data = data + block if data else block
        return data

    def _too_large(self, limit_bytes: int, size: int) -> TooLarge:
        return TooLarge(
            f"{self.display_path}: {size} bytes; at most {limit_bytes} are read at once",
            path=self.display_path,
            size=size,
            limit=limit_bytes,
        )


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a file that was read completely."""

    data: bytes
    display_path: str
    place: RootedPath
    """Its location, links followed."""
    version: Version


@dataclass(frozen=True, slots=True)
class FileStatus:
    """The status of a file, directory or other entry."""

    kind: Kind
    version: Version


def open_directory(roots: Roots, path: str) -> Directory:
    """Open a directory, links followed.

    Raises:
        WrongType: not a directory. And what `resolve` raises.
    """
    with resolve(roots, path) as resolved:
        status = resolved.require_found()
        if not stat.S_ISDIR(status.st_mode):
            raise WrongType(
                f"{resolved.display_path}: a {kind_of(status.st_mode)}, not a directory", path=resolved.display_path
            )
        with translate_errors(resolved.display_path):
            return Directory(reopen(resolved, HANDLE), resolved.place, resolved.display_path)


def open_file(roots: Roots, path: str, *, is_served: bool = False) -> OpenFile:
    """Open a regular file for reading, links followed; never blocks. `is_served`: for a resource read.

    Raises:
        WrongType: a directory, FIFO, socket or device. DeniedPath: an object of git. And what `resolve` raises.
    """
    for _ in range(_MAX_TRIES):
        with resolve(roots, path) as resolved, translate_errors(resolved.display_path):
            require_file(resolved)
            require_not_git_object(resolved)
            if is_served:
                require_servable(resolved)
            try:
                fd = reopen(resolved, READ)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    continue
                raise
            with ExitStack() as undo:
                undo.callback(os.close, fd)
                # Repeat the checks on the file that was opened.
                resolved.found = os.fstat(fd)
                status = require_file(resolved)
                refuse_secret(roots, resolved, fd)
                undo.pop_all()
            return OpenFile(fd, resolved.display_path, resolved.place, version_of(status), stat.S_IMODE(status.st_mode))
    raise Conflict(f"{path}: repeatedly becomes a link; try again later", path=path)


def read_bytes(roots: Roots, path: str, *, limit_bytes: int) -> FileContent:
    """The content of a regular file.

    Raises:
        TooLarge, and what `open_file` raises.
    """
    with open_file(roots, path) as file:
        return FileContent(file.read(limit_bytes), file.display_path, file.place, file.version)


def file_status(roots: Roots, path: str) -> FileStatus:
    """The status of what a path names, links followed; of a dangling link its own.

    Raises:
        NotFound: nothing is there. And what `resolve` raises.
    """
    with _resolve_or_link(roots, path) as resolved:
        status = resolved.require_found()
    return FileStatus(kind_of(status.st_mode), version_of(status))


def kind_at(roots: Roots, path: str) -> Kind | None:
    """The kind of what a path names, or None if nothing is there. A path outside the roots, or denied, is an error."""
    try:
        with _resolve_or_link(roots, path) as resolved:
            return None if resolved.found is None else kind_of(resolved.found.st_mode)
    except (NotFound, WrongType):
        # A parent directory is missing, or is a file.
        return None


def _resolve_or_link(roots: Roots, path: str) -> ResolvedPath:
    try:
        resolved = resolve(roots, path)
    except NotFound:
        return resolve(roots, path, follow=False)
    if resolved.found is not None:
        return resolved
    resolved.close()
    return resolve(roots, path, follow=False)


def require_file(resolved: ResolvedPath) -> os.stat_result:
    """The status of a regular file that may be used.

    Raises:
        NotFound, WrongType.
    """
    status = resolved.require_found()
    if not stat.S_ISREG(status.st_mode):
        raise WrongType(
            f"{resolved.display_path}: a {kind_of(status.st_mode)}, not a regular file", path=resolved.display_path
        )
    return status
