"""What lies beneath the roots that a command must not read, or must not change: found anew before every command.

Hidden paths are covered in the view; the control files of a repository, and the settings of editors and agents, are
made unchangeable in it. Both are by path, so they have to be known. `scan` knows which directories have changed; here
stands what their entries mean, in `hidden` which files are secrets. Decides nothing about tools; `sandbox.deny` does.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from coretools.confinement.control_files import ControlFileCollector, ControlFiles, control_files
from coretools.confinement.hidden import Classifier, HiddenFiles, HiddenPath, RootRules, Suspect
from coretools.confinement.scan import (
    MAX_DIRECTORIES,
    DirectoryNode,
    DirectoryTree,
    ProtectedPath,
    ScannedDirectory,
    SubdirectoryEntry,
)
from coretools.roots.editor_settings import NAMES
from coretools.roots.git_directories import entry_exists, is_git_directory
from coretools.roots.hidden_inodes import Inode, inode_of
from coretools.roots.root_set import Root, Roots

GIT_CONFIG_NAMES = ("config", "config.worktree")
GIT_CONTROL_ENTRIES = (*GIT_CONFIG_NAMES, "hooks")
"""Entries of a git directory that decide what git runs."""

MAX_SCAN_SECONDS = 2.0
"""A look is repeated for so long when something that commands must not read or change was moved meanwhile."""

_POINTER_BYTES = 8192
_WORKTREE = re.compile(rb"gitdir: [^\n]*/worktrees/[^/\n]+\n?\Z")
"""What the `.git` file of a linked worktree says; that of a submodule leads to `modules/NAME`."""

_WORK_TREE = ""
_GIT_DIRECTORY = "git"
"""Role of a `.git`: it is a git directory, and those of submodules and worktrees lie in it."""
_NESTED_GIT_DIRECTORY = "inner"
"""Role of a directory in `.git/modules` or `.git/worktrees`: a git directory, or on the way to one."""
_GIT_STORAGE = "store"
"""Role of any other directory in a git directory: only a hidden file that was moved there is looked for."""
_STORAGE_NAMES = frozenset({"objects", "refs", "logs", "lfs"})
"""Entries of an inner git directory in which none lies. Any other one may be on the way: `a` to `a/b`."""


class MaskedGitConfig(NamedTuple):
    """The configuration of a repository, as commands see it."""

    path: str
    """Absolute, of the file."""
    directory: tuple[int, int]
    """Device and inode of the git directory."""
    is_writable: bool
    """Whether commands may change it."""
    text: bytes
    inode: tuple[int, ...] = ()
    """Of the file: one that was replaced is laid over again."""
    generation: int = 0
    """How many copies of it commands have spoiled: then they get another one."""


class Masks(NamedTuple):
    """Absolute paths, sorted."""

    pinned: tuple[str, ...]
    """Git directories: their content changes, they themselves stay."""
    read_only: tuple[str, ...]
    """Not to be changed."""
    hidden: tuple[HiddenPath, ...]
    """Not to be read, with the reason."""
    state: tuple[tuple[str, Inode], ...]
    """Which file or directory stands at what is pinned and fixed: one that was replaced is laid over again."""
    is_complete: bool
    """False when there were too many directories to look into all of them."""
    credential_files: tuple[str, ...] = ()
    """Files that may have credentials for git in them."""
    git_configs: tuple[MaskedGitConfig, ...] = ()
    """Files that commands see another text of."""

    @property
    def masked(self) -> tuple[str, ...]:
        """Paths of what is hidden."""
        return tuple(one.path for one in self.hidden)

    @property
    def identities(self) -> dict[str, tuple[int, int]]:
        """Device and inode of what was found at each path: what stands there when it is laid over may be another."""
        found = {one.path: (one.directory[0], one.inode[0]) for one in self.git_configs if one.inode}
        found |= {path: (inode.device, inode.number) for path, inode in self.state}
        found |= {one.path: (one.identity[0], one.identity[1]) for one in self.hidden}
        return {path: identity for path, identity in found.items() if identity[1]}  # of a path too long it is unknown


class PathsKeepMoving(Exception):
    """What commands must not read or change is moved all the time."""


class MaskFinder:
    """Looks through the roots. `close` must be called; used by one thread at a time."""

    def __init__(self, roots: Roots, classifier: Classifier | None = None) -> None:
        """Without a classifier files are hidden as the rules of the roots say."""
        self._roots = roots
        self._hidden = HiddenFiles(classifier or RootRules(roots), roots.hidden_inodes)
        self._tree = DirectoryTree(roots, self._read)
        self._suspects: list[tuple[Root, Suspect]] = []
        self._closed: list[HiddenPath] = []
        self._found: Masks | None = None
        self._classification: Iterator[None] | None = None
        """The second half of a look, after the listing; None before it."""
        self._protected_before: set[tuple[int, ...]] = set()
        """Device and inode of all that the last result hides or keeps as it is."""
        self._unconfirmed: Masks | None = None
        """A result that lacks some of them, which holds if nothing has changed since."""
        self._deadline = 0.0

    @property
    def may_block(self) -> bool:
        """Whether a look may wait for another machine or program."""
        return self._tree.may_block

    @property
    def unwatched(self) -> tuple[str, ...]:
        """Why directories are polled instead of watched, in words; empty while all are watched."""
        return tuple(self._tree.unwatched)

    @property
    def directories(self) -> int:
        """How many are known."""
        return self._tree.directories

    def begin(self) -> None:
        """Begin a look: it takes in what was changed before this call. Waits for nothing but a full event queue."""
        self._tree.begin()
        self._classification = self._unconfirmed = None
        self._deadline = time.monotonic() + MAX_SCAN_SECONDS

    def invalidate(self) -> None:
        """Have the next look list everything: what the last one found is not what there is."""
        self._tree.invalidate()

    def advance(self, seconds: float) -> Masks | None:
        """Go on with the look for a time; what is to be laid over when it has ended, None while it has not.

        A running command can move a directory while it is looked for what lies in it. So when something that was
        hidden, or kept as it is, is found no more, the look is repeated until nothing has changed in between.

        Raises:
            Unsettled: something always has.
        """
        until = time.monotonic() + seconds
        while True:
            if self._classification is None:
                if not self._tree.advance(until - time.monotonic()):
                    return None
                if self._unconfirmed is not None and self._tree.is_stable:
                    return self._accepted(self._unconfirmed)
                self._classification = self._classify()
            for _ in self._classification:
                if time.monotonic() > until:
                    return None
            assert self._found is not None
            if not self._protected_before - self._seen(self._found):
                return self._accepted(self._found)
            if time.monotonic() > self._deadline:
                raise PathsKeepMoving
            self._tree.begin()
            self._classification, self._unconfirmed = None, self._found

    def advance_listing(self, seconds: float = float("inf")) -> bool:
        """Go on with the first half of the look, which is enough for `control_files`; whether that has ended."""
        return self._tree.advance(seconds)

    def scan(self) -> Masks:
        """A whole look. Blocks: a first one at 6,000 directories takes 0.2 s."""
        self.begin()
        return self.finish()

    def finish(self) -> Masks:
        """The rest of a look. Blocks."""
        while (found := self.advance(1.0)) is None:
            pass
        return found

    def links(self) -> list[tuple[str, str]]:
        """Absolute paths of links in the place of a configuration, and what they lead to."""
        listed = [
            (node, node.listing) for node in self._tree.relevant if node.listing is not None and node.root.writable
        ]
        return [(f"{node.root.path}/{path}", target) for node, listing in listed for path, target in listing.links]

    def control_files(self) -> ControlFiles:
        """What git, an editor or an agent acts on, as of the last look. Cheap: a stat for each."""
        found = control_files(self._tree.relevant)
        for root in self._roots:
            if root.writable:
                found |= {f"{root.path}/{name}": () for name in NAMES if entry_exists(root.fd, name)}
        return found

    def close(self) -> None:
        """Give every handle back."""
        self._tree.close()

    def _seen(self, found: Masks) -> set[tuple[int, ...]]:
        """Device and inode of what this look met and might have hidden, and of what is kept as it is."""
        closed = {one.identity[:2] for one in self._closed}
        return {*self._hidden.suspect_inodes, *closed, *((inode.device, inode.number) for _, inode in found.state)}

    def _accepted(self, found: Masks) -> Masks:
        self._protected_before = {*(one.identity[:2] for one in found.hidden), *(one[:2] for _, one in found.state)}
        return found

    def _classify(self) -> Iterator[None]:
        """Read what was listed; when this has ended, `_found` is the result."""
        gathered = self._gathered() if self._tree.is_changed or self._found is None else self._found
        judged = yield from self._hidden.find(self._suspects)
        hidden = tuple(sorted({*judged, *self._closed}))
        self._found = gathered if gathered.hidden == hidden else gathered._replace(hidden=hidden)
        self._tree.is_changed = False

    def _gathered(self) -> Masks:
        """All but what is hidden, from the listings of which something is to be said."""
        nodes = list(self._tree.relevant)
        pinned, read_only = _protected(nodes, "pinned"), _protected(nodes, "read_only")
        self._suspects = [(node.root, one) for node in nodes if node.listing for one in node.listing.suspects]
        self._closed = [
            _inaccessible(node) for node in nodes if node.closed_reason and node.role == _WORK_TREE and node.path != "."
        ]
        return Masks(
            pinned=tuple(path for path, _ in pinned),
            read_only=tuple(path for path, _ in read_only),
            hidden=(),
            state=(*pinned, *read_only),
            is_complete=self._tree.directories < MAX_DIRECTORIES,
            credential_files=tuple(path for path, _ in _protected(nodes, "credential_files")),
        )

    def _read(self, node: DirectoryNode, entries: Iterator[os.DirEntry[str]]) -> ScannedDirectory:
        if node.role != _WORK_TREE:
            return self._git_listing(node, list(entries))
        listing, collector = ScannedDirectory(), ControlFileCollector(node.path)
        for entry in entries:
            path = node.join(entry.name)
            collector.add(entry.name)
            if entry.name == ".git":
                _record_dot_git(node.root, path, entry, listing)
            elif (kind := self._hidden.suspicion(node.root, path, entry)) is not None:
                listing.suspects.append(Suspect(path, kind))
            elif entry.is_dir(follow_symlinks=False):
                listing.children[entry.name] = SubdirectoryEntry(entry.inode(), _WORK_TREE)
            if node.path == "." and entry.name in NAMES:
                _protect(listing.read_only, node.root, path)
            if entry.name == "HEAD" and is_git_directory(node.root.fd, node.path):  # bare, or apart from its work tree
                _protect(listing.credential_files, node.root, *map(node.join, GIT_CONFIG_NAMES))
        collector.store(listing)
        self._record_mounted(node, listing)
        return listing

    def _record_mounted(self, node: DirectoryNode, listing: ScannedDirectory) -> None:
        """Hidden files and directories that are mounted under another name."""
        known = self._roots.hidden_inodes
        for name in self._tree.mounted_in(node):
            path = node.join(name)
            inode = inode_of(path, node.root.fd)
            kind = "" if inode is None else known.kind_of(node.root.fd, path, inode.number)
            if kind and all(one.path != path for one in listing.suspects):
                listing.suspects.append(Suspect(path, kind))
                listing.children.pop(name, None)

    def _git_listing(self, node: DirectoryNode, entries: list[os.DirEntry[str]]) -> ScannedDirectory:
        """What lies in a git directory, or in one that leads to those of submodules and worktrees."""
        listing = ScannedDirectory()
        collector = ControlFileCollector(node.path, is_git=node.role == _GIT_DIRECTORY)
        names = {entry.name for entry in entries}
        is_repository = node.role in (
            _GIT_DIRECTORY,
            _NESTED_GIT_DIRECTORY,
        )  # what makes an inner one could be moved away, or put above it
        if node.role == _NESTED_GIT_DIRECTORY and not names.isdisjoint(GIT_CONFIG_NAMES):
            _pin(node.root, node.path, listing)
        for entry in entries:
            path = node.join(entry.name)
            collector.add(entry.name)
            if is_repository:
                _record_git_entry(node.root, path, entry, listing)
            if (kind := self._hidden.remembered_kind(node.root, path, entry)) is not None:
                listing.suspects.append(Suspect(path, kind))
            elif entry.is_dir(follow_symlinks=False):
                role = _role_in_git(node.role, entry.name, has_head="HEAD" in names)
                listing.children[entry.name] = SubdirectoryEntry(entry.inode(), role)
        collector.store(listing)
        return listing


def _record_git_entry(root: Root, path: str, entry: os.DirEntry[str], listing: ScannedDirectory) -> None:
    """What lies in a git directory: what decides, what has credentials, and old copies of it."""
    if entry.name in GIT_CONTROL_ENTRIES and not entry.is_symlink():
        _protect(listing.read_only, root, path)
    elif entry.name in GIT_CONTROL_ENTRIES:
        with suppress(OSError):
            said = os.readlink(path, dir_fd=root.fd)
            if said.startswith("/"):
                listing.links.append((path, said))
            target = os.path.join(os.path.dirname(path), said)
            inside = os.path.normpath(target).removeprefix(f"{root.path}/")
            if inside.partition("/")[0] not in ("", ".."):
                _protect(listing.credential_files, root, inside)
    elif "config" in entry.name or "credential" in entry.name:
        _protect(listing.credential_files, root, path)


def _pin(root: Root, path: str, listing: ScannedDirectory) -> None:
    """Keep a git directory, and what it lies in, from being moved to where none is looked for."""
    while os.path.basename(path) not in ("", ".git"):
        _protect(listing.pinned, root, path)
        path = os.path.dirname(path)


def _role_in_git(role: str, name: str, *, has_head: bool) -> str:
    if role == _GIT_DIRECTORY:
        return _NESTED_GIT_DIRECTORY if name in ("modules", "worktrees") else _GIT_STORAGE
    return _GIT_STORAGE if role == _GIT_STORAGE or (has_head and name in _STORAGE_NAMES) else _NESTED_GIT_DIRECTORY


def _record_dot_git(root: Root, path: str, entry: os.DirEntry[str], listing: ScannedDirectory) -> None:
    """A `.git`: a directory that stays with its parts fixed, or a file that leads to one."""
    if entry.is_dir(follow_symlinks=False):
        _protect(listing.pinned, root, path)
        listing.children[entry.name] = SubdirectoryEntry(entry.inode(), _GIT_DIRECTORY)
    elif entry.is_file(follow_symlinks=False) and not _is_in_worktree(root.fd, path):
        _protect(listing.read_only, root, path)


def _is_in_worktree(top: int, path: str) -> bool:
    """Whether a `.git` file below the top of the root is that of a linked worktree (gitrepository-layout(5)).

    Such a tree has to be removable: `git worktree remove` deletes the file.
    """
    if path == ".git":
        return False
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=top)
    except OSError:
        return False
    try:
        return _WORKTREE.match(os.read(handle, _POINTER_BYTES)) is not None
    except OSError:
        return False
    finally:
        os.close(handle)


def _protect(kept: list[ProtectedPath], root: Root, *paths: str) -> None:
    """Note files or directories that are there; a link is none."""
    for path in paths:
        with suppress(OSError):
            kind = stat.S_IFMT(os.stat(path, dir_fd=root.fd, follow_symlinks=False).st_mode)
            identity = inode_of(path, root.fd)
            if identity is not None and kind in (stat.S_IFREG, stat.S_IFDIR):
                kept.append(ProtectedPath(path, identity))


def _protected(nodes: list[DirectoryNode], part: str) -> list[tuple[str, Inode]]:
    found = {
        f"{node.root.path}/{one.path}": one.identity
        for node in nodes
        if node.listing is not None
        for one in getattr(node.listing, part)
    }
    return sorted(found.items())


def _inaccessible(node: DirectoryNode) -> HiddenPath:
    path = f"{node.root.path}/{node.path}"
    return HiddenPath(path, node.closed_reason, inode_of(path) or (0, 0, 0))
