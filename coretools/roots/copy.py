"""Copy a file, or a directory with everything in it; nothing is ever replaced.

What is hidden from the caller is not copied: under another name, or in another place, it would no longer be hidden.
"""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field

from coretools.cancellation import check_cancelled
from coretools.errors import AlreadyExists, DeniedPath, InvalidPath, TooLarge
from coretools.regular_file import NEW_FILE, write_all
from coretools.roots.change_observer import Entry
from coretools.roots.directory_access import DIRECTORY, translate_errors
from coretools.roots.file_version import kind_of
from coretools.roots.git_directories import require_no_repository, require_outside_git
from coretools.roots.git_layout import is_git_name
from coretools.roots.new_directory import NewDirectory, new_directory
from coretools.roots.path_text import printable
from coretools.roots.read import READ, OpenFile, open_file
from coretools.roots.replace import commit, temporary_file
from coretools.roots.resolve import resolve
from coretools.roots.root import ResolvedPath, RootedPath, join_path
from coretools.roots.root_set import Roots
from coretools.roots.write import create_missing, lock_paths, require_name, resolve_for_change

MAX_ENTRIES = 50_000
"""Files, links and directories of one copy; `node_modules` of a large project has as many."""

MAX_BYTES = 1024 * 1024 * 1024
"""Bytes of one copy: it fills the disk of a person without a question."""

_BLOCK_BYTES = 1024 * 1024
_MODE = 0o777
"""Permissions that are copied: not the set-user-ID and set-group-ID bits."""


@dataclass(slots=True)
class Copied:
    """What was copied."""

    source: str
    destination: str
    entries: int = 0
    """Files, links and directories in a directory."""
    size: int = 0
    """Bytes of all files."""
    hidden: list[str] = field(default_factory=list)
    """Paths in the directory that are hidden from the caller, and were not copied."""
    special: list[str] = field(default_factory=list)
    """FIFOs, sockets and devices, which were not copied."""


def copy_path(roots: Roots, source: str, destination: str, *, parents: bool = False) -> Copied:
    """Copy a file or directory to a path where nothing is. Links in a directory are copied as links.

    Raises:
        AlreadyExists: something is at the destination. NotFound: its directory is missing and `parents` is False.
        DeniedPath: the source is hidden, or a git directory is involved. TooLarge: over the limits above.
        InvalidPath: the destination lies in the source. WrongType, ReadOnly, and what `resolve` raises.
    """
    with lock_paths(roots, destination, follow=False), resolve(roots, source) as origin:
        if stat.S_ISDIR(origin.require_found().st_mode):
            return _copy_directory(roots, origin, destination, parents=parents)
        with open_file(roots, source) as file:
            return _copy_file(roots, file, destination, parents=parents)


def _copy_file(roots: Roots, file: OpenFile, destination: str, *, parents: bool) -> Copied:
    if file.size > MAX_BYTES:
        raise _too_large(file.display_path)
    with resolve_for_change(roots, destination, follow=False) as target:
        require_name(target)
        if target.found is not None:
            raise _exists(target)
        with (
            create_missing(roots, target, parents=parents),
            temporary_file(roots.write_notes, target, None) as (fd, name),
        ):
            size = _copy_content(file.fd, fd, file.display_path, MAX_BYTES)
            os.fchmod(fd, file.mode & _MODE)
            os.fsync(fd)
            roots.changes.before_write(Entry(target.fd, target.name, target.place), fd)
            commit(target, name, overwrite=False)
        return Copied(file.display_path, target.display_path, size=size)


def _copy_directory(roots: Roots, origin: ResolvedPath, destination: str, *, parents: bool) -> Copied:
    require_name(origin)
    require_outside_git(origin)
    require_no_repository(origin)
    with resolve_for_change(roots, destination, follow=False) as target:
        require_name(target)
        if target.found is not None:
            raise _exists(target)
        place = target.place
        if place.root is origin.root and f"{place.relative}/".startswith(f"{origin.place.relative}/"):
            raise InvalidPath(f"{target.display_path}: lies inside {origin.display_path}", path=target.display_path)
        with create_missing(roots, target, parents=parents), new_directory(roots, destination) as new:
            roots.changes.before_new_directory(Entry(target.fd, target.name, place))
            copied = Copied(origin.display_path, target.display_path)
            _TreeCopy(roots, origin, place, new, copied).copy()
            new.keep()
        return copied


class _TreeCopy:
    """The copy of one directory.

    Each directory in it is opened from the top, without links, so depth costs no descriptors.
    """

    def __init__(
        self, roots: Roots, origin: ResolvedPath, target: RootedPath, new: NewDirectory, copied: Copied
    ) -> None:
        self._roots = roots
        self._origin = origin
        self._source = origin.place
        self._target = target
        self._new = new
        self._copied = copied

    def copy(self) -> None:
        """Fill the new directory."""
        top = os.open(self._origin.name, DIRECTORY, dir_fd=self._origin.fd)
        try:
            os.fchmod(self._new.fd, stat.S_IMODE(os.fstat(top).st_mode) & _MODE | stat.S_IRWXU)
            waiting = ["."]
            while waiting:
                check_cancelled()
                waiting += self._copy_entries(top, waiting.pop())
        finally:
            os.close(top)

    def _copy_entries(self, top: int, beneath: str) -> list[str]:
        """Copy the entries of one directory; return its subdirectories, which are created and empty."""
        with translate_errors(f"{self._copied.source}/{beneath}"):
            here = self._roots.resolver.open(top, beneath, DIRECTORY)
            try:
                there = self._roots.resolver.open(self._new.fd, beneath, DIRECTORY)
                try:
                    with os.scandir(here) as scan:
                        names = sorted(entry.name for entry in scan)
                    paths = ((name, join_path(beneath, name)) for name in names)
                    return [path for name, path in paths if self._copy_entry(here, there, name, path)]
                finally:
                    os.close(there)
            finally:
                os.close(here)

    def _copy_entry(self, here: int, there: int, name: str, beneath: str) -> bool:
        """Copy one entry, of a directory only its name and mode; return whether it is a directory."""
        if is_git_name(name):  # made since it was searched
            raise DeniedPath(f"{self._copied.source}: holds a git directory, and file tools copy none: use cp or git")
        place = RootedPath(self._source.root, join_path(self._source.relative, beneath))
        target = RootedPath(self._target.root, join_path(self._target.relative, beneath))
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
        if any(map(self._roots.denied_by, (place, target))):
            self._copied.hidden.append(printable(beneath))
            return False
        entry = Entry(there, name, target)
        if stat.S_ISDIR(status.st_mode):
            self._roots.changes.before_new_directory(entry)
            os.mkdir(name, status.st_mode & _MODE | stat.S_IRWXU, dir_fd=there)
        elif stat.S_ISLNK(status.st_mode):
            leads_to = os.readlink(name, dir_fd=here)
            self._roots.changes.before_new_link(entry, leads_to)
            os.symlink(leads_to, name, dir_fd=there)
        elif not stat.S_ISREG(status.st_mode):
            self._copied.special.append(f"{printable(beneath)} ({kind_of(status.st_mode)})")
            return False
        elif not self._copy_file(here, entry, place):
            self._copied.hidden.append(printable(beneath))
            return False
        self._copied.entries += 1
        if self._copied.entries > MAX_ENTRIES:
            raise _too_large(self._copied.source)
        return stat.S_ISDIR(status.st_mode)

    def _copy_file(self, here: int, entry: Entry, place: RootedPath) -> bool:
        """Copy a regular file; False if it is hidden."""
        there, name, _ = entry
        source = os.open(name, READ | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):  # replaced since
                return False
            if self._roots.hidden(place, source):
                return False
            fd = os.open(name, NEW_FILE, 0o600, dir_fd=there)
            try:
                room = MAX_BYTES - self._copied.size
                self._copied.size += _copy_content(source, fd, self._copied.source, room)
                os.fchmod(fd, status.st_mode & _MODE)
                self._roots.changes.before_write(entry, fd, is_new=True)
            finally:
                os.close(fd)
        finally:
            os.close(source)
        return True


def _copy_content(source: int, fd: int, display_path: str, most: int) -> int:
    """Copy the rest of an open file; return its size."""
    size = 0
    with suppress(OSError):  # the content may have been read to decide whether it is hidden
        os.lseek(source, 0, os.SEEK_SET)
    while block := os.read(source, _BLOCK_BYTES):
        size += len(block)
        if size > most:
            raise _too_large(display_path)
        write_all(fd, block)
        check_cancelled()
    return size


def _exists(target: ResolvedPath) -> AlreadyExists:
    return AlreadyExists(f"{target.display_path}: already exists; nothing is replaced", path=target.display_path)


def _too_large(display_path: str) -> TooLarge:
    return TooLarge(
        f"{display_path}: more than {MAX_ENTRIES} entries or {MAX_BYTES} bytes; nothing was copied. Use cp in"
        " run_command, or copy parts of it"
    )
