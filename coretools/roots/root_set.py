"""Roots: the directories that tools may access, each kept open, and the root that a path lies in.

This module treats a tool's path as text. `resolve` opens it, always from the descriptor of a root; the path of a root
is used in messages and to check that the root is still there, never to reach something in it.
"""

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy

from coretools.errors import BadSetting, CoreError, DeniedPath, OutsideRoot, ReadOnly, RootGone
from coretools.own_state import OwnDirectory
from coretools.roots.change_observer import ChangeObserver, NoObserver
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.git_layout import Exists, entry_exists, is_in_git_directory
from coretools.roots.hidden_files import DenyRules
from coretools.roots.hidden_inodes import HiddenInodes
from coretools.roots.linked_repository import find_repositories
from coretools.roots.open_beneath import Resolver, is_on_disk, open_absolute, resolver_named
from coretools.roots.own_state import REASON, own_places, require_out_of_reach
from coretools.roots.path_text import check_path, printable
from coretools.roots.root import Closing, Root, RootedPath, RootSpec, identity_of, join_path
from coretools.roots.secret_check import SecretCheck
from coretools.roots.secret_names import ANY_CONFIGURATION, GIT_FORMAT
from coretools.roots.write_notes import WriteNotes

_FORBIDDEN_ROOTS = ("/proc", "/sys", "/dev")
"""Not directories of files: paths in them act on processes, the kernel and devices."""
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a memory file system like any other; nothing is created there by us


class Roots(Closing):
    """All roots of a server and their rules. Close it to close the descriptors."""

    def __init__(
        self,
        specs: Sequence[RootSpec],
        *,
        deny: DenyRules,
        resolver: str | None = None,
        own: Sequence[OwnDirectory] = (),
        changes_settings: bool = False,
    ) -> None:
        """Open every root. `own` are the directories of our own state, which are closed beneath the roots.

        Raises:
            BadSetting: no root is given, or one is missing, not a directory, named twice or not permitted as a root;
                or our own state can't be closed.
        """
        self.resolver: Resolver = resolver_named(resolver)
        self.changes_settings = changes_settings
        """Whether tools and commands may change existing settings of editors and agents (`editor_settings`)."""
        self.changes: ChangeObserver = NoObserver()
        """Observes each change before it is made."""
        self.write_notes = WriteNotes()
        """Knows the temporary files of the writes that go on."""
        self.nonblocking_from = 0.0
        """Monotonic time from which small files may be read without a thread (`nonblocking_read`)."""
        self._own = own
        self.for_git: Roots = self
        """These roots, and the repositories outside them whose linked work trees they are."""
        self.with_trees: Roots = self
        """These roots, and the work trees of which they are folders: where git's names are."""
        self.trees_above: Mapping[str, str] = {}
        """The work tree above a root that is a folder of one, by the path of the root."""
        self.git_refusals: Mapping[str, str] = {}
        """Why git has no repository in a root, by the path of the root."""
        self._roots = _open_roots(specs, self.resolver)
        with ExitStack() as undo:
            undo.callback(self.close)
            self.own_places = own_places(self._roots, own)
            """Our own state beneath the roots."""
            require_out_of_reach(self.own_places, self._roots, own)
            undo.pop_all()
        self._own_parents = {(place.root, path.lower()) for place in self.own_places for path in place.parents}
        self.deny = deny.with_own(list(dict.fromkeys(place.deny_glob for place in self.own_places)))
        self._index_roots(_prefixes(specs, self._roots))
        self._first_prefix = f"{self._roots[0].path}/"
        self.hidden_inodes = HiddenInodes()
        """Hidden files found by the last scan for commands; empty until commands are prepared."""

    def _index_roots(self, prefixes: Iterable[tuple[str, Root]]) -> None:
        """Prepare what is looked up by root; `prefixes` are the paths of the roots, each with a slash at its end."""
        # Longest first, so that the innermost of nested roots is found.
        self._prefixes = sorted(prefixes, key=lambda pair: -len(pair[0]))
        self._by_identity = {root.identity: root for root in self._roots}
        self.secret_check = SecretCheck(self.resolver, [(root.path, root.fd) for root in self._roots])
        """Decides about files whose names suggest a secret."""
        self.are_nested = any(_lies_in(one.path, other.path) for one in self._roots for other in self._roots)

    def open_repositories(self, *, above: bool = False) -> None:
        """Open the repositories of roots that are linked work trees, for those who use `for_git`.

        With `above` also the repositories and work trees of which roots are folders.
        """
        own = [os.path.realpath(one.path) for one in self._own]
        repositories = find_repositories(self._roots, self.resolver, own, above=above)
        self.git_refusals, self.trees_above = repositories.refusals, repositories.trees_above
        if repositories.trees_above:
            self.with_trees = copy(self)
            self.with_trees.add([one for one in repositories.directories if one.is_above])
        if repositories.directories:
            self.for_git = copy(self)
            self.for_git.add(repositories.directories)
            # For tools too: a tracked file is known by the index, which is in the repository.
            self.secret_check = self.with_trees.secret_check = self.for_git.secret_check
            self.with_trees.for_git = self.for_git

    def add(self, repositories: Sequence[Root]) -> None:
        """Add repositories that only git may use, to a copy of what the tools have."""
        self.for_git = self.with_trees = self
        self._roots = [*self._roots, *repositories]
        self._index_roots([*self._prefixes, *((f"{one.path}/", one) for one in repositories)])

    def disable_nonblocking_until(self, ends_at: float) -> None:
        """Read all files in threads until this monotonic time."""
        self.nonblocking_from = ends_at

    @property
    def resolver_name(self) -> str:
        """The resolver in use: `openat2` or `walk`."""
        return self.resolver.name

    def __iter__(self) -> Iterator[Root]:
        return iter(self._roots)

    @property
    def first(self) -> Root:
        """The root that relative paths are relative to."""
        return self._roots[0]

    def close(self) -> None:
        """Close all descriptors. Nothing can be opened afterwards."""
        self.write_notes.close()
        if self.for_git is not self:
            self.for_git.close()  # with the descriptors of these roots
            self._roots.clear()
        while self._roots:
            os.close(self._roots.pop().fd)

    def place(self, path: str) -> RootedPath:
        """The root that a path lies in by its text, and the relative rest.

        Raises:
            InvalidPath: not a valid path.
            OutsideRoot: absolute, and beneath no root.
        """
        check_path(path)
        if path[0] == "/" or self.are_nested:
            place = self.split(path if path[0] == "/" else self._first_prefix + path)
            if place is None:
                raise self.outside(path)
            return place
        return RootedPath(self._roots[0], _normalized(path))

    def split(self, absolute: str) -> RootedPath | None:
        """The place of an absolute path, unchecked; None if it lies in no root."""
        # With a slash at both ends: `/work/app` must not contain `/work/application`.
        text = f"/{_normalized(absolute)}/"
        for prefix, root in self._prefixes:
            if text.startswith(prefix):
                relative = text[len(prefix) : -1] or "."
                if self.are_nested and prefix != f"{root.path}/":
                    # The alternative path is known for this root only, not for roots nested in it.
                    return self.split(join_path(root.path, relative))
                return RootedPath(root, relative)
        return None

    def display_path(self, place: RootedPath) -> str:
        """The path as callers write it: relative in the first root, else absolute."""
        if place.root is self._roots[0]:
            return printable(place.relative)
        path = place.path
        return printable(path.removeprefix(self._first_prefix))

    @contextmanager
    def open_parent(self, place: RootedPath) -> Iterator[tuple[int, str]]:
        """Open the directory of a file, no link followed; yield its descriptor and the name of the file."""
        above, _, name = place.relative.rpartition("/")
        directory = self.resolver.open(place.root.fd, above or ".", DIRECTORY)
        try:
            yield directory, name
        finally:
            os.close(directory)

    def root_with(self, identity: tuple[int, int]) -> Root | None:
        """The root with this device and inode, whatever its path."""
        return self._by_identity.get(identity)

    def holds_root(self, place: RootedPath) -> bool:
        """Whether this place is a root or contains one."""
        path = place.path
        return any(root.path == path or _lies_in(root.path, path) for root in self._roots)

    def holds_own_state(self, place: RootedPath) -> bool:
        """Whether this place is a directory above our own state, which must stay."""
        return bool(self._own_parents) and (place.root, place.relative.lower()) in self._own_parents

    def outside(self, display_path: str) -> OutsideRoot:
        """The error for a path outside all roots."""
        where = ", ".join(printable(root.path) for root in self._roots)
        return OutsideRoot(f"{display_path}: outside the roots; name a path beneath {where}", path=display_path)

    def require_present(self, root: Root) -> None:
        """Refuse to work in a root that was renamed, deleted or replaced since the start.

        The descriptor still refers to the old directory, which is not the one that the caller sees at this path.
        """
        try:
            status = os.stat(root.path)
        except (FileNotFoundError, NotADirectoryError):
            raise _root_gone(root) from None
        if identity_of(status) != root.identity:
            raise _root_gone(root)

    def denied_by(self, place: RootedPath) -> str | None:
        """The deny glob that matches a place, free of links and `..`; also by its path in a nested root."""
        glob = self.deny.denying_glob(place.relative)
        # A glob with directories is relative to its root, so a nested root may deny what the outer one does not.
        if glob is None and self.are_nested:
            inner = self.split(place.path)
            glob = None if inner is None else self.deny.denying_glob(inner.relative)
        return glob

    def require_allowed(self, place: RootedPath, display_path: str) -> None:
        """Refuse a place, free of links and `..`, that a deny glob matches."""
        glob = self.denied_by(place)
        if glob is not None:
            raise self.deny_error(display_path, glob)

    def deny_error(self, display_path: str, glob: str) -> DeniedPath:
        """The error for a path that a deny glob matches."""
        if self.deny.covers_own_state(glob):
            return DeniedPath(f"{display_path}: closed, since {REASON}", path=display_path, reason=REASON)
        return DeniedPath(
            f"{display_path}: closed by the deny glob {glob} of this server's operator", path=display_path, glob=glob
        )

    def own_state_error(self, display_path: str) -> DeniedPath:
        """The error for a change that would move or delete a directory above our own state."""
        return DeniedPath(
            f"{display_path}: can't be moved, replaced or deleted, since coretools keeps its own state in it",
            path=display_path,
            reason=REASON,
        )

    def glob_reason(self, glob: str) -> str:
        """The reason for a file that a deny glob matches."""
        if self.deny.covers_own_state(glob):
            return REASON
        return f"the deny glob {glob} of this server's operator closes it"

    def secret_format(self, place: RootedPath, *, exists: Exists = entry_exists) -> str:
        """The secret format for which a file at this place must be checked; "" for nearly all."""
        kind = self.deny.secret_format(place.relative)
        if not kind and self.are_nested:
            inner = self.split(place.path)
            kind = "" if inner is None else self.deny.secret_format(inner.relative)
        if not kind and is_in_git_directory(place, exists=exists):
            kind = self.deny.secret_format(place.relative, GIT_FORMAT)
        return kind

    def hidden(self, place: RootedPath, fd: int | None = None, *, is_shown: bool = False) -> str:
        """Why the file at a place, free of links and `..`, is hidden; "" if it is not. `fd` if it is already open.

        A file is hidden by its name, by its content, or because it was hidden under another name. `is_shown`: its
        content is to be shown, as always if it is open. Then it must not be a configuration of git with a credential
        either, whatever its name.
        """
        glob = self.denied_by(place)
        if glob is not None:
            return self.glob_reason(glob)
        kind = self.secret_format(place) or self._renamed(place)
        if kind.startswith(GLOB_KIND):
            return self.glob_reason(kind.removeprefix(GLOB_KIND))
        if kind:
            return self._decide(place, kind, fd)
        reason = self._decide(place, ANY_CONFIGURATION, fd) if is_shown or fd is not None else ""
        return reason if reason and self.deny.secret_format(place.relative, ANY_CONFIGURATION) else ""

    def _decide(self, place: RootedPath, kind: str, fd: int | None) -> str:
        """Why the content of a suspect file is hidden; "" if it is not."""
        top = (place.root.path, place.root.fd)
        if fd is None:
            return self.secret_check.decide(top, place.relative, kind).reason
        return self.secret_check.decide_open(top, place.relative, kind, fd).reason

    def _renamed(self, place: RootedPath) -> str:
        """The kind that this file, or a parent directory, was hidden as before it was renamed; else ""."""
        inodes = self.hidden_inodes
        parts = place.relative.split("/")
        for end in range(1 if inodes.has_directories else len(parts), len(parts) + 1):
            path = "/".join(parts[:end])
            try:
                number = os.stat(path, dir_fd=place.root.fd, follow_symlinks=False).st_ino
            except OSError:
                return ""
            kind = inodes.kind_of(place.root.fd, path, number)
            if kind:
                return kind
        return ""

    def may_be_renamed(self, number: int) -> bool:
        """Whether a file with this inode number, or a parent directory, may have been hidden under another name."""
        return self.hidden_inodes.has_directories or self.hidden_inodes.has(number)

    def require_writable(self, root: Root, display_path: str) -> None:
        """Refuse a change in a read-only root."""
        if not root.writable:
            raise ReadOnly(
                f"{display_path}: the root {printable(root.path)} is read-only; nothing in it can be changed"
            )


GLOB_KIND = "deny glob "
"""Prefix of the kind of a file that a glob denies by name; all other kinds are secret formats."""


def hidden_error(display_path: str, reason: str) -> DeniedPath:
    """The error for a file that is hidden because of its content."""
    name = display_path.rpartition("/")[2]
    remedy = "" if reason == REASON else f"; the operator can open it with --deny '!{name}'"
    return DeniedPath(
        f"{display_path}: hidden, since {reason}{remedy}",
        path=display_path,
        reason=reason,
    )


def _open_roots(specs: Sequence[RootSpec], resolver: Resolver) -> list[Root]:
    if not specs:
        raise BadSetting("no root is given; name at least one directory")
    roots: list[Root] = []
    try:
        for spec in specs:
            roots.append(_open_root(spec, roots, resolver))
    except CoreError:
        for root in roots:
            os.close(root.fd)
        raise
    return roots


def _prefixes(specs: Sequence[RootSpec], roots: Sequence[Root]) -> list[tuple[str, Root]]:
    """Path prefixes of the roots, also as the operator configured them.

    Those, and links in a root, may reach it through other links.
    """
    known = {os.path.abspath(spec.path): root for spec, root in zip(specs, roots, strict=True)}
    known |= {root.path: root for root in roots}
    return [(f"{path}/", root) for path, root in known.items()]


def _open_root(spec: RootSpec, others: Sequence[Root], resolver: Resolver) -> Root:
    check_path(spec.path)
    try:
        # Fails too if a link that lstat(2) found is gone or can't be read (CPython, posixpath).
        path = os.path.realpath(spec.path)
        if not _may_be_root(path):
            raise BadSetting(f"root {spec.path}: {path} cannot be a root; name the directory of a project")
        fd = open_absolute(path, resolver)
    except OSError as error:
        raise BadSetting(f"root {spec.path}: cannot be opened as a directory ({error.strerror})") from error
    identity = identity_of(os.fstat(fd))
    if any(other.identity == identity for other in others):
        os.close(fd)
        raise BadSetting(f"root {spec.path}: named twice")
    name = printable(posixpath.basename(path))
    is_taken = any(other.name == name for other in others)
    display_path = printable(path) if is_taken else name
    return Root(display_path, path, spec.writable, fd, identity, is_on_disk=is_on_disk(fd))


def _may_be_root(path: str) -> bool:
    if path == _SHARED_MEMORY or _lies_in(path, _SHARED_MEMORY):
        return True
    return path != "/" and not any(path == no or _lies_in(path, no) for no in _FORBIDDEN_ROOTS)


def _lies_in(path: str, directory: str) -> bool:
    return path.startswith(f"{directory}/")


def _normalized(path: str) -> str:
    """The path without `.`, repeated, leading and trailing slashes. `..` stays: its meaning depends on links."""
    if "//" not in path and "." not in path and path[0] != "/" and path[-1] != "/":
        return path
    return "/".join(part for part in path.split("/") if part not in ("", ".")) or "."


def _root_gone(root: Root) -> RootGone:
    path = printable(root.path)
    return RootGone(f"the root {path} was renamed, deleted or replaced; restore it or restart the server", root=path)
