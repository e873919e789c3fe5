"""Find the paths beneath the roots that a command must not read or must not change, before every command.

In the namespaces of a command hidden paths are masked; control files of repositories and settings of editors and agents
are read-only. Both work by path, so the paths have to be found. `directory_scan` knows which directories
changed, `entry_reader` what their entries mean, `hidden` which files are secrets. The rules for tools are in
`roots.hidden_files`.
"""

import time
from collections.abc import Callable, Iterator

import anyio.lowlevel
from anyio import CapacityLimiter, to_thread

from coretools.confinement.control_files import control_files, old_remotes
from coretools.confinement.directory_scan import MAX_DIRECTORIES, DirectoryTree
from coretools.confinement.entry_reader import WORK_TREE, EntryReader, role_of_root
from coretools.confinement.git_redirects import Redirects, inaccessible_directories, redirects_in
from coretools.confinement.hidden import HiddenFiles
from coretools.confinement.protected_paths import (
    ControlFiles,
    DirectoryNode,
    HiddenPath,
    Masks,
    Suspect,
)
from coretools.confinement.settings_paths import fixed_settings, states_of_settings
from coretools.roots.hidden_inodes import Inode, inode_of
from coretools.roots.root import Root
from coretools.roots.root_set import Roots

MAX_SCAN_SECONDS = 2.0
"""How long a scan is repeated while paths that commands must not read or change keep moving."""

SLICE_SECONDS = 0.005
"""Part of a scan between which the event loop runs. A worker thread would need the interpreter lock after each of
thousands of system calls; beside a busy event loop that takes seconds."""

LONG_SECONDS = 0.1
"""After a slice that took this long the scan ends in a thread: one suspect file, or a large git index, can take half a
second."""


class PathsKeepMoving(Exception):
    """Paths that commands must not read or change keep moving."""


class MaskFinder:
    """Scans the roots. `close` must be called. Not thread-safe."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._hidden = HiddenFiles(roots)
        self._tree = DirectoryTree(roots, EntryReader(roots, self._hidden).read, role_of_root)
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
            if node.inaccessible_reason and node.role == WORK_TREE and node.path != "."
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
