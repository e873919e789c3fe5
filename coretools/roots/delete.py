"""Delete a directory with all that lies in it, the files too that are hidden from commands.

A hidden file is covered in the view of each command, and the kernel lets nobody delete what is covered in his own view.
Deleted from outside, it loses its cover a moment before it loses its name, which a command that waits for it can use
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
from coretools.roots.directory_access import DIRECTORY, translate_errors
from coretools.roots.resolve import ResolvedPath
from coretools.roots.root_set import RootedPath, Roots, identity_of, join_path
from coretools.roots.write import require_name, resolve_for_change

_ABOVE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_PLAIN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Waits for nobody: a FIFO may stand there by then."""


@dataclass(slots=True)
class DeletedDirectory:
    """A directory that was deleted."""

    shown: str
    entries: int = 0
    """What lay in it: files, links, directories."""
    hidden: list[str] = field(default_factory=list)
    """Files that were closed to commands, beneath it."""


def delete_directory(roots: Roots, path: str) -> DeletedDirectory:
    """Delete a directory and everything in it; links in it are not followed. What failed half-way can be called again.

    Raises:
        WrongType: no directory. DeniedPath: it is or lies in a git directory, or is closed itself.
        InvalidPath: a root, or it holds one. Unsupported: something is mounted in it.
        Conflict: a hidden file in it has another name.
        ReadOnly, NotFound, and what `resolve` raises.
    """
    with resolve_for_change(roots, path, follow=False) as resolved:
        _require_deletable(roots, resolved)
        return delete_tree(roots, resolved.place, resolved.fd, shown=resolved.shown)


def delete_tree(
    roots: Roots, place: RootedPath, above: int, *, shown: str, spares_links: bool = True
) -> DeletedDirectory:
    """Delete a directory that holds no root, from the open directory above it.

    `spares_links`: a hidden file with another name ends it; else it is deleted under this name and keeps its content.

    Raises:
        Unsupported, Conflict, and what the system refuses: as `delete_directory`.
    """
    deleted = DeletedDirectory(shown)
    tree = _TreeDeletion(roots, place, deleted, mount=_mount_of(above), spares_links=spares_links)
    tree.delete(above, posixpath.basename(place.relative))
    return deleted


def _require_deletable(roots: Roots, resolved: ResolvedPath) -> None:
    require_name(resolved)
    if not stat.S_ISDIR(resolved.require_found().st_mode):
        raise WrongType(f"{resolved.shown}: no directory; delete_file deletes files and links", path=resolved.shown)
    if roots.holds_root(resolved.place):
        raise InvalidPath(f"{resolved.shown}: holds a root, which can't be deleted", path=resolved.shown)


class _Level(NamedTuple):
    """A directory that is being deleted."""

    name: str
    beneath: str
    """Its path from where the deletion began, "" for that directory itself."""
    above: tuple[int, int]
    """What it lies in: the way up must lead there, wherever a command has moved the directory."""
    entries: list[tuple[str, bool]]
    """What is left of it: names, and which are directories."""


class _TreeDeletion:
    """One deletion: depth first, each directory by its handle."""

    def __init__(
        self, roots: Roots, place: RootedPath, deleted: DeletedDirectory, *, mount: tuple[int, int], spares_links: bool
    ) -> None:
        """`mount` is that of the directory above."""
        self._roots = roots
        self._place = place
        self._deleted = deleted
        self._mount = mount
        self._spares_links = spares_links

    def delete(self, above: int, name: str) -> None:
        """Delete the directory of this name. Two handles at most, at any depth."""
        levels: list[_Level] = []
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
        """Go down from `here`, whose handle is given up."""
        shown = self._shown(beneath)
        with translate_errors(shown):
            below = os.open(name, DIRECTORY, dir_fd=here)
            with ExitStack() as undo:
                undo.callback(os.close, below)
                self._require_same_mount(below, shown)
                with os.scandir(below) as scan:
                    entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan]
                levels.append(_Level(name, beneath, identity_of(os.fstat(here)), entries))
                undo.pop_all()
        os.close(here)
        return below

    def _leave(self, level: _Level, here: int) -> int:
        """Go up, delete the directory that was left, and give up its handle."""
        shown = self._shown(level.beneath)
        with translate_errors(shown):
            above = os.open("..", _ABOVE, dir_fd=here)
            with ExitStack() as undo:
                undo.callback(os.close, above)
                _require_above(above, level, shown)
                os.rmdir(level.name, dir_fd=above)
                undo.pop_all()
        os.close(here)
        self._deleted.entries += bool(level.beneath)
        return above

    def _require_same_mount(self, fd: int, shown: str) -> None:
        if _mount_of(fd) != self._mount:
            raise Unsupported(f"{shown}: something is mounted here; it is not deleted", path=shown)

    def _shown(self, beneath: str) -> str:
        return f"{self._deleted.shown}/{beneath}" if beneath else self._deleted.shown

    def _delete_file(self, here: int, name: str, beneath: str) -> None:
        place = RootedPath(self._place.root, join_path(self._place.relative, beneath))
        shown = self._shown(beneath)
        with translate_errors(shown):
            if self._roots.hidden(place) and _truncate(here, name, shown, spares_links=self._spares_links):
                self._deleted.hidden.append(beneath)
            os.unlink(name, dir_fd=here)
        self._deleted.entries += 1


def _require_above(fd: int, level: _Level, shown: str) -> None:
    if identity_of(os.fstat(fd)) != level.above:
        raise Conflict(f"{shown}: was moved meanwhile; call again", path=shown)


def _mount_of(fd: int) -> tuple[int, int]:
    """Device and mount of an open directory: a bind mount has the device of what lies around it (proc(5), fdinfo)."""
    number = 0
    with suppress(OSError), open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        number = next((int(line.split()[1]) for line in file if line.startswith("mnt_id:")), 0)
    return os.fstat(fd).st_dev, number


def _truncate(here: int, name: str, shown: str, *, spares_links: bool) -> bool:
    """Leave a regular file without content; False for anything else. A command may exchange it at any moment."""
    found = os.stat(name, dir_fd=here, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode) or (found.st_nlink > 1 and not spares_links):
        return False
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=here, effective_ids=True):
        raise PermissionRefused(f"{shown}: the directory it lies in is write-protected", path=shown)
    if found.st_nlink > 1:
        raise Conflict(f"{shown}: this hidden file has another name too; it has to be deleted by a person", path=shown)
    if not found.st_mode & stat.S_IWUSR:  # what may be deleted may be write-protected
        reading = os.open(name, os.O_RDONLY | _PLAIN, dir_fd=here)
        try:
            _require_same(reading, found, shown)
            os.fchmod(reading, stat.S_IRUSR | stat.S_IWUSR)
        finally:
            os.close(reading)
    writing = os.open(name, os.O_WRONLY | _PLAIN, dir_fd=here)
    try:
        _require_same(writing, found, shown)
        os.ftruncate(writing, 0)
    finally:
        os.close(writing)
    return True


def _require_same(fd: int, found: os.stat_result, shown: str) -> None:
    now = os.fstat(fd)
    if not os.path.samestat(now, found) or now.st_nlink > 1:
        raise Conflict(f"{shown}: was exchanged meanwhile; call again", path=shown)
