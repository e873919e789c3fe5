"""Resolve a path to an open directory beneath a root and the last name in it, without ever leaving the roots.

In the common case one call of the resolver opens the path; it accepts neither links nor `..`, so the text of the path
is the place it reached. Otherwise `PathWalker` goes component by component: it reads and expands links, `..` drops a
component, and each step opens one name in a directory that is already open. A link into another root continues from
that root's own descriptor.

Every link on the way, and the final path, is checked against the deny globs. For a file whose name suggests a secret,
its content decides; code that opens a file repeats that check on the opened file.
"""

import errno
import os
import posixpath
import stat
from contextlib import ExitStack

from coretools.errors import NotFound
from coretools.roots.directory_access import translate_errors
from coretools.roots.open_beneath import HANDLE
from coretools.roots.root import ResolvedPath, RootedPath, identity_of
from coretools.roots.root_set import Roots, hidden_error

MAX_LINKS = 40
"""Links followed for one path, as Linux does (path_resolution(7))."""


_MAY_BE_LINK = (errno.ELOOP, errno.ENOTDIR)
_WALK_INSTEAD = (*_MAY_BE_LINK, errno.ENOENT)


def resolve(roots: Roots, path: str, *, follow: bool = True) -> ResolvedPath:
    """Resolve a path. `follow` states whether a link at the end is followed.

    A path that ends in a slash or `/.` means the target of a link there, whatever `follow` is.

    Raises:
        InvalidPath, OutsideRoot, DeniedPath, RootGone, NotFound (a dangling link), PermissionRefused.
    """
    place = roots.place(path)
    resolved = _resolve(roots, place, follow=follow or path.endswith(("/", "/.")))
    with ExitStack() as undo:
        undo.callback(resolved.close)
        refuse_secret(roots, resolved)
        undo.pop_all()
    return resolved


def refuse_secret(roots: Roots, resolved: ResolvedPath, fd: int | None = None) -> None:
    """Refuse a hidden file; `fd` if it is already open, to show its content.

    Raises:
        DeniedPath.
    """
    status = resolved.found
    if status is None or stat.S_ISLNK(status.st_mode):
        return
    if fd is not None or roots.secret_format(resolved.place) or roots.may_be_renamed(status.st_ino):
        reason = roots.hidden(resolved.place, fd)
        if reason:
            raise hidden_error(resolved.display_path, reason)


def _resolve(roots: Roots, place: RootedPath, *, follow: bool) -> ResolvedPath:
    display_path = roots.display_path(place)
    with translate_errors(display_path):
        roots.require_present(place.root)
        # A nested root is recognised by its identity, not by its name: a mount may ignore case.
        resolved = None if roots.are_nested or ".." in place.relative else _resolve_directly(roots, place, display_path)
        if resolved is not None:
            if not _must_walk(roots, resolved, follow=follow):
                return resolved
            resolved.close()
        walker = PathWalker(roots, place, display_path)
        with ExitStack() as undo:
            undo.callback(walker.close)
            found = walker.walk(follow=follow)
            undo.pop_all()
        return found


def _resolve_directly(roots: Roots, place: RootedPath, display_path: str) -> ResolvedPath | None:
    """The resolved path if nothing on the way is a link or missing, else None."""
    roots.require_allowed(place, display_path)
    root = place.root
    above, _, name = place.relative.rpartition("/")
    if not above:
        return ResolvedPath(root, display_path, root.fd, ".", name, (), _stat_or_none(name, root.fd))
    try:
        fd = roots.resolver.open(root.fd, above, HANDLE)
    except OSError as error:
        if error.errno in _WALK_INSTEAD:
            return None
        raise
    resolved = ResolvedPath(root, display_path, fd, above, name)
    try:
        resolved.found = _stat_or_none(name, fd)
    except OSError:
        os.close(fd)
        raise
    return resolved


def _must_walk(roots: Roots, resolved: ResolvedPath, *, follow: bool) -> bool:
    """Whether the last name is a link to follow, or another root."""
    status = resolved.found
    if status is None or resolved.name == ".":
        return False
    if stat.S_ISLNK(status.st_mode):
        return follow
    return stat.S_ISDIR(status.st_mode) and roots.root_with(identity_of(status)) is not None


def _stat_or_none(name: str, fd: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


class PathWalker:
    """Resolves a path component by component: one open directory, the names from the root to it, and those pending."""

    def __init__(self, roots: Roots, place: RootedPath, display_path: str) -> None:
        self._roots = roots
        self._display_path = display_path
        self._links = 0
        self._pending: list[str] = []
        self._start(place)

    def _start(self, place: RootedPath) -> None:
        self._root = place.root
        self._fd = place.root.fd
        self._names: list[str] = []
        # Reversed: the next component is at the end.
        self._pending = [part for part in reversed(place.relative.split("/")) if part != "."]

    def close(self) -> None:
        """Close the current directory, unless it is a root."""
        if self._fd != self._root.fd:
            os.close(self._fd)
            self._fd = self._root.fd

    def walk(self, *, follow: bool) -> ResolvedPath:
        """Walk to the end of the path. The resolved path then owns the descriptor."""
        while self._pending:
            name = self._pending.pop()
            if name == "..":
                self._go_up()
            elif self._pending:
                if not self._enter(name):
                    return self._result(self._pending[0], missing=(name, *reversed(self._pending[1:])))
            else:
                resolved = self._resolve_last(name, follow=follow)
                if resolved is not None:
                    return resolved
        return self._result(".", found=os.stat(".", dir_fd=self._fd))

    def _resolve_last(self, name: str, *, follow: bool) -> ResolvedPath | None:
        """The resolved path of the last name, or None if the walk continues: it was a link, or a root."""
        status = _stat_or_none(name, self._fd)
        if status is None:
            return self._result(name)
        if stat.S_ISLNK(status.st_mode) and follow:
            self._expand(name)
            return None
        if stat.S_ISDIR(status.st_mode):
            root = self._roots.root_with(identity_of(status))
            if root is not None:
                self._restart(RootedPath(root, "."))
                return None
        return self._result(name, found=status)

    def _result(self, name: str, *, missing: tuple[str, ...] = (), found: os.stat_result | None = None) -> ResolvedPath:
        if ".." in missing or name == "..":
            raise NotFound(f"{self._display_path}: a parent directory does not exist", path=self._display_path)
        resolved = ResolvedPath(
            self._root, self._display_path, self._fd, "/".join(self._names) or ".", name, missing, found
        )
        self._roots.require_allowed(resolved.place, self._display_path)
        return resolved

    def _enter(self, name: str) -> bool:
        """Enter a directory, or put a link's target before the pending components. False if there is no such entry."""
        try:
            below = os.open(name, HANDLE, dir_fd=self._fd)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in _MAY_BE_LINK:
                raise
            self._expand(name)
            return True
        self._set_current(below)
        self._names.append(name)
        if self._roots.are_nested:
            root = self._roots.root_with(identity_of(os.fstat(below)))
            if root is not None:
                self._restart(RootedPath(root, "/".join(reversed(self._pending)) or "."))
        return True

    def _go_up(self) -> None:
        if not self._names:
            # Above a root a path is only text: it must lead into a root again before anything is opened.
            self._continue_at(posixpath.dirname(self._root.path), self._pending)
            return
        self._names.pop()
        # Reopened from the root without links: `..` of a directory that was moved away would lead out.
        above = "/".join(self._names)
        self._set_current(self._roots.resolver.open(self._root.fd, above, HANDLE) if above else self._root.fd)

    def _expand(self, name: str) -> None:
        """Put the target of a link before the pending components."""
        try:
            target = os.readlink(name, dir_fd=self._fd)
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name) from error
            raise
        self._links += 1
        if self._links > MAX_LINKS:
            raise NotFound(
                f"{self._display_path}: a loop of links, or more than {MAX_LINKS} links", path=self._display_path
            )
        self._roots.require_allowed(RootedPath(self._root, "/".join((*self._names, name))), self._display_path)
        if target.startswith("/"):
            self._continue_at(target, self._pending)
        else:
            self._pending += [part for part in reversed(target.split("/")) if part not in ("", ".")]

    def _continue_at(self, absolute: str, pending: list[str]) -> None:
        """Continue at an absolute path, by its text, in whichever root contains it."""
        rest = list(reversed(pending))
        while rest and rest[0] == ".." and self._roots.split(absolute) is None:
            absolute = posixpath.dirname(absolute.rstrip("/")) or "/"
            rest = rest[1:]
        place = self._roots.split("/".join((absolute, *rest)))
        if place is None:
            raise self._roots.outside(self._display_path)
        self._restart(place)

    def _restart(self, place: RootedPath) -> None:
        self.close()
        self._roots.require_present(place.root)
        self._start(place)

    def _set_current(self, fd: int) -> None:
        self.close()
        self._fd = fd


def reopen(resolved: ResolvedPath, flags: int) -> int:
    """Open the entry that was found, by its name in the open directory; a link there is an OSError (ELOOP, ENOTDIR)."""
    return os.open(resolved.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=resolved.fd)
