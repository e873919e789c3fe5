"""A directory that appears at its path when it is complete, and not at all if anything fails before."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from secrets import token_hex

from coretools.errors import AlreadyExists, CoreError, NotFound
from coretools.roots.delete import delete_tree
from coretools.roots.directory_access import DIRECTORY, translate_errors
from coretools.roots.editor_settings import require_no_existing_settings
from coretools.roots.git_directories import require_outside_git
from coretools.roots.replace import rename_no_replace
from coretools.roots.resolve import resolve
from coretools.roots.root import ResolvedPath, RootedPath, join_path
from coretools.roots.root_set import Roots
from coretools.roots.write import require_name

PREFIX = ".coretools-new-"
"""Beginning of the name that it has until it is complete."""


@dataclass(slots=True)
class NewDirectory:
    """The directory while it is filled."""

    path: str
    """Its absolute path at present."""
    display_path: str
    """The path that it gets."""
    fd: int
    """A descriptor of it, as long as it is filled."""
    _resolved: ResolvedPath
    _name: str
    _replaces_empty: bool = False
    is_kept: bool = field(default=False, init=False)

    def keep(self) -> None:
        """Give the directory its name.

        Raises:
            AlreadyExists: something has this name by now.
        """
        above = self._resolved.fd
        with translate_errors(self.display_path):
            if self._replaces_empty:
                # rename(2) replaces a directory only while it is empty.
                os.rename(self._name, self._resolved.name, src_dir_fd=above, dst_dir_fd=above)
            else:
                rename_no_replace(above, self._name, above, self._resolved.name)
        self.is_kept = True


@contextmanager
def new_directory(roots: Roots, path: str, *, replaces_empty: bool = False) -> Iterator[NewDirectory]:
    """Create the directory beside its final place; remove it at the end unless it was kept.

    With `replaces_empty` an empty directory may be there, and stays if this one is not kept.

    Raises:
        AlreadyExists: something is at this path. NotFound: the directory above is missing. ReadOnly, DeniedPath, and
            what `resolve` raises.
    """
    with resolve(roots, path, follow=False) as resolved:
        roots.require_writable(resolved.root, resolved.display_path)
        require_name(resolved)
        require_outside_git(resolved)
        require_no_existing_settings(roots, resolved, is_removed=True)
        if resolved.found is not None and not (replaces_empty and stat.S_ISDIR(resolved.found.st_mode)):
            raise AlreadyExists(f"{resolved.display_path}: already exists; name a new directory")
        if resolved.missing:
            raise NotFound(f"{resolved.display_path}: the directory {resolved.missing[0]} does not exist")
        _remove_abandoned(roots, resolved)
        name = f"{PREFIX}{token_hex(8)}"
        with translate_errors(resolved.display_path):
            os.mkdir(name, dir_fd=resolved.fd)
            held = os.open(name, DIRECTORY, dir_fd=resolved.fd)
            fcntl.flock(held, fcntl.LOCK_SH)
        place = RootedPath(resolved.root, join_path(resolved.above, name))
        new = NewDirectory(place.path, resolved.display_path, held, resolved, name, replaces_empty)
        try:
            yield new
        finally:
            if not new.is_kept:
                with suppress(CoreError):
                    delete_tree(roots, place, resolved.fd, display_path=new.display_path, spares_links=False)
            os.close(held)


def _remove_abandoned(roots: Roots, resolved: ResolvedPath) -> None:
    """Remove what servers that were killed left in the same directory: nobody holds a lock on it."""
    with suppress(OSError):
        above = os.open(".", DIRECTORY, dir_fd=resolved.fd)
        try:
            names = [name for name in os.listdir(above) if name.startswith(PREFIX)]
        finally:
            os.close(above)
        for name in names:
            held = os.open(name, DIRECTORY, dir_fd=resolved.fd)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                place = RootedPath(resolved.root, join_path(resolved.above, name))
                with suppress(CoreError):
                    delete_tree(roots, place, resolved.fd, display_path=name, spares_links=False)
            finally:
                os.close(held)
