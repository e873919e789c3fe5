"""Delete a directory and everything in it, including files that are hidden from commands.

A hidden file is covered by a mount in the mount namespace of each command, where the kernel does not let it be deleted.
When the server deletes it, the cover disappears a moment before the name does, and a waiting command can use that
(docs/adr/0011). So a hidden file is emptied before it is deleted.
"""

import os
import posixpath
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from coretools.cancellation import check_cancelled
from coretools.errors import Conflict, InvalidPath, PermissionRefused, Unsupported, WrongType
from coretools.mounts import mount_id
from coretools.roots.change_observer import ChangeObserver, Entry
from coretools.roots.directory_access import DIRECTORY, translate_errors
from coretools.roots.git_directories import require_no_lost_repository
from coretools.roots.root import ResolvedPath, RootedPath, identity_of, join_path
from coretools.roots.root_set import Roots
from coretools.roots.write import NOT_RECORDED, require_name, resolve_for_change

_ABOVE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_PLAIN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Does not block: a FIFO may have replaced the file."""


@dataclass(slots=True)
class DeletedDirectory:
    """A directory that was deleted."""

    display_path: str
    entries: int = 0
    """Number of deleted files, links and directories in it."""
    hidden: list[str] = field(default_factory=list)
    """Files beneath it that were hidden from commands."""


def delete_directory(
    roots: Roots, path: str, *, with_repositories: bool = True, is_permanent: bool = False
) -> DeletedDirectory:
    """Delete a directory and everything in it; links are not followed. A failed call can be repeated.

    `is_permanent`: without a record for undo.

    Raises:
        GitRefused: it is or contains a git repository, and `with_repositories` is False.
        WrongType: not a directory. DeniedPath: it is or lies in a git directory, or is denied itself.
        InvalidPath: it is or contains a root. Unsupported: something is mounted in it.
        Conflict: a hidden file in it has more than one hard link.
        ReadOnly, NotFound, and what `resolve` raises.
    """
    with resolve_for_change(roots, path, follow=False) as resolved:
        _require_deletable(roots, resolved)
        if not with_repositories:
            require_no_lost_repository(roots, resolved)
        changes = NOT_RECORDED if is_permanent else roots.changes
        if changes is not NOT_RECORDED:
            changes.require_room(_bytes_beneath(resolved.fd, resolved.name), resolved.display_path)
        with changes.operation("delete", resolved.display_path):
            return delete_tree(roots, resolved.place, resolved.fd, display_path=resolved.display_path, changes=changes)


def delete_tree(
    roots: Roots,
    place: RootedPath,
    above: int,
    *,
    display_path: str,
    spares_links: bool = True,
    changes: ChangeObserver = NOT_RECORDED,
) -> DeletedDirectory:
    """Delete a directory that contains no root, given its open parent directory; `changes` observes it.

    `spares_links`: a hidden file with several hard links is an error; else only this name is deleted, not the content.

    Raises:
        Unsupported, Conflict, and errors of the operating system: as `delete_directory`.
    """
    deleted = DeletedDirectory(display_path)
    tree = _TreeDeletion(roots, place, deleted, mount=_mount_of(above), spares_links=spares_links, changes=changes)
    tree.delete(above, posixpath.basename(place.relative))
    return deleted


def _require_deletable(roots: Roots, resolved: ResolvedPath) -> None:
    require_name(resolved)
    if not stat.S_ISDIR(resolved.require_found().st_mode):
        raise WrongType(
            f"{resolved.display_path}: not a directory; use delete_file for files and links", path=resolved.display_path
        )
    if roots.holds_root(resolved.place):
        raise InvalidPath(
            f"{resolved.display_path}: contains a root, which cannot be deleted", path=resolved.display_path
        )
    if roots.holds_own_state(resolved.place):
        raise roots.own_state_error(resolved.display_path)


def _bytes_beneath(directory: int, name: str) -> int:
    """The bytes of the files in a directory, as far as they can be listed: Python's walk ends 900 directories deep."""
    total = 0
    with suppress(RecursionError, OSError):
        for _, _, files, fd in os.fwalk(name, dir_fd=directory):
            check_cancelled()
            for file in files:
                with suppress(FileNotFoundError):
                    status = os.stat(file, dir_fd=fd, follow_symlinks=False)
                    total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


class _Level(NamedTuple):
    """A directory that is being deleted."""

    name: str
    beneath: str
    """Its path relative to the deleted directory, "" for that directory itself."""
    above: tuple[int, int]
    """Identity of its parent: `..` must lead there, even if a command has moved the directory."""
    entries: list[tuple[str, bool]]
    """Remaining entries: names, and whether each is a directory."""


class _TreeDeletion:
    """One deletion: depth first, each directory by its descriptor."""

    def __init__(
        self,
        roots: Roots,
        place: RootedPath,
        deleted: DeletedDirectory,
        *,
        mount: tuple[int, int],
        spares_links: bool,
        changes: ChangeObserver,
    ) -> None:
        """`mount` is the mount of the parent directory."""
        self._roots = roots
        self._place = place
        self._deleted = deleted
        self._mount = mount
        self._spares_links = spares_links
        self._changes = changes

    def delete(self, above: int, name: str) -> None:
        """Delete the directory of this name. Holds at most two descriptors, at any depth."""
        levels: list[_Level] = []
        # A copy, because `_enter` and `_leave` close the descriptor that they leave, and `above` is the caller's.
        here = os.dup(above)
        try:
            here = self._enter(levels, here, name, "")
            while levels:
                check_cancelled()
                level = levels[-1]
                if not level.entries:
                    here = self._leave(levels.pop(), here)
                    continue
                inner, is_directory = level.entries.pop()
                path = f"{level.beneath}/{inner}" if level.beneath else inner
                if is_directory:
                    here = self._enter(levels, here, inner, path)
                else:
                    self._delete_file(here, inner, path)
        finally:
            os.close(here)

    def _enter(self, levels: list[_Level], here: int, name: str, beneath: str) -> int:
        """Enter a subdirectory of `here`, which is closed."""
        display_path = self._display_path(beneath)
        with translate_errors(display_path):
            below = os.open(name, DIRECTORY, dir_fd=here)
            with ExitStack() as undo:
                undo.callback(os.close, below)
                if _mount_of(below) != self._mount:
                    raise Unsupported(f"{display_path}: a mount point, which is not deleted", path=display_path)
                with os.scandir(below) as scan:
                    entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan]
                levels.append(_Level(name, beneath, identity_of(os.fstat(here)), entries))
                undo.pop_all()
        # Only now: after an error above, `delete` closes it.
        os.close(here)
        return below

    def _leave(self, level: _Level, here: int) -> int:
        """Go up, and close and delete the directory that was left."""
        display_path = self._display_path(level.beneath)
        with translate_errors(display_path):
            # Through `..`: a kept descriptor for each level would reach the limit of the process in a deep tree.
            above = os.open("..", _ABOVE, dir_fd=here)
            with ExitStack() as undo:
                undo.callback(os.close, above)
                if identity_of(os.fstat(above)) != level.above:
                    raise Conflict(f"{display_path}: was moved concurrently; call again", path=display_path)
                self._changes.before_removal([self._entry(above, level.name, level.beneath)])
                os.rmdir(level.name, dir_fd=above)
                undo.pop_all()
        os.close(here)
        self._deleted.entries += bool(level.beneath)
        return above

    def _entry(self, directory: int, name: str, beneath: str) -> Entry:
        return Entry(directory, name, RootedPath(self._place.root, join_path(self._place.relative, beneath or ".")))

    def _display_path(self, beneath: str) -> str:
        return f"{self._deleted.display_path}/{beneath}" if beneath else self._deleted.display_path

    def _delete_file(self, here: int, name: str, beneath: str) -> None:
        place = RootedPath(self._place.root, join_path(self._place.relative, beneath))
        display_path = self._display_path(beneath)
        with translate_errors(display_path):
            is_hidden = bool(self._roots.hidden(place))
            self._changes.before_removal([self._entry(here, name, beneath)], is_emptied=is_hidden)
            # Truncated first, so that a command from which the overmount disappears finds nothing (filesystem-36).
            if is_hidden and _truncate(here, name, display_path, spares_links=self._spares_links):
                self._deleted.hidden.append(beneath)
            os.unlink(name, dir_fd=here)
        self._deleted.entries += 1


def _mount_of(fd: int) -> tuple[int, int]:
    """Device and mount id of an open directory: a bind mount has its surroundings' device (proc(5), fdinfo)."""
    number = 0
    with suppress(OSError):
        number = mount_id(fd)
    return os.fstat(fd).st_dev, number


def _truncate(here: int, name: str, display_path: str, *, spares_links: bool) -> bool:
    """Truncate a regular file; False for anything else. A command may replace it at any moment."""
    status = os.stat(name, dir_fd=here, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode) or (status.st_nlink > 1 and not spares_links):
        return False
    # Checked before anything is truncated: `unlink` would fail only after the content is gone.
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=here, effective_ids=True):
        raise PermissionRefused(f"{display_path}: its directory is write-protected", path=display_path)
    if status.st_nlink > 1:
        raise Conflict(
            f"{display_path}: this hidden file has other hard links; a person has to delete it", path=display_path
        )
    if not status.st_mode & stat.S_IWUSR:  # a write-protected file may be deleted
        reading = os.open(name, os.O_RDONLY | _PLAIN, dir_fd=here)
        try:
            _require_same(reading, status, display_path)
            os.fchmod(reading, stat.S_IRUSR | stat.S_IWUSR)
        finally:
            os.close(reading)
    writing = os.open(name, os.O_WRONLY | _PLAIN, dir_fd=here)
    try:
        _require_same(writing, status, display_path)
        os.ftruncate(writing, 0)
    finally:
        os.close(writing)
    return True


def _require_same(fd: int, status: os.stat_result, display_path: str) -> None:
    now = os.fstat(fd)
    if not os.path.samestat(now, status) or now.st_nlink > 1:
        raise Conflict(f"{display_path}: was replaced concurrently; call again", path=display_path)
