"""Find the repository of each root that is a linked work tree or a folder of one: outside the roots, for git alone.

git makes a linked work tree with a pointer in each direction: `.git` names `REPOSITORY/worktrees/NAME`, and `gitdir`
there names that `.git`. An agent may be able to write the first, and an unpacked archive may contain one; only a person
who ran git in the repository made the second. Both must agree, and nothing else that an agent can write decides which
directory is opened. That of a folder is opened only if the operator says so. Done once, at the start.
"""

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from coretools.errors import CoreError
from coretools.mounts import mounts_by_path
from coretools.reach import is_beneath
from coretools.roots import directory_access
from coretools.roots.open_beneath import Resolver, is_on_disk, open_absolute
from coretools.roots.path_text import printable
from coretools.roots.root import Root, identity_of

GIT = ".git"
POINTER_BYTES = 8 * 1024
"""Largest pointer file that is read; each holds one path."""

WORKTREES = "worktrees"

_MAY_NOT_ANSWER = ("nfs", "cifs", "smb", "9p", "fuse", "virtiofs", "ceph", "afs", "autofs", "lustre", "gluster")
"""Beginnings of the names of file systems that a program or another machine serves."""


class _Unusable(Exception):
    """Why the repository of a root can't be used."""


@dataclass(frozen=True, slots=True)
class LinkedRepositories:
    """What the `.git` of the roots lead to outside the roots."""

    directories: tuple[Root, ...] = ()
    """The directories that the work trees of a repository share, and work trees above roots, open: for git alone."""
    trees_above: Mapping[str, str] = field(default_factory=dict)
    """The work tree of which a root is a folder, by the path of the root."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why git has no repository in a root, by the path of the root."""


@dataclass(frozen=True, slots=True)
class _Search:
    """What is searched for all roots together."""

    roots: Sequence[Root]
    resolver: Resolver
    own: Sequence[str]
    found: dict[tuple[int, int], Root] = field(default_factory=dict)

    def add(self, one: Root) -> None:
        """Add a duplicate of a directory, unless it is known with the same rights; then those of the writable one."""
        known = self.found.get(one.identity)
        if known is not None and (known.writable or not one.writable):
            return
        if known is not None:
            os.close(known.fd)
        self.found[one.identity] = replace(one, fd=os.dup(one.fd))


def find_repositories(
    roots: Sequence[Root], resolver: Resolver, own: Sequence[str], *, above: bool = False
) -> LinkedRepositories:
    """Open the repositories of roots that are linked work trees. The caller closes them.

    None may contain one of the directories `own`, which hold our own state. With `above` those of which roots are
    folders are opened too, each with its work tree.
    """
    search = _Search(roots, resolver, own)
    trees: dict[str, str] = {}
    refusals: dict[str, str] = {}
    for root in roots:
        try:
            kind = directory_access.entry_kind(root.fd, GIT)
            if kind is None and (project := _project_above(root.path)):
                _add_above(search, root, project, is_allowed=above)
                trees[root.path] = project
            elif kind == "file":
                _add_repository(search, root)
        except _Unusable as error:
            refusals[root.path] = str(error)
        except CoreError as error:
            refusals[root.path] = f".git can't be read ({error})"
    return LinkedRepositories(tuple(search.found.values()), trees, refusals)


def _add_repository(search: _Search, root: Root) -> None:
    """Add the repository of a linked work tree, unless it lies beneath the roots."""
    private = _target(root.fd, GIT, "gitdir: ", root.path)
    if any(is_beneath(private, one.path) for one in search.roots):
        return
    path = _repository_path(private, root.path)
    _require_answering(path, root.path)
    if any(is_beneath(one, path) for one in (*(root.path for root in search.roots), *search.own)):
        raise _Unusable(f"its repository {printable(path)} contains a root, or what coretools keeps for itself")
    with _opened(path, search.resolver) as common:
        _require_linked(common, path, posixpath.basename(private), root)
        search.add(_repository(path, common, root))


def _add_above(search: _Search, root: Root, path: str, *, is_allowed: bool) -> None:
    """Add the work tree of which a root is a folder, which stays read-only, and its repository."""
    what = f"this root is a folder of the repository {printable(path)}"
    outer = next((one.path for one in search.roots if is_beneath(path, one.path)), "")
    if outer:
        raise _Unusable(f"{what}, which lies in another root; name that as repository")
    if not is_allowed:
        raise _Unusable(
            f"{what}; start the server with --git-above (CORETOOLS_GIT_ABOVE=1; above = true in [git] of the policy),"
            " with which git reads that repository and all its history, and changes files in this root only; or with"
            f" the root {printable(path)}"
        )
    _require_answering(path, root.path)
    home = os.path.realpath(os.path.expanduser("~"))
    if path == "/" or any(is_beneath(one, path) for one in (home, *search.own)):
        raise _Unusable(f"{what}, which contains the home directory, or what coretools keeps for itself")
    with _opened(path, search.resolver) as top:
        _require_owner(top, path, root)
        tree = Root(
            printable(path), path, False, top, identity_of(os.fstat(top)), is_on_disk=is_on_disk(top), is_above=True
        )
        kind = directory_access.entry_kind(top, GIT)
        if kind == "file":
            _add_repository(search, replace(tree, writable=root.writable))
        elif any(one.path == f"{path}/{GIT}" for one in search.roots):
            pass  # with the rights that the operator gave it
        elif kind == "directory":
            with directory_access.open_handle(top, GIT) as repository:
                _require_owner(repository, f"{path}/{GIT}", root)
                search.add(_repository(f"{path}/{GIT}", repository, root))
        else:
            raise _Unusable(f"{what}, whose .git is neither a file nor a directory")
        search.add(tree)


def _repository(path: str, handle: int, root: Root) -> Root:
    """Return a repository with the rights of a root."""
    identity = identity_of(os.fstat(handle))
    return Root(printable(path), path, root.writable, handle, identity, is_on_disk=is_on_disk(handle), only_git=True)


def _target(handle: int, name: str, prefix: str, start: str) -> str:
    """Return the absolute path that a pointer file names; `start` is where a relative one begins."""
    try:
        text = directory_access.read_file(handle, name, limit_bytes=POINTER_BYTES).decode("utf-8").rstrip("\r\n")
    except (CoreError, UnicodeDecodeError) as error:
        raise _Unusable(f"{name} can't be read ({error})") from error
    target = text.removeprefix(prefix)
    if not text.startswith(prefix) or not target or not target.isprintable():
        raise _Unusable(f"{name} names no directory")
    return posixpath.normpath(posixpath.join(start, target))


def _repository_path(private: str, top: str) -> str:
    """Return the path of the repository whose linked work tree has this git directory."""
    above, name = posixpath.split(private)
    repository, kind = posixpath.split(above)
    if kind == WORKTREES and name:
        return repository
    project = _project_above(top)
    if "/modules/" in private and project:
        raise _Unusable(
            "this root is a submodule, whose repository is kept by its project; start the server with the root"
            f" {printable(project)}"
        )
    raise _Unusable(
        f".git names {printable(private)}, which lies outside the roots and is not the entry of a linked work tree;"
        f" start the server with {printable(private)} as another root"
    )


def _require_answering(path: str, top: str) -> None:
    """Refuse a file system that another machine or a program serves, unless the root is on one of that type."""
    mounts = mounts_by_path()

    def kind_of(directory: str) -> str:
        return mounts[max((one for one in mounts if is_beneath(directory, one)), key=len, default="")] if mounts else ""

    kind = kind_of(path)
    if kind.startswith(_MAY_NOT_ANSWER) and kind != kind_of(top):
        raise _Unusable(
            f"its repository {printable(path)} is on a file system of type {kind}, which may never answer; start the"
            f" server with {printable(path)} as another root"
        )


@contextmanager
def _opened(path: str, resolver: Resolver) -> Iterator[int]:
    """Open a directory by its absolute path, without any link on the way."""
    try:
        handle = open_absolute(path, resolver)
    except OSError as error:
        raise _Unusable(
            f"its repository {printable(path)} can't be opened ({error.strerror}): it was moved or deleted, or is not"
            " mounted here at that path. Mount it, or run `git worktree repair` with the path of this root in the"
            " repository; then restart the server"
        ) from error
    try:
        yield handle
    finally:
        os.close(handle)


def _require_linked(common: int, path: str, name: str, root: Root) -> None:
    """Refuse a repository that does not name this root as its linked work tree, or belongs to somebody else."""
    _require_owner(common, path, root)
    entry = f"{WORKTREES}/{name}"
    private = f"{path}/{entry}"
    try:
        with (
            directory_access.open_subdirectory(common, WORKTREES) as entries,
            directory_access.open_subdirectory(entries, name) as handle,
        ):
            tree = _target(handle, "gitdir", "", private)
            shared = _target(handle, "commondir", "", private)
    except CoreError as error:
        raise _Unusable(
            f"its repository {printable(path)} has no usable entry {entry} ({error}): the work tree was removed or"
            " pruned there. Add it again with `git worktree add` in the repository; then restart the server"
        ) from error
    if tree != f"{root.path}/{GIT}":
        raise _Unusable(
            f"its repository {printable(path)} knows the work tree {name} at {printable(posixpath.dirname(tree))}, not"
            " at this path. If it was moved here, run `git worktree repair` in it; in a container, mount it at its own"
            " path. Then restart the server"
        )
    if shared != path:
        raise _Unusable(f"commondir in {printable(private)} names {printable(shared)}, not its own repository")


def _require_owner(handle: int, path: str, root: Root) -> None:
    owner = os.fstat(handle).st_uid
    if owner not in (os.geteuid(), os.fstat(root.fd).st_uid):
        raise _Unusable(f"its repository {printable(path)} belongs to another user ({owner})")


def _project_above(path: str) -> str:
    """Return the nearest directory above a path with a `.git`; "" if there is none."""
    while path != "/":
        path = posixpath.dirname(path)
        if os.path.lexists(f"{path}/{GIT}"):
            return path
    return ""
