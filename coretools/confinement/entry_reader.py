"""Tell what the entries of a scanned directory mean: what is suspect, pinned, read-only, or a setting.

The scan (`masks`) stores it, `hidden` decides which suspects are secrets. A git directory is known by its name or its
content, and what lies in one by its role.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress

from coretools.confinement.control_files import ControlFileCollector
from coretools.confinement.git_redirects import redirecting_names
from coretools.confinement.hidden import HiddenFiles
from coretools.confinement.protected_paths import (
    GIT_CONFIG_NAMES,
    DirectoryNode,
    ProtectedPath,
    ScannedDirectory,
    SubdirectoryEntry,
    Suspect,
)
from coretools.confinement.settings_paths import setting_entries
from coretools.regular_file import read_regular
from coretools.roots.git_layout import is_configuration_name
from coretools.roots.hidden_inodes import inode_of
from coretools.roots.root import Root, RootedPath
from coretools.roots.root_set import Roots

GIT_CONTROL_ENTRIES = (*GIT_CONFIG_NAMES, "hooks")
"""Entries of a git directory that determine what git runs."""

_OF_MAIN_WORK_TREE = ("HEAD", "index", "logs/HEAD")
"""Entries of a repository that belong to its main work tree alone. git commits nothing without the last one."""

_POINTER_BYTES = 8192
_WORKTREE = re.compile(rb"gitdir: [^\n]*/worktrees/[^/\n]+\n?\Z")
"""Content of the `.git` file of a linked worktree; that of a submodule names `modules/NAME`."""

WORK_TREE = ""
"""Role of a directory that is in no git directory."""
_GIT_DIRECTORY = "git"
"""Role of a `.git` directory, which contains those of submodules and worktrees."""
_NESTED_GIT_DIRECTORY = "inner"
"""Role of a directory in `.git/modules` or `.git/worktrees`: a git directory or a parent of one."""
_GIT_STORAGE = "store"
"""Role of any other directory in a git directory: searched only for hidden files that were moved there."""
_STORAGE_NAMES = frozenset({"objects", "refs", "logs", "lfs"})
"""Entries of a nested git directory that contain no further one. Any other may be a parent of one: `a` of `a/b`."""


class EntryReader:
    """Reads the entries of directories beneath the roots."""

    def __init__(self, roots: Roots, hidden: HiddenFiles) -> None:
        self._roots = roots
        self._hidden = hidden

    def read(self, node: DirectoryNode, entries: Iterator[os.DirEntry[str]], mounted: list[str]) -> ScannedDirectory:
        """Return what of a directory matters. `mounted`: names of its entries that are mount points."""
        if node.role != WORK_TREE:
            return self._git_listing(node, list(entries))
        listing, collector = ScannedDirectory(is_top=node.path == "."), ControlFileCollector(node.path)
        names: list[str] = []
        for entry in entries:
            path = node.join(entry.name)
            collector.add(entry.name)
            names.append(entry.name)
            if entry.name == ".git":
                _record_dot_git(node.root, path, entry, listing)
            elif (kind := self._hidden.suspicion(node.root, path, entry)) is not None:
                listing.suspects.append(Suspect(path, kind))
            elif entry.is_dir(follow_symlinks=False):
                listing.children[entry.name] = SubdirectoryEntry(entry.inode(), WORK_TREE)
                if self._roots.holds_own_state(RootedPath(node.root, path)):
                    _protect(listing.pinned, node.root, path)
        collector.store(listing)
        if listing.is_git:  # a bare repository, or a git directory separate from its work tree
            configurations = filter(is_configuration_name, names)
            _protect(listing.credential_files, node.root, *map(node.join, configurations))
        listing.settings = setting_entries(node, names)
        self._record_mounted(node, mounted, listing)
        return listing

    def _record_mounted(self, node: DirectoryNode, mounted: list[str], listing: ScannedDirectory) -> None:
        """Record hidden files and directories that are mounted under another name."""
        known = self._roots.hidden_inodes
        for name in mounted:
            path = node.join(name)
            inode = inode_of(path, node.root.fd)
            kind = "" if inode is None else known.kind_of(node.root.fd, path, inode.number)
            # `os.DirEntry` reports the inode below the mount, and commands see the mounted one.
            if kind and all(one.path != path for one in listing.suspects):
                listing.suspects.append(Suspect(path, kind))
                listing.children.pop(name, None)

    def _git_listing(self, node: DirectoryNode, entries: list[os.DirEntry[str]]) -> ScannedDirectory:
        """List a git directory, or a parent of those of submodules and worktrees."""
        listing = ScannedDirectory()
        collector = ControlFileCollector(node.path, is_git=node.role == _GIT_DIRECTORY)
        names = {entry.name for entry in entries}
        # By role, not by content: a nested git directory can be disguised, its HEAD moved away or one put above it.
        is_repository = node.role in (_GIT_DIRECTORY, _NESTED_GIT_DIRECTORY)
        self._protect_entries_of_trees(node, names, listing)
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
        listing.redirects = redirecting_names(node, entries)
        return listing

    def _protect_entries_of_trees(self, node: DirectoryNode, names: set[str], listing: ScannedDirectory) -> None:
        """Record what of a git directory belongs to a work tree that commands don't have, or links one they have."""
        if node.root.only_git and "commondir" in names and self._is_beyond_roots(_work_tree_of(node) or "/"):
            _protect(listing.read_only, node.root, node.path)
        elif node.role == _NESTED_GIT_DIRECTORY and not names.isdisjoint(GIT_CONFIG_NAMES):
            _pin(node.root, node.path, listing)
        if node.path == "." and node.root.only_git and self._is_beyond_roots(os.path.dirname(node.root.path)):
            _protect(listing.read_only, node.root, *_OF_MAIN_WORK_TREE)
            if "logs" in names:
                _pin(node.root, "logs", listing)  # else it could be replaced, with another logs/HEAD in it
        if "commondir" in names and self._is_of_tree_elsewhere(node):
            _pin(node.root, node.path, listing)
            _protect(listing.read_only, node.root, node.join("commondir"), node.join("gitdir"))

    def _is_of_tree_elsewhere(self, node: DirectoryNode) -> bool:
        """Whether the linked work tree of this git directory is a root, or beneath none.

        Commands can't change its `.git` file, nor remove it, so what `commondir` says need not change either.
        """
        tree = _work_tree_of(node)
        place = self._roots.split(tree) if tree else None
        return bool(tree) and (place is None or place.relative == ".")

    def _is_beyond_roots(self, tree: str) -> bool:
        """Whether a work tree is neither beneath the roots nor the one of which a root is a folder."""
        place = self._roots.split(tree)
        return place is None or place.root.only_git or (place.root.is_above and place.relative != ".")


def _work_tree_of(node: DirectoryNode) -> str:
    """Return the path of the linked work tree that a git directory belongs to; "" if it names none."""
    text = os.fsdecode(_pointer(node.root.fd, node.join("gitdir"))).rstrip("\n")
    return os.path.dirname(os.path.normpath(os.path.join(node.root.path, node.path, text))) if text else ""


def _record_git_entry(root: Root, path: str, entry: os.DirEntry[str], listing: ScannedDirectory) -> None:
    """Record an entry of a git directory that determines what git runs or may hold credentials, old copies too."""
    if entry.name in GIT_CONTROL_ENTRIES and not entry.is_symlink():
        _protect(listing.read_only, root, path)
    elif entry.name in GIT_CONTROL_ENTRIES:
        with suppress(OSError):
            target = os.readlink(path, dir_fd=root.fd)
            if target.startswith("/"):
                listing.links.append((path, target))
            resolved = os.path.join(os.path.dirname(path), target)
            inside = os.path.normpath(resolved).removeprefix(f"{root.path}/")
            if inside.partition("/")[0] not in ("", ".."):
                _protect(listing.credential_files, root, inside)
    elif is_configuration_name(entry.name):
        _protect(listing.credential_files, root, path)


def _pin(root: Root, path: str, listing: ScannedDirectory) -> None:
    """Pin a git directory and its parents, so that they cannot be moved to where the scan expects none."""
    while os.path.basename(path) not in ("", ".git"):
        _protect(listing.pinned, root, path)
        path = os.path.dirname(path)


def role_of_root(root: Root) -> str:
    """Return what the top of a root is: a git directory, or part of a work tree."""
    return _GIT_DIRECTORY if root.only_git or os.path.basename(root.path) == ".git" else WORK_TREE


def _role_in_git(role: str, name: str, *, has_head: bool) -> str:
    if role == _GIT_DIRECTORY:
        return _NESTED_GIT_DIRECTORY if name in ("modules", "worktrees") else _GIT_STORAGE
    return _GIT_STORAGE if role == _GIT_STORAGE or (has_head and name in _STORAGE_NAMES) else _NESTED_GIT_DIRECTORY


def _record_dot_git(root: Root, path: str, entry: os.DirEntry[str], listing: ScannedDirectory) -> None:
    """Record a `.git`: a directory, which is pinned, or a file that points to one, which is read-only."""
    listing.is_top = True
    if entry.is_dir(follow_symlinks=False):
        _protect(listing.pinned, root, path)
        listing.children[entry.name] = SubdirectoryEntry(entry.inode(), _GIT_DIRECTORY)
    elif entry.is_file(follow_symlinks=False):
        listing.is_linked = _is_in_worktree(root.fd, path)
        if not listing.is_linked:
            _protect(listing.read_only, root, path)


def _is_in_worktree(top: int, path: str) -> bool:
    """Whether a `.git` file below the top of the root belongs to a linked worktree (gitrepository-layout(5)).

    Such a worktree must stay removable: `git worktree remove` deletes the file.
    """
    return path != ".git" and _WORKTREE.match(_pointer(top, path)) is not None


def _pointer(top: int, path: str) -> bytes:
    """Return the content of a file that names a directory; nothing if it can't be read."""
    with suppress(OSError):
        return read_regular(path, _POINTER_BYTES, directory=top)[0]
    return b""


def _protect(protected: list[ProtectedPath], root: Root, *paths: str) -> None:
    """Record paths that are files or directories; links are skipped."""
    for path in paths:
        with suppress(OSError):
            kind = stat.S_IFMT(os.stat(path, dir_fd=root.fd, follow_symlinks=False).st_mode)
            identity = inode_of(path, root.fd)
            if identity is not None and kind in (stat.S_IFREG, stat.S_IFDIR):
                protected.append(ProtectedPath(path, identity))
