"""Write, create, delete and move files and directories beneath the roots.

A file is never opened for writing. New content goes to a temporary file in the same directory, which is renamed into
place: a reader sees the old or the new content, a failure leaves the old, and an inode that is shared with a name
outside (a hard link) is not touched.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from coretools.cancellation import check_cancelled
from coretools.errors import (
    AlreadyExists,
    Conflict,
    CoreError,
    InvalidPath,
    NotFound,
    PermissionRefused,
    Unsupported,
    WrongType,
)
from coretools.regular_file import write_all
from coretools.roots.change_observer import Entry, NoObserver
from coretools.roots.directory_access import translate_errors
from coretools.roots.editor_settings import require_no_existing_settings
from coretools.roots.file_version import Version, kind_of, version_of
from coretools.roots.git_directories import require_no_repository, require_outside_git
from coretools.roots.git_layout import git_part
from coretools.roots.open_beneath import HANDLE
from coretools.roots.path_locks import LOCKS, LockKey
from coretools.roots.read import READ, require_file
from coretools.roots.replace import (
    advance_modification_time,
    commit,
    rename_no_replace,
    require_version,
    temporary_file,
)
from coretools.roots.resolve import reopen, resolve
from coretools.roots.root import ResolvedPath, RootedPath, identity_of, join_path
from coretools.roots.root_set import Roots

_BLOCK_BYTES = 1024 * 1024

NOT_RECORDED = NoObserver()
"""For what is deleted for good."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written."""

    display_path: str
    place: RootedPath
    """Its location, links followed."""
    created: bool
    size: int


def write_bytes(
    roots: Roots,
    path: str,
    data: bytes,
    *,
    parents: bool = False,
    overwrite: bool = True,
    expected: Version | None = None,
) -> WrittenFile:
    """Replace the content of a file atomically; its mode, and its owner where permitted, are kept.

    A link is followed and kept. With `expected` the file must still have that version.

    Raises:
        AlreadyExists: the file exists and `overwrite` is False.
        Conflict: it has another version than `expected`, or is gone; nothing was written.
        NotFound: a parent directory is missing and `parents` is False.
        ReadOnly, WrongType, InputOutput (disk full), and what `resolve` raises.
    """
    with roots.changes.operation("write", path), lock_paths(roots, path), resolve_for_change(roots, path) as resolved:
        replaced = require_replaceable(resolved, overwrite=overwrite, expected=expected)
        with (
            create_missing(roots, resolved, parents=parents),
            temporary_file(roots.write_notes, resolved, replaced) as (fd, name),
        ):
            write_all(fd, data)
            if replaced is not None:
                advance_modification_time(fd, replaced)
            # Before the rename: after a crash the name must not lead to an empty file.
            os.fsync(fd)
            roots.changes.before_write(_entry(resolved), fd)
            commit(resolved, name, overwrite=overwrite, expected=expected)
        return WrittenFile(resolved.display_path, resolved.place, replaced is None, len(data))


def create_directory(roots: Roots, path: str, *, parents: bool = True) -> bool:
    """Create a directory; False if it already exists.

    Raises:
        AlreadyExists: something else has this name. NotFound: a parent directory is missing and `parents` is False.
        ReadOnly, and what `resolve` raises.
    """
    with roots.changes.operation("create", path), lock_paths(roots, path), resolve_for_change(roots, path) as resolved:
        if resolved.found is None:
            with create_missing(roots, resolved, parents=parents):
                try:
                    roots.changes.before_new_directory(_entry(resolved))
                    os.mkdir(resolved.name, dir_fd=resolved.fd)
                except FileExistsError:
                    resolved.found = os.stat(resolved.name, dir_fd=resolved.fd, follow_symlinks=False)
                else:
                    return True
        if not stat.S_ISDIR(resolved.found.st_mode):
            raise AlreadyExists(
                f"{resolved.display_path}: a {kind_of(resolved.found.st_mode)} already exists there",
                path=resolved.display_path,
            )
        return False


def delete_file(roots: Roots, path: str, *, is_permanent: bool = False) -> str:
    """Delete a file and return its path. A link itself is deleted, not its target.

    `is_permanent`: without a record for undo.

    Raises:
        WrongType: a directory. ReadOnly, NotFound, and what `resolve` raises.
    """
    with lock_paths(roots, path, follow=False), resolve_for_change(roots, path, follow=False) as resolved:
        if stat.S_ISDIR(resolved.require_found().st_mode):
            raise WrongType(f"{resolved.display_path}: a directory; use delete_directory", path=resolved.display_path)
        (NOT_RECORDED if is_permanent else roots.changes).before_removal([_entry(resolved)])
        os.unlink(resolved.name, dir_fd=resolved.fd)
        return resolved.display_path


def move(roots: Roots, source: str, destination: str, *, overwrite: bool = False) -> tuple[str, str]:
    """Move a file or directory; `destination` is its new path, not a directory to put it in. Returns both paths.

    A link itself is moved. Only a file can be moved to another file system.

    Raises:
        AlreadyExists: the destination exists, and it is a directory or `overwrite` is False.
        DeniedPath: a deny glob matches one of the two, or would match something because of the directory's name;
            or a git directory is involved.
        Conflict: the file changed while it was copied to another file system; nothing was moved.
        ReadOnly, NotFound, InvalidPath (a root, or a directory that contains one), and what `resolve` raises.
    """
    with (
        roots.changes.operation("move", f"{source} to {destination}"),
        lock_paths(roots, source, destination, follow=False),
        resolve_for_change(roots, source, follow=False) as origin,
        resolve_for_change(roots, destination, follow=False) as target,
    ):
        origin.require_found()
        for resolved in (origin, target):
            _require_movable(roots, resolved)
        if target.missing:
            raise NotFound(
                f"{target.display_path}: the directory {target.missing[0]} does not exist", path=target.display_path
            )
        if target.found is not None and (not overwrite or stat.S_ISDIR(target.found.st_mode)):
            raise AlreadyExists(f"{target.display_path}: already exists", path=target.display_path)
        if origin.root is target.root and target.place.relative.startswith(f"{origin.place.relative}/"):
            raise InvalidPath(f"{target.display_path}: lies inside {origin.display_path}", path=target.display_path)
        require_no_repository(origin)
        is_other = target.found is None or not os.path.samestat(origin.require_found(), target.found)
        try:
            if is_other:
                if target.found is not None:
                    roots.changes.before_removal([_entry(target)])
                roots.changes.before_move(_entry(origin), _entry(target))
            _rename(origin, target, overwrite=overwrite)
        except (OSError, CoreError) as error:
            roots.changes.retract()
            # EXDEV: another file system, or another mount of the same one (rename(2)).
            if not isinstance(error, OSError) or error.errno != errno.EXDEV:
                raise
            _copy_and_delete(roots, origin, target, overwrite=overwrite)
        return origin.display_path, target.display_path


def _entry(resolved: ResolvedPath) -> Entry:
    return Entry(resolved.fd, resolved.name, resolved.place)


@contextmanager
def resolve_for_change(roots: Roots, path: str, *, follow: bool = True) -> Iterator[ResolvedPath]:
    """Resolve a path that is to be changed, where that is allowed; OSErrors of the block are translated.

    Raises:
        ReadOnly. DeniedPath: it lies in a git directory, would become one, or is an existing editor setting.
        What `resolve` raises.
    """
    with resolve(roots, path, follow=follow) as resolved, translate_errors(resolved.display_path):
        roots.require_writable(resolved.root, resolved.display_path)
        require_outside_git(resolved)
        require_no_existing_settings(roots, resolved, is_removed=not follow)
        yield resolved


@contextmanager
def lock_paths(roots: Roots, *paths: str, follow: bool = True) -> Iterator[None]:
    """Lock these paths for a change: no other call of this process changes the same entries meanwhile.

    Raises:
        Conflict: the paths resolve differently each time. What `resolve` raises.
    """
    with LOCKS.hold(lambda: frozenset(claim for path in paths for claim in _lock_keys(roots, path, follow=follow))):
        yield


def _lock_keys(roots: Roots, path: str, *, follow: bool) -> Iterator[LockKey]:
    """The first name on the way that may be new, in its existing directory; and parts of git directories."""
    with resolve(roots, path, follow=follow) as resolved:
        names = (*resolved.missing, resolved.name)
        # The directory by identity and the name without case: bind mounts and some file systems alias both.
        yield (*identity_of(os.fstat(resolved.fd)), names[0].casefold())
        above = join_path(resolved.root.path, resolved.above)
        for name in names:
            if git_part(name) is not None:  # in a directory they are created one at a time
                yield ("part", above)
            above = join_path(above, name)


def require_name(resolved: ResolvedPath) -> None:
    """Refuse a path that ends in a root or in `..`: it has no name that could be created or removed.

    Raises:
        InvalidPath: such a path.
    """
    if resolved.name == ".":
        what = "is a root, which" if resolved.above == "." else "ends in .., and such a path"
        raise InvalidPath(
            f"{resolved.display_path}: {what} cannot be moved, deleted or replaced", path=resolved.display_path
        )


@contextmanager
def create_missing(roots: Roots, resolved: ResolvedPath, *, parents: bool) -> Iterator[None]:
    """Create missing parent directories; they are removed again if the block fails.

    Raises:
        NotFound: some are missing, and `parents` is False.
    """
    if resolved.missing and not parents:
        raise NotFound(
            f"{resolved.display_path}: the parent directory {resolved.missing[0]} does not exist",
            path=resolved.display_path,
        )
    with ExitStack() as undo:
        while resolved.missing:
            name = resolved.missing[0]
            with suppress(FileExistsError):
                place = RootedPath(resolved.root, join_path(resolved.above, name))
                roots.changes.before_new_directory(Entry(resolved.fd, name, place))
                os.mkdir(name, dir_fd=resolved.fd)
                undo.callback(_remove_if_empty, roots, resolved, resolved.above, name)
            resolved.enter(name)
        yield
        undo.pop_all()


def _remove_if_empty(roots: Roots, resolved: ResolvedPath, above: str, name: str) -> None:
    with suppress(OSError):
        fd = roots.resolver.open(resolved.root.fd, above, HANDLE)
        try:
            os.rmdir(name, dir_fd=fd)
        finally:
            os.close(fd)


def require_replaceable(resolved: ResolvedPath, *, overwrite: bool, expected: Version | None) -> os.stat_result | None:
    """The status of the file that will be replaced, None if there is none.

    Raises:
        AlreadyExists: there is one and `overwrite` is False.
        Conflict: it has another version than expected, or is gone.
        WrongType, InvalidPath, PermissionRefused.
    """
    require_name(resolved)
    if resolved.found is None:
        if expected is not None:
            raise Conflict(f"{resolved.display_path}: deleted since it was read", path=resolved.display_path)
        return None
    status = require_file(resolved)
    if not overwrite:
        raise AlreadyExists(
            f"{resolved.display_path}: the file exists; overwriting it was not requested", path=resolved.display_path
        )
    if expected is not None:
        require_version(resolved, expected)
    if not os.access(resolved.name, os.W_OK, dir_fd=resolved.fd, effective_ids=True):
        # The rename itself needs permission on the directory only.
        raise PermissionRefused(f"{resolved.display_path}: the file is write-protected", path=resolved.display_path)
    return status


def _require_movable(roots: Roots, resolved: ResolvedPath) -> None:
    require_name(resolved)
    if roots.holds_root(resolved.place):
        raise InvalidPath(
            f"{resolved.display_path}: contains a root, which cannot be moved or replaced", path=resolved.display_path
        )
    if roots.holds_own_state(resolved.place):
        raise roots.own_state_error(resolved.display_path)
    glob = roots.deny.name_dependent_glob(resolved.place.relative)
    if glob is not None:
        raise roots.deny_error(resolved.display_path, glob)


def _rename(origin: ResolvedPath, target: ResolvedPath, *, overwrite: bool) -> None:
    if not overwrite:
        rename_no_replace(origin.fd, origin.name, target.fd, target.name)
        return
    os.rename(origin.name, target.name, src_dir_fd=origin.fd, dst_dir_fd=target.fd)
    status = origin.require_found()
    same = target.found is not None and os.path.samestat(status, target.found)
    if same and status.st_nlink > 1 and origin.place != target.place:
        # rename(2) between two hard links of one file does nothing.
        os.unlink(origin.name, dir_fd=origin.fd)


def _copy_and_delete(roots: Roots, origin: ResolvedPath, target: ResolvedPath, *, overwrite: bool) -> None:
    """Move a file to another file system: copy it, rename the copy, delete the original if it is unchanged."""
    status = origin.require_found()
    if not stat.S_ISREG(status.st_mode):
        raise Unsupported(f"{target.display_path}: is on another file system, to which only files can be moved")
    fd = reopen(origin, READ)
    try:
        version = version_of(os.fstat(fd))
        with temporary_file(roots.write_notes, target, status) as (copy, name):
            while block := os.read(fd, _BLOCK_BYTES):
                write_all(copy, block)
                check_cancelled()
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(copy)
            require_version(origin, version)
            roots.changes.before_removal([_entry(origin)])
            roots.changes.before_write(_entry(target), copy)
            commit(target, name, overwrite=overwrite)
    finally:
        os.close(fd)
    os.unlink(origin.name, dir_fd=origin.fd)


def remove_temporary(roots: Roots, path: str) -> bool:
    """Remove a temporary file by its absolute path; False if it lies beneath no writable root, or that fails."""
    place = roots.split(path)
    if place is None or not place.root.writable:
        return False
    try:
        with roots.open_parent(place) as (directory, name):
            os.unlink(name, dir_fd=directory)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR)
    return True
