"""Track the directories beneath the roots and list each again only when it has changed.

A directory on a local file system has an inotify watch, so the cost of a scan depends on the changes since the last
one. Without a watch (on a file system that others may change, or beyond the limit of watches) a directory is polled:
one stat per scan, and a listing is trusted only if the directory had not just changed when it was read. This module
does not interpret entries; the `read` callback does.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from coretools.confinement.inotify import LOCAL, InotifyWatches, MountTable
from coretools.confinement.protected_paths import DirectoryNode, ScannedDirectory, SubdirectoryEntry
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.file_version import version_of
from coretools.roots.root import Root, identity_of
from coretools.roots.root_set import Roots

MAX_DIRECTORIES = 50_000
"""Most directories that are scanned. Commands cannot enter those beyond, and are told their names."""

TOO_MANY = "too many directories to search for secrets"
UNREADABLE = "a directory that can't be searched for secrets"
MOVED = "a directory that was moved while it was searched for secrets"


class DirectoryTree:
    """All directories beneath the roots. `close` must be called. Not thread-safe."""

    def __init__(
        self,
        roots: Roots,
        read: Callable[[DirectoryNode, Iterator[os.DirEntry[str]], list[str]], ScannedDirectory],
        role_of: Callable[[Root], str],
    ) -> None:
        """`read` lists a directory, given the names of its mount points; `role_of` is what it takes a root for."""
        self._roots = roots
        self._role_of = role_of
        self._read = read
        self._mounts: MountTable | None = None
        with suppress(OSError):
            self._mounts = MountTable(tuple(root.path for root in roots))
        self._watches: InotifyWatches | None = None
        self._by_watch: dict[int, set[DirectoryNode]] = {}
        self._polled: dict[DirectoryNode, None] = {}
        self._pending: list[DirectoryNode] = []
        self._retry: list[DirectoryNode] = []
        """Directories that were not at their paths, to try again unless the listings of their parents drop them."""
        self._is_begun = False
        self.relevant: dict[DirectoryNode, None] = {}
        """Directories that contain something that matters."""
        self.directories = 0
        self.is_changed = True
        """Whether anything was listed since the caller reset this to False."""
        self.is_stable = False
        """Whether nothing changed between the last scan and this one: then all listings are of one moment."""
        self.unwatched: dict[str, None] = {}
        """The reasons why directories are polled; empty while none is."""

    @property
    def may_block(self) -> bool:
        """Whether listing may block on another machine or program."""
        return self._mounts is None or self._mounts.has_foreign

    def begin(self) -> None:
        """Begin a scan, which will see every change that ended before this call."""
        # Mounts first: inotify reports neither a mount nor the entries that it brings.
        is_mounted = self._mounts is not None and self._mounts.changed()
        changed = self._watches.changed() if self._watches is not None else set()
        if changed is None or is_mounted or not self._is_begun:
            self._restart()
            return
        self.is_stable = not changed
        for watch in changed:
            for node in self._by_watch.pop(watch, ()):
                node.watch = None
                self._pending.append(node)
        self._pending += [*self._retry, *self._polled]
        self._retry = []

    def invalidate(self) -> None:
        """Make the next scan list everything."""
        self._is_begun = False

    def advance(self, seconds: float) -> bool:
        """Continue the scan for some seconds; return whether it has ended."""
        until = time.monotonic() + seconds
        while self._pending:
            self._list(self._pending.pop())
            if time.monotonic() > until:
                return not self._pending
        return True

    def close(self) -> None:
        """Close all descriptors."""
        for opened in (self._watches, self._mounts):
            if opened is not None:
                opened.close()
        self._watches = self._mounts = None

    def _restart(self) -> None:
        if self._watches is not None:
            self._watches.close()
        self._watches = None
        self.unwatched = {}
        try:
            if self._mounts is not None:  # without it, later mounts would go unnoticed
                self._watches = InotifyWatches()
        except OSError as error:
            self.unwatched[f"no inotify instance: {error.strerror}"] = None
        self._by_watch, self._polled, self.relevant, self.directories = {}, {}, {}, 0
        self._retry, self.is_stable = [], False
        self._pending = [
            DirectoryNode(root, ".", 0, self._role_of(root), self._kind_of(root.path)) for root in self._roots
        ]
        self._is_begun = self.is_changed = True

    def _mounted_in(self, node: DirectoryNode) -> list[str]:
        """Return the names of entries that are mount points."""
        here = node.root.path if node.path == "." else f"{node.root.path}/{node.path}"
        return [] if self._mounts is None else self._mounts.names.get(here, [])

    def _kind_of(self, path: str) -> str:
        return "" if self._mounts is None else self._mounts.kind_of(path)

    def _list(self, node: DirectoryNode) -> None:
        if node.is_gone or (node in self._polled and _is_unchanged(node)):
            return
        self.is_changed = True
        self.is_stable = self.is_stable and node.listing is None  # an unreadable directory is tried at each scan
        if node.listing is None and self.directories >= MAX_DIRECTORIES:
            self._mark_inaccessible(node, TOO_MANY)
            return
        try:
            descriptor = os.open(node.path, DIRECTORY, dir_fd=node.root.fd)
        except (FileNotFoundError, NotADirectoryError):
            # It is gone and a parent has changed, or a parent is being moved away and back at this moment.
            self._retry.append(node)
            return
        except OSError:  # commands may make it readable again, so they may not enter it
            self._mark_inaccessible(node, UNREADABLE)
            return
        try:
            self._list_open(node, descriptor)
        except OSError:
            self._mark_inaccessible(node, UNREADABLE)
        finally:
            os.close(descriptor)

    def _list_open(self, node: DirectoryNode, handle: int) -> None:
        self._watch(node, handle)  # before it is read, so that no change is missed
        began = time.time_ns()
        status = os.fstat(handle)
        if node.parent is not None and identity_of(os.stat("..", dir_fd=handle)) != node.parent.identity:
            self.is_stable = False  # another directory at the same path: a parent was exchanged
            self._mark_inaccessible(node, MOVED)
            return
        with os.scandir(handle) as entries:
            listing = self._read(node, entries, self._mounted_in(node))
        self.is_stable = False
        self.directories += node.listing is None
        node.identity = identity_of(status)
        node.version = version_of(status)
        node.is_settled = node.version.is_settled(began)
        node.listing, node.inaccessible_reason = listing, ""
        self._update_children(node, listing)
        self._set_relevant(node, is_plain=listing.is_plain)

    def _update_children(self, node: DirectoryNode, listing: ScannedDirectory) -> None:
        old, node.children = node.children, {}
        for name, child in listing.children.items():
            known = old.get(name)
            if known is not None and not known.is_gone and _is_same(known, child):
                del old[name]
                node.children[name] = known
                if known.listing is None:
                    self._pending.append(known)
                continue
            path = node.join(name)
            kind = node.kind if self._mounts is None else self._mounts.kinds.get(f"{node.root.path}/{path}", node.kind)
            node.children[name] = DirectoryNode(node.root, path, child.inode, child.role, kind, node)
            self._pending.append(node.children[name])
        for known in old.values():
            self._forget(known)

    def _watch(self, node: DirectoryNode, handle: int) -> None:
        """Watch a directory for changes, or poll it if that is impossible."""
        why = f"{node.kind or 'an unknown file system'} may change without a notification"
        if node.kind in LOCAL and self._watches is not None:
            try:
                watch = self._watches.add(handle) if len(self._by_watch) < self._watches.most else None
                why = "half of the inotify watches of the user are in use"
            except OSError as error:
                watch, why = None, f"no inotify watch: {error.strerror}"
            if watch is not None:
                if watch != node.watch:
                    self._release(node)
                node.watch = watch
                self._by_watch.setdefault(watch, set()).add(node)
                self._polled.pop(node, None)
                return
        if node.kind not in LOCAL or self._watches is not None:
            self.unwatched[why] = None
        self._release(node)
        self._polled[node] = None

    def _release(self, node: DirectoryNode) -> None:
        """Remove the watch of a directory unless another path shares it: an inode has one watch."""
        if node.watch is None:
            return
        owners = self._by_watch.get(node.watch, set())
        owners.discard(node)
        if not owners and self._by_watch.pop(node.watch, None) is not None and self._watches is not None:
            self._watches.remove(node.watch)
        node.watch = None

    def _mark_inaccessible(self, node: DirectoryNode, reason: str) -> None:
        """Mark a directory as unreadable: commands may not enter it, and each scan tries it again."""
        for child in node.children.values():
            self._forget(child)
        self._release(node)
        self.directories -= node.listing is not None
        node.children, node.listing, node.inaccessible_reason = {}, None, reason
        self._polled[node] = None
        self._set_relevant(node, is_plain=False)

    def _set_relevant(self, node: DirectoryNode, *, is_plain: bool) -> None:
        if is_plain:
            self.relevant.pop(node, None)
        else:
            self.relevant[node] = None

    def _forget(self, node: DirectoryNode) -> None:
        """Forget a directory and everything beneath it."""
        dropped = [node]
        while dropped:
            one = dropped.pop()
            dropped += one.children.values()
            self._release(one)
            self._polled.pop(one, None)
            self.relevant.pop(one, None)
            self.directories -= one.listing is not None and not one.is_gone
            one.is_gone = True


def _is_unchanged(node: DirectoryNode) -> bool:
    """Whether the listing of a polled directory is still valid."""
    if node.listing is None or not node.is_settled:
        return False
    try:
        return node.version == version_of(os.stat(node.path, dir_fd=node.root.fd, follow_symlinks=False))
    except OSError:
        return False


def _is_same(node: DirectoryNode, child: SubdirectoryEntry) -> bool:
    """Whether a known directory is still the one in the listing."""
    if (node.inode, node.role) != child:
        return False
    if node.listing is None or node.identity[1] == child.inode:
        return True
    # A mount point, or one that was exchanged between the listing of its parent and its own.
    try:
        status = os.stat(node.path, dir_fd=node.root.fd, follow_symlinks=False)
    except OSError:
        return False
    return node.identity == identity_of(status)
