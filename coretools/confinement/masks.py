"""Find the paths beneath the roots that a command must not read or must not change, before every command.

In the namespaces of a command hidden paths are masked; control files of repositories and settings of editors and agents
are read-only. Both work by path, so the paths have to be found. `directory_scan` knows which directories
changed, this module what their entries mean, `hidden` which files are secrets. The rules for tools are in
`roots.hidden_files`.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import anyio.lowlevel
from anyio import CapacityLimiter, to_thread

from coretools.confinement.control_files import ControlFileCollector, control_files, old_remotes
from coretools.confinement.directory_scan import MAX_DIRECTORIES, DirectoryTree
from coretools.confinement.git_redirects import Redirects, inaccessible_directories, redirecting_names, redirects_in
from coretools.confinement.hidden import HiddenFiles
from coretools.confinement.protected_paths import (
    GIT_CONFIG_NAMES,
    ControlFiles,
    DirectoryNode,
    HiddenPath,
    Masks,
    ProtectedPath,
    ScannedDirectory,
    SubdirectoryEntry,
    Suspect,
)
from coretools.confinement.settings_paths import fixed_settings, setting_entries, states_of_settings
from coretools.regular_file import read_regular
from coretools.roots.git_layout import is_configuration_name
from coretools.roots.hidden_inodes import Inode, inode_of
from coretools.roots.root import Root, RootedPath
from coretools.roots.root_set import Roots

GIT_CONTROL_ENTRIES = (*GIT_CONFIG_NAMES, "hooks")
"""Entries of a git directory that determine what git runs."""

_OF_MAIN_WORK_TREE = ("HEAD", "index", "logs/HEAD")
"""Entries of a repository that belong to its main work tree alone. git commits nothing without the last one."""

MAX_SCAN_SECONDS = 2.0
"""How long a scan is repeated while paths that commands must not read or change keep moving."""

SLICE_SECONDS = 0.005
"""Part of a scan between which the event loop runs. A worker thread would need the interpreter lock after each of
thousands of system calls; beside a busy event loop that takes seconds."""

LONG_SECONDS = 0.1
"""After a slice that took this long the scan ends in a thread: one suspect file, or a large git index, can take half a
second."""

_POINTER_BYTES = 8192
_WORKTREE = re.compile(rb"gitdir: [^\n]*/worktrees/[^/\n]+\n?\Z")
"""Content of the `.git` file of a linked worktree; that of a submodule names `modules/NAME`."""

_WORK_TREE = ""
_GIT_DIRECTORY = "git"
"""Role of a `.git` directory, which contains those of submodules and worktrees."""
_NESTED_GIT_DIRECTORY = "inner"
"""Role of a directory in `.git/modules` or `.git/worktrees`: a git directory or a parent of one."""
_GIT_STORAGE = "store"
"""Role of any other directory in a git directory: searched only for hidden files that were moved there."""
_STORAGE_NAMES = frozenset({"objects", "refs", "logs", "lfs"})
"""Entries of a nested git directory that contain no further one. Any other may be a parent of one: `a` of `a/b`."""


class PathsKeepMoving(Exception):
    """Paths that commands must not read or change keep moving."""


class MaskFinder:
    """Scans the roots. `close` must be called. Not thread-safe."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._hidden = HiddenFiles(roots)
        self._tree = DirectoryTree(roots, self._read, _role_of_root)
        self._suspects: list[tuple[Root, Suspect]] = []
        self._inaccessible_paths: list[HiddenPath] = []
        self._masks: Masks | None = None
        self._classification: Iterator[None] | None = None
        """The second half of a scan, after the listing; None before it."""
        self._protected_before: set[tuple[int, ...]] = set()
        """Device and inode of everything that the last accepted result protects."""
        self._unconfirmed: Masks | None = None
        """A result that lacks some of them. It is accepted if nothing has changed since."""
        self._deadline = 0.0

    @property
    def may_block(self) -> bool:
        """Whether a scan may block on another machine or program."""
        return self._tree.may_block

    @property
    def unwatched(self) -> tuple[str, ...]:
        """The reasons why directories are polled instead of watched; empty while all are watched."""
        return tuple(self._tree.unwatched)

    @property
    def directories(self) -> int:
        """Number of known directories."""
        return self._tree.directories

    def begin(self) -> None:
        """Begin a scan, which will see every change before this call. Blocks only to drain the event queue."""
        self._tree.begin()
        self._classification = self._unconfirmed = None
        self._deadline = time.monotonic() + MAX_SCAN_SECONDS

    def invalidate(self) -> None:
        """Make the next scan list everything again."""
        self._tree.invalidate()

    def advance(self, seconds: float) -> Masks | None:
        """Continue the scan for some seconds. Returns the result when it has ended, None before.

        A running command can move a directory while it is scanned. So when a path that was protected is missing, the
        scan is repeated until nothing has changed meanwhile.

        Raises:
            PathsKeepMoving: there were changes until the deadline.
        """
        until = time.monotonic() + seconds
        while True:
            if self._classification is None:
                if not self._tree.advance(until - time.monotonic()):
                    return None
                # Nothing moved during the second scan, so what is missing is gone.
                if self._unconfirmed is not None and self._tree.is_stable:
                    return self._accept(self._unconfirmed)
                self._classification = self._classify()
            for _ in self._classification:
                if time.monotonic() > until:
                    return None
            assert self._masks is not None
            # All that was protected before was met again, under whatever name.
            if not self._protected_before - self._identities_seen(self._masks):
                return self._accept(self._masks)
            if time.monotonic() > self._deadline:
                raise PathsKeepMoving
            self._tree.begin()
            self._classification, self._unconfirmed = None, self._masks

    def advance_listing(self, seconds: float = float("inf")) -> bool:
        """Continue the first half of the scan, which `control_files` needs. Returns True when that has ended."""
        return self._tree.advance(seconds)

    def scan(self) -> Masks:
        """Do a whole scan. Blocks: the first one takes 0.2 s for 6,000 directories."""
        self.begin()
        return self.finish()

    def finish(self) -> Masks:
        """Do the rest of a scan. Blocks."""
        while (masks := self.advance(1.0)) is None:
            pass
        return masks

    async def scan_in_slices(self, complete: Callable[[Masks], Masks], limiter: CapacityLimiter) -> Masks:
        """Do a whole scan while the event loop runs; return what `complete` makes of the result. It may block too.

        Raises:
            PathsKeepMoving: there were changes until the deadline.
        """
        is_slow = self.may_block
        self.begin()
        while not is_slow:
            began = time.monotonic()
            if (masks := self.advance(SLICE_SECONDS)) is not None:
                return complete(masks)
            is_slow = time.monotonic() - began > LONG_SECONDS
            await anyio.lowlevel.checkpoint()
        return await to_thread.run_sync(lambda: complete(self.finish()), limiter=limiter)

    async def list_in_slices(self, limiter: CapacityLimiter) -> None:
        """Do the first half of a scan, which `control_files` needs, while the event loop runs."""
        self.begin()
        if self.may_block:
            await to_thread.run_sync(self.advance_listing, limiter=limiter)
        while not self.advance_listing(SLICE_SECONDS):
            await anyio.lowlevel.checkpoint()

    def links(self) -> list[tuple[str, str]]:
        """Return the absolute paths of configurations that are links, with their targets."""
        listed = [
            (node, node.listing) for node in self._tree.relevant if node.listing is not None and node.root.writable
        ]
        return [(f"{node.root.path}/{path}", target) for node, listing in listed for path, target in listing.links]

    def control_files(self) -> ControlFiles:
        """Return the state of the files that git, editors or agents act on, as of the last scan. Costs a stat each."""
        states = control_files(self._tree.relevant)
        return states | dict(states_of_settings(self._roots, self._tree.relevant))

    def redirects(self) -> Redirects:
        """Return the entries of git directories by which git reads or writes elsewhere, as of the last scan."""
        return redirects_in(self._tree.relevant)

    def inaccessible_in_git(self) -> list[str]:
        """Return the directories that git uses and that the last scan could not list."""
        return inaccessible_directories(self._tree.relevant)

    def close(self) -> None:
        """Close all descriptors."""
        self._tree.close()

    def _identities_seen(self, masks: Masks) -> set[tuple[int, ...]]:
        """Return device and inode of the suspects of this scan and of the protected paths."""
        inaccessible = {one.identity[:2] for one in self._inaccessible_paths}
        protected = {(inode.device, inode.number) for _, inode in masks.state}
        return {*self._hidden.suspect_inodes, *inaccessible, *protected}

    def _accept(self, masks: Masks) -> Masks:
        self._protected_before = {*(one.identity[:2] for one in masks.hidden), *(one[:2] for _, one in masks.state)}
        return masks

    def _classify(self) -> Iterator[None]:
        """Classify the suspects that were listed, and store the result in `_masks`."""
        masks = self._masks_without_hidden() if self._tree.is_changed or self._masks is None else self._masks
        classified = yield from self._hidden.find(self._suspects)
        hidden = tuple(sorted({*classified, *self._inaccessible_paths}))
        self._masks = masks if masks.hidden == hidden else masks._replace(hidden=hidden)
        self._tree.is_changed = False

    def _masks_without_hidden(self) -> Masks:
        """Return the result without hidden paths, from the relevant listings."""
        nodes = list(self._tree.relevant)
        settings = fixed_settings(self._roots, nodes)
        pinned, read_only = sorted([*_protected(nodes, "pinned"), *settings.pinned]), _protected(nodes, "read_only")
        self._suspects = [(node.root, one) for node in nodes if node.listing for one in node.listing.suspects]
        self._inaccessible_paths = [
            _inaccessible(node)
            for node in nodes
            if node.inaccessible_reason and node.role == _WORK_TREE and node.path != "."
        ]
        return Masks(
            pinned=tuple(path for path, _ in pinned),
            read_only=tuple(path for path, _ in read_only),
            hidden=(),
            state=(*pinned, *read_only, *settings.read_only),
            is_complete=self._tree.directories < MAX_DIRECTORIES,
            credential_files=(*(path for path, _ in _protected(nodes, "credential_files")), *old_remotes(nodes)),
            settings=tuple(path for path, _ in settings.read_only),
        )

    def _read(self, node: DirectoryNode, entries: Iterator[os.DirEntry[str]]) -> ScannedDirectory:
        if node.role != _WORK_TREE:
            return self._git_listing(node, list(entries))
        listing, collector = ScannedDirectory(is_top=node.path == "."), ControlFileCollector(node.path)
        configurations: list[str] = []
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
                listing.children[entry.name] = SubdirectoryEntry(entry.inode(), _WORK_TREE)
                if self._roots.holds_own_state(RootedPath(node.root, path)):
                    _protect(listing.pinned, node.root, path)
            if is_configuration_name(entry.name):
                configurations.append(path)
        collector.store(listing)
        if listing.is_git:  # a bare repository, or a git directory separate from its work tree
            _protect(listing.credential_files, node.root, *configurations)
        listing.settings = setting_entries(node, names)
        self._record_mounted(node, listing)
        return listing

    def _record_mounted(self, node: DirectoryNode, listing: ScannedDirectory) -> None:
        """Record hidden files and directories that are mounted under another name."""
        known = self._roots.hidden_inodes
        for name in self._tree.mounted_in(node):
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


def _role_of_root(root: Root) -> str:
    return _GIT_DIRECTORY if root.only_git or os.path.basename(root.path) == ".git" else _WORK_TREE


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


def _protected(nodes: list[DirectoryNode], part: str) -> list[tuple[str, Inode]]:
    identities = {
        f"{node.root.path}/{one.path}": one.identity
        for node in nodes
        if node.listing is not None
        for one in getattr(node.listing, part)
    }
    return sorted(identities.items())


def _inaccessible(node: DirectoryNode) -> HiddenPath:
    path = f"{node.root.path}/{node.path}"
    return HiddenPath(path, node.inaccessible_reason, inode_of(path) or (0, 0, 0))
