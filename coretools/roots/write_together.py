"""Change several files, all or none.

The new contents are written beside their files first, so that a full disk is found before anything changes. Then each
takes its name, and the old file is kept under the temporary name until the last one has. If one fails, the files before
it are exchanged back: the same inodes, with their modes and times. What somebody else changed meanwhile stays.

Readers can see some files changed and others not yet, for some microseconds. So can everybody after the server was
killed in that time: each file is as before or as after. The old ones have temporary names until the next server starts.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex

from coretools.errors import Conflict, CoreError, InvalidArguments, WrongType
from coretools.regular_file import read_regular, write_all
from coretools.roots import open_beneath
from coretools.roots.change_observer import Entry
from coretools.roots.directory_access import translate_errors
from coretools.roots.file_version import Version, kind_of, version_of
from coretools.roots.replace import (
    NO_FLAGS,
    advance_modification_time,
    noted,
    rename_no_replace,
    require_version,
    temporary_file,
    temporary_name,
)
from coretools.roots.root import ResolvedPath
from coretools.roots.root_set import Roots
from coretools.roots.write import (
    WrittenFile,
    create_missing,
    lock_paths,
    require_name,
    require_replaceable,
    resolve_for_change,
)

MAX_CHANGES = 200
"""Files changed at once. Each holds two descriptors, of the 1,024 that a process usually has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file that is written, created or deleted."""

    path: str
    data: bytes | None
    """The new content; None to delete the file."""
    expected: Version | None
    """The version that is replaced or deleted; None to create a file where nothing is."""
    mode: int | None = None
    """Permissions of a created file; None for the usual ones."""


def write_together(roots: Roots, changes: Sequence[FileChange]) -> list[WrittenFile]:
    """Make all changes, or none; missing parent directories of created files are created.

    Raises:
        InvalidArguments: a file is named twice, or there are too many.
        Conflict: a file has another version than expected, or is gone. AlreadyExists: something is where a file is to
            be created. What `write_bytes` raises. The error names what could not be put back, if anything.
    """
    if len(changes) > MAX_CHANGES:
        raise InvalidArguments(f"{len(changes)} files; at most {MAX_CHANGES} are changed at once")
    with ExitStack() as stack:
        stack.enter_context(lock_paths(roots, *(change.path for change in changes)))
        staged: list[_Staged] = []
        places: dict[str, str] = {}
        for change in changes:
            one = stack.enter_context(_staged(roots, change))
            staged.append(one)
            other = places.setdefault(one.resolved.place.path, change.path)
            if len(places) < len(staged):
                raise InvalidArguments(f"{change.path}: the same file as {other}; name each file once")
        with roots.changes.operation("write", ", ".join(change.path for change in changes)):
            _commit(staged)
        return [one.written() for one in staged]


@dataclass(slots=True)
class _Staged:
    """A change whose new content is written under a temporary name."""

    change: FileChange
    resolved: ResolvedPath
    temporary: str
    """The name of the new content, and after the commit of the old one."""
    roots: Roots
    content_fd: int = -1
    """The open new content; -1 if the file is deleted."""
    new: Version | None = None
    """The version of the file after its commit."""
    is_committed: bool = False

    def commit(self) -> None:
        """Give the new content its name.

        Raises:
            Conflict, AlreadyExists, OSError: nothing was changed.
        """
        fd, name = self.resolved.fd, self.resolved.name
        entry = Entry(fd, name, self.resolved.place)
        if self.change.data is not None:
            self.roots.changes.before_write(entry, self.content_fd)
        if self.change.expected is None:
            rename_no_replace(fd, self.temporary, fd, name)
        else:
            require_version(self.resolved, self.change.expected)
            if self.change.data is None:
                self.roots.changes.before_removal([entry])
                rename_no_replace(fd, name, fd, self.temporary)
            elif self._exchange():
                self._require_replaced(self.change.expected)
        self.is_committed = True
        if self.change.data is not None:
            self.new = self._version_of(name)

    def roll_back(self) -> str:
        """Put the old file back; return what prevented it, "" if nothing did."""
        fd, name = self.resolved.fd, self.resolved.name
        try:
            if self.change.data is None:
                rename_no_replace(fd, self.temporary, fd, name)
            elif self._version_of(name) != self.new:
                return "somebody else changed it meanwhile, and it stays like that"
            elif self.change.expected is None:
                os.unlink(name, dir_fd=fd)
            else:
                self._exchange()
        except FileExistsError:
            return f"somebody else created it again; the deleted content is in {self._keep()}"
        except OSError as error:
            kept = f"; its old content is in {self._keep()}" if self.change.expected is not None else ""
            return f"{error.strerror}{kept}"
        return ""

    def written(self) -> WrittenFile:
        """The result of the change."""
        data = self.change.data
        size = 0 if data is None else len(data)
        return WrittenFile(self.resolved.display_path, self.resolved.place, self.change.expected is None, size)

    def _exchange(self) -> bool:
        """Exchange the file and the one of the temporary name; return whether that was done in one step."""
        fd, name = self.resolved.fd, self.resolved.name
        try:
            open_beneath.rename(fd, self.temporary, fd, name, flags=open_beneath.EXCHANGE)
        except OSError as error:
            if error.errno not in NO_FLAGS:
                raise
            self._exchange_by_copy()
            return False
        return True

    def _exchange_by_copy(self) -> None:
        """The same where the kernel or the file system can't exchange names: a copy of the old file is kept."""
        fd, name = self.resolved.fd, self.resolved.name
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        data, _ = read_regular(name, status.st_size, directory=fd)
        with temporary_file(self.roots.write_notes, self.resolved, status) as (copy, copied):
            write_all(copy, data)
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(copy)
            os.rename(self.temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            os.rename(copied, self.temporary, src_dir_fd=fd, dst_dir_fd=fd)

    def _require_replaced(self, expected: Version) -> None:
        """Check what the exchange replaced: somebody may have changed the file in the last moment.

        Raises:
            Conflict: that happened; it is exchanged back.
        """
        replaced = self._version_of(self.temporary)
        # Without the time of the last change of the inode, which the exchange itself has set.
        if replaced is None or replaced[:4] != expected[:4]:
            self._exchange()
            raise Conflict(
                f"{self.resolved.display_path}: changed since it was read; read it again",
                path=self.resolved.display_path,
            )

    def _version_of(self, name: str) -> Version | None:
        try:
            return version_of(os.stat(name, dir_fd=self.resolved.fd, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def _keep(self) -> str:
        """Rename the old content to a name that is not removed at the end; return that name."""
        kept = f"{self.resolved.name}.{token_hex(4)}.orig"
        with suppress(OSError):
            rename_no_replace(self.resolved.fd, self.temporary, self.resolved.fd, kept)
        return kept


@contextmanager
def _staged(roots: Roots, change: FileChange) -> Iterator[_Staged]:
    """Check a change and write its new content under a temporary name, which is removed at the end."""
    deletes = change.data is None
    with resolve_for_change(roots, change.path, follow=not deletes) as resolved:
        if change.data is None:
            _require_deletable(resolved, change)
            name = temporary_name()
            with noted(roots.write_notes, resolved, name), _unlinking(resolved, name):
                yield _Staged(change, resolved, name, roots)
            return
        status = require_replaceable(resolved, overwrite=change.expected is not None, expected=change.expected)
        with (
            create_missing(roots, resolved, parents=True),
            temporary_file(roots.write_notes, resolved, status) as (fd, name),
        ):
            write_all(fd, change.data)
            if status is not None:
                advance_modification_time(fd, status)
            elif change.mode is not None:
                os.fchmod(fd, change.mode & 0o777)
            # Before the rename: after a crash the name must not lead to an empty file.
            os.fsync(fd)
            yield _Staged(change, resolved, name, roots, fd)


def _require_deletable(resolved: ResolvedPath, change: FileChange) -> None:
    require_name(resolved)
    status = resolved.require_found()
    if not stat.S_ISREG(status.st_mode):
        raise WrongType(
            f"{resolved.display_path}: a {kind_of(status.st_mode)}, not a regular file", path=resolved.display_path
        )
    if change.expected is not None:
        require_version(resolved, change.expected)


@contextmanager
def _unlinking(resolved: ResolvedPath, name: str) -> Iterator[None]:
    """Delete what has this name at the end of the block."""
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=resolved.fd)


def _commit(staged: Sequence[_Staged]) -> None:
    """Give every new content its name; if one fails, put the others back.

    Raises:
        CoreError: of the first that failed, with what could not be put back.
    """
    try:
        for one in staged:
            # Here, and not by the block that resolved it: that of the last file would name its own path.
            with translate_errors(one.resolved.display_path):
                one.commit()
    except CoreError as error:
        committed = [one for one in staged if one.is_committed]
        failures = [(one, reason) for one in reversed(committed) if (reason := one.roll_back())]
        raise type(error)(f"{error}; {_outcome(len(committed), failures)}", **error.facts) from error


def _outcome(count: int, failures: Sequence[tuple[_Staged, str]]) -> str:
    if not failures:
        return "no file was changed" if not count else f"no file was changed: {count} written before were put back"
    kept = "; ".join(f"{one.resolved.display_path}: {reason}" for one, reason in failures)
    return f"of {count} files written before, {count - len(failures)} were put back, and {len(failures)} not: {kept}"
