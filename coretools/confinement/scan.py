"""The directories beneath the roots, each listed again only when it has changed.

A directory on a local file system has an inotify watch, so a scan costs what changed since the one before. Where there
can be none, on a file system that others may change or beyond the limit of watches, a directory is polled: one stat at
each scan, and a listing is believed only if the directory had not just changed when it was read. Knows nothing of what
the entries mean: its `read` does.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from coretools.confinement.hidden import Suspect, is_settled
from coretools.confinement.inotify import LOCAL, InotifyWatches, MountTable
from coretools.roots.hidden_inodes import Inode
from coretools.roots.root_set import Root, Roots

MAX_DIRECTORIES = 50_000
"""Looked into; what lies beyond is closed to commands whole, which is then said by name."""

TOO_MANY = "too many directories to search for secrets"
UNREADABLE = "a directory that can't be searched for secrets"
MOVED = "a directory that was moved while it was searched for secrets"

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SubdirectoryEntry(NamedTuple):
    """A directory in a listing that is to be listed too."""

    inode: int
    role: str
    """What it is to the one who reads it."""


class ProtectedPath(NamedTuple):
    """A file or directory that commands may not change."""

    path: str
    """Relative to the root."""
    identity: Inode
    """One that was replaced has to be mounted anew."""


@dataclass(slots=True)
class ScannedDirectory:
    """What was found in one directory."""

    children: dict[str, SubdirectoryEntry] = field(default_factory=dict)
    pinned: list[ProtectedPath] = field(default_factory=list)
    read_only: list[ProtectedPath] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)
    control: tuple[str, ...] = ()
    """Names of entries that git acts on."""
    is_git: bool = False
    """Whether it is a git directory."""
    links: list[tuple[str, str]] = field(default_factory=list)
    """Links in the place of a configuration that lead out of the root, and where they lead."""
    credential_files: list[ProtectedPath] = field(default_factory=list)
    """May have credentials for git in them."""

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to be said of it."""
        is_relevant = self.pinned or self.read_only or self.suspects or self.credential_files or self.links
        return not (is_relevant or self.control or self.is_git)


@dataclass(slots=True, eq=False)
class DirectoryNode:
    """A directory that is known."""

    root: Root
    path: str
    """Relative to the root, `.` for the root."""
    inode: int
    """As its parent's listing gives it, which for a mount point is the one beneath."""
    role: str
    kind: str
    """Its file system."""
    parent: "DirectoryNode | None" = None
    children: dict[str, "DirectoryNode"] = field(default_factory=dict)
    listing: ScannedDirectory | None = None
    """None before it was read, and while it can't be."""
    closed_reason: str = ""
    """Why it can't be looked into."""
    identity: tuple[int, int] = (0, 0)
    stamp: tuple[int, int, int] = (0, 0, 0)
    is_settled: bool = False
    watch: int | None = None
    is_gone: bool = False

    def join(self, name: str) -> str:
        """The path of an entry."""
        return name if self.path == "." else f"{self.path}/{name}"


class DirectoryTree:
    """All directories beneath the roots. `close` must be called; used by one thread at a time."""

    def __init__(
        self, roots: Roots, read: Callable[[DirectoryNode, Iterator[os.DirEntry[str]]], ScannedDirectory]
    ) -> None:
        self._roots = roots
        self._read = read
        self._mounts: MountTable | None = None
        with suppress(OSError):
            self._mounts = MountTable(tuple(root.path for root in roots))
        self._watches: InotifyWatches | None = None
        self._by_watch: dict[int, set[DirectoryNode]] = {}
        self._polled: dict[DirectoryNode, None] = {}
        self._pending: list[DirectoryNode] = []
        self._retry: list[DirectoryNode] = []
        """Were not at their paths: to be tried again, unless their parents' listings drop them."""
        self._is_begun = False
        self.relevant: dict[DirectoryNode, None] = {}
        """Directories of which something is to be said."""
        self.directories = 0
        self.is_changed = True
        """Whether anything was listed since the reader of this set it to False."""
        self.is_stable = False
        """Whether this scan found nothing changed since the one before: then the listings are those of one moment."""
        self.unwatched: dict[str, None] = {}
        """Why directories are polled, in words; empty while none is."""

    @property
    def may_block(self) -> bool:
        """Whether listing may wait for another machine or program."""
        return self._mounts is None or self._mounts.has_foreign

    def begin(self) -> None:
        """Begin a scan: what ended before this call will be seen in it."""
        # Mounts first: a change that is seen here may have brought one that the events of a watch don't tell.
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
        """Have the next scan list everything."""
        self._is_begun = False

    def advance(self, seconds: float) -> bool:
        """Go on with the scan for a time; whether it has ended. A long one can be cut into pieces."""
        until = time.monotonic() + seconds
        while self._pending:
            self._list(self._pending.pop())
            if time.monotonic() > until:
                return not self._pending
        return True

    def mounted_in(self, node: DirectoryNode) -> list[str]:
        """Entries on which something is mounted: its listing tells what lies beneath."""
        here = node.root.path if node.path == "." else f"{node.root.path}/{node.path}"
        return [] if self._mounts is None else self._mounts.names.get(here, [])

    def close(self) -> None:
        """Give every handle back."""
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
            if self._mounts is not None:  # what is mounted later would not be seen
                self._watches = InotifyWatches()
        except OSError as error:
            self.unwatched[f"no inotify instance: {error.strerror}"] = None
        self._by_watch, self._polled, self.relevant, self.directories = {}, {}, {}, 0
        self._retry, self.is_stable = [], False
        self._pending = [DirectoryNode(root, ".", 0, "", self._kind_of(root.path)) for root in self._roots]
        self._is_begun = self.is_changed = True

    def _kind_of(self, path: str) -> str:
        return "" if self._mounts is None else self._mounts.kind_of(path)

    def _list(self, node: DirectoryNode) -> None:
        if node.is_gone or (node in self._polled and _is_unchanged(node)):
            return
        self.is_changed = True
        self.is_stable = self.is_stable and node.listing is None  # what can't be listed is tried each time
        if node.listing is None and self.directories >= MAX_DIRECTORIES:
            self._close(node, TOO_MANY)
            return
        try:
            handle = os.open(node.path, _OPEN, dir_fd=node.root.fd)
        except (FileNotFoundError, NotADirectoryError):
            # Gone meanwhile, and a parent has changed; or what lies above it is moved at this moment, and moved back.
            self._retry.append(node)
            return
        except OSError:  # commands may open it again, so it is closed to them whole
            self._close(node, UNREADABLE)
            return
        try:
            self._list_open(node, handle)
        except OSError:
            self._close(node, UNREADABLE)
        finally:
            os.close(handle)

    def _list_open(self, node: DirectoryNode, handle: int) -> None:
        self._watch(node, handle)  # before it is read, so that no change is missed
        began = time.time_ns()
        status = os.fstat(handle)
        if node.parent is not None and _identity(os.stat("..", dir_fd=handle)) != node.parent.identity:
            self.is_stable = False  # another one of the same path: what lies above was exchanged
            self._close(node, MOVED)
            return
        with os.scandir(handle) as entries:
            listing = self._read(node, entries)
        self.is_stable = False
        self.directories += node.listing is None
        node.identity = _identity(status)
        node.stamp = _stamp(status)
        node.is_settled = is_settled(max(status.st_mtime_ns, status.st_ctime_ns), began)
        node.listing, node.closed_reason = listing, ""
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
            self._drop(known)

    def _watch(self, node: DirectoryNode, handle: int) -> None:
        """Have a change of the directory told, or else poll it."""
        why = f"{node.kind or 'an unknown file system'} may change without this system's notice"
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
        """End the watch of a directory, unless it is known by another path too: one inode has one watch."""
        if node.watch is None:
            return
        owners = self._by_watch.get(node.watch, set())
        owners.discard(node)
        if not owners and self._by_watch.pop(node.watch, None) is not None and self._watches is not None:
            self._watches.remove(node.watch)
        node.watch = None

    def _close(self, node: DirectoryNode, reason: str) -> None:
        """Nothing is known of what lies in it: it is closed to commands, and tried again at each scan."""
        for child in node.children.values():
            self._drop(child)
        self._release(node)
        self.directories -= node.listing is not None
        node.children, node.listing, node.closed_reason = {}, None, reason
        self._polled[node] = None
        self._set_relevant(node, is_plain=False)

    def _set_relevant(self, node: DirectoryNode, *, is_plain: bool) -> None:
        if is_plain:
            self.relevant.pop(node, None)
        else:
            self.relevant[node] = None

    def _drop(self, node: DirectoryNode) -> None:
        """Forget a directory and all beneath it."""
        dropped = [node]
        while dropped:
            one = dropped.pop()
            dropped += one.children.values()
            self._release(one)
            self._polled.pop(one, None)
            self.relevant.pop(one, None)
            self.directories -= one.listing is not None and not one.is_gone
            one.is_gone = True


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _is_unchanged(node: DirectoryNode) -> bool:
    """Whether the listing of a polled directory still holds."""
    if node.listing is None or not node.is_settled:
        return False
    try:
        return node.stamp == _stamp(os.stat(node.path, dir_fd=node.root.fd, follow_symlinks=False))
    except OSError:
        return False


def _is_same(node: DirectoryNode, child: SubdirectoryEntry) -> bool:
    """Whether a known directory is the one in the listing now."""
    if (node.inode, node.role) != child:
        return False
    if node.listing is None or node.identity[1] == child.inode:
        return True
    # A mount point, or one that was exchanged between the listing of its parent and its own.
    try:
        found = os.stat(node.path, dir_fd=node.root.fd, follow_symlinks=False)
    except OSError:
        return False
    return node.identity == _identity(found)
