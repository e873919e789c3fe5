"""Mounts over files that commands must not read or change, and their restoration when they are lost.

When a process outside the namespaces replaces a file by a rename, the kernel detaches the mounts on it in every mount
namespace. A new mount is possible only when the new file exists. So process 1 of the namespaces watches the directories
of all overmounts and mounts a lost one again at once. Commands cannot remove or replace a mount point, so an overmount
that is missing in the same directory was lost to a process outside. Only the fork server uses this module; it imports
the standard library alone.
"""

import errno
import os
import resource
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from coretools.confinement import syscalls
from coretools.confinement.inotify import InotifyWatches
from coretools.confinement.mount_points import open_existing
from coretools.mounts import mount_id

# Mounts by handle: cloned, made read-only, attached (open_tree(2), mount_setattr(2), move_mount(2)). Linux only.


ATTR_READ_ONLY, ATTR_NO_SUID, ATTR_NO_DEVICES, ATTR_NO_EXEC = 1, 2, 4, 8
"""MOUNT_ATTR_*; mount(2) has the same values."""

HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

_EMPTY_PATH, _ALL_BENEATH, _CLONE, _CLOSE_ON_EXEC = 0x1000, 0x8000, 1, 0o2000000
_FROM_HANDLE, _ON_HANDLE = 4, 0x40
"""MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH."""


def clone(handle: int) -> int:
    """Return a detached copy of the mount at a descriptor."""
    # Recursive: what lies beneath a mount of the machine must stay covered (MNT_LOCKED).
    return syscalls.syscall("open_tree", handle, b"", _EMPTY_PATH | _ALL_BENEATH | _CLONE | _CLOSE_ON_EXEC)


def clone_at(path: str, directory: int | None = None) -> int:
    """Return a detached copy of the mount at a path."""
    handle = os.open(path, HANDLE, dir_fd=directory)
    try:
        return clone(handle)
    finally:
        os.close(handle)


def restrict_mount(tree: int, *, writable: bool) -> int:
    """Make a mount nosuid and nodev, and read-only unless `writable`; return it."""
    flags = ATTR_NO_SUID | ATTR_NO_DEVICES | (0 if writable else ATTR_READ_ONLY)
    syscalls.syscall("mount_setattr", tree, b"", _EMPTY_PATH | _ALL_BENEATH, struct.pack("4Q", flags, 0, 0, 0), 32)
    return tree


def make_read_only_alone(tree: int) -> None:
    """Make a mount read-only, without the mounts in it."""
    syscalls.syscall("mount_setattr", tree, b"", _EMPTY_PATH, struct.pack("4Q", ATTR_READ_ONLY, 0, 0, 0), 32)


def attach(tree: int, place: int) -> None:
    """Attach a detached mount to a mount point. The caller keeps its descriptor."""
    syscalls.syscall("move_mount", tree, b"", place, b"", _FROM_HANDLE | _ON_HANDLE)


PINNED, READ_ONLY, MASKED = "pinned", "read-only", "masked"
"""Kinds of overmounts: the file cannot be moved; nor changed; nor read."""

POLL_SECONDS = 0.2
"""Interval between two checks of all overmounts where directories cannot be watched."""

_NEW_ENTRY_EVENTS = 0x80 | 0x100
"""IN_MOVED_TO, IN_CREATE: the events of a new entry."""
_GONE_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ELOOP)
"""Errors for a name or directory that is gone. EINVAL: its mount is no longer in this mount namespace."""


class Overmount(NamedTuple):
    """A mount over one file or directory."""

    path: str
    kind: str
    """One of the three kinds, or the name of a link among the placeholders."""
    identity: tuple[int, int] | None = None
    """Expected device and inode; None accepts any."""


class Placeholders:
    """The directory with the files, directories and links that are mounted over what must not be read."""

    def __init__(self, base: str) -> None:
        """Create it in the new root, which may become read-only afterwards."""
        os.mkdir(f"{base}/.hollow", 0o755)
        self._seen = os.open(f"{base}/.hollow", HANDLE)
        self._written = clone(self._seen)
        """A separate mount, which stays writable. Overmounts must come from the other one."""
        os.mkdir("directory", 0o000, dir_fd=self._written)
        os.close(self._made("file"))

    def link(self, name: str, target: str) -> None:
        """Create a symbolic link."""
        os.symlink(target, name, dir_fd=self._written)

    def mount(self, name: str) -> int:
        """Return a detached mount of a placeholder."""
        return clone_at(name, self._seen)

    def parent(self, name: str) -> int:
        """Return a detached mount of a new directory, in which mount points can be created."""
        os.mkdir(name, 0o755, dir_fd=self._written)
        return self.mount(name)

    def placeholder_for(self, status: os.stat_result) -> str:
        """Return the name of an unreadable placeholder: a directory, or a file of the same size and times.

        By size and times git recognises a file as unchanged, and leaves it alone
        (`command_variables.GIT_SETTINGS_FOR_MASKED_FILES`).
        """
        if stat.S_ISDIR(status.st_mode):
            return "directory"
        if not status.st_size:
            return "file"
        name = f"{status.st_dev}-{status.st_ino}"
        handle = self._made(name, status.st_mode & stat.S_IXUSR)
        try:
            with suppress(OSError):  # beyond the file size limit of this process: git then sees it as changed
                os.ftruncate(handle, status.st_size)
            os.utime(handle, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(handle)
        return name

    def _made(self, name: str, mode: int = 0) -> int:
        with suppress(FileNotFoundError):  # of an earlier overmount, which may still be mounted
            os.unlink(name, dir_fd=self._written)
        return os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=self._written)


class _Directory(NamedTuple):
    """A directory that contains overmounts."""

    handle: int
    mount: int
    """Id of the mount that contains it."""
    watch: int


class Overmounts:
    """The overmounts of one mount namespace. Nested ones come after those that contain them."""

    def __init__(self, overmounts: Sequence[Overmount], placeholders: Placeholders) -> None:
        self._overmounts = overmounts
        self._placeholders = placeholders
        self._is_watched = False
        self._watches: InotifyWatches | None = None
        self._directories: dict[tuple[int, int, int], _Directory] = {}
        """By device, inode and mount id."""
        self._parents: dict[Overmount, _Directory] = {}
        self._by_event: dict[tuple[int, bytes], dict[Overmount, None]] = {}
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.poll_seconds: float | None = None
        """Seconds after which `remount_lost` is due even without an event; None where every directory is watched."""

    def start_watching(self, *, is_polled: bool) -> None:
        """Watch what `mount_all` mounts. `is_polled`: some changes cause no event."""
        self._is_watched = True
        self.poll_seconds = POLL_SECONDS if is_polled else None
        soft, hard = self._limit
        directories = {os.path.dirname(overmount.path) for overmount in self._overmounts}
        # A descriptor is kept for each watched directory.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, soft + len(directories)), hard))
        try:
            self._watches = InotifyWatches()
        except OSError:
            self.poll_seconds = POLL_SECONDS

    def mount_all(self, trees: Mapping[str, int]) -> None:
        """Mount all of them in the trees (descriptors by path).

        Raises:
            OSError: ESTALE when a path has another file or none.
        """
        for overmount in self._overmounts:
            with open_existing(overmount.path, trees, overmount.identity) as handles:
                if handles is not None:
                    if self._is_watched:
                        self._watch_parent(overmount, handles[0])
                    try:
                        self._mount(overmount, handles[1])
                    except FileNotFoundError as error:  # replaced since it was opened
                        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), overmount.path) from error

    def close_in_child(self) -> None:
        """Release, in a child, what only the watching process needs."""
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)
        for directory in self._directories.values():
            os.close(directory.handle)
        if self._watches is not None:
            self._watches.close()

    def fileno(self) -> int:
        """Return a descriptor that is readable when `remount_lost` is due; -1 where there are no events."""
        return -1 if self._watches is None else self._watches.fileno()

    def remount_lost(self) -> Iterator[tuple[str, OSError | None]]:
        """Mount again those that were lost since the last call. Yields each path, with the error if that failed."""
        changed = None if self._watches is None else self._watches.names()
        due: Iterable[Overmount] = self._overmounts
        if changed is not None and self.poll_seconds is None:
            due = dict.fromkeys(overmount for key in changed for overmount in self._by_event.get(key, ()))
        for overmount in due:
            yield from self._remount(overmount)

    def _remount(self, overmount: Overmount) -> Iterator[tuple[str, OSError | None]]:
        try:
            is_remounted = self._restore(overmount)
        except OSError as error:
            if error.errno not in _GONE_ERRORS:
                yield overmount.path, error
            return
        if is_remounted:
            yield overmount.path, None
            yield from self._remount_beneath(overmount)

    def _restore(self, overmount: Overmount) -> bool:
        """Mount an overmount again if it was lost; return whether it was."""
        directory = self._parents.get(overmount)
        if directory is None:
            return False
        place = os.open(os.path.basename(overmount.path), HANDLE, dir_fd=directory.handle)
        try:
            # In another mount than its directory it is still covered. What a link leads to gets no overmount.
            is_link = stat.S_ISLNK(os.fstat(place).st_mode)
            if mount_id(place) != directory.mount or (is_link and overmount.kind != PINNED):
                return False
            self._mount(overmount, place)
        finally:
            os.close(place)
        return True

    def _remount_beneath(self, top: Overmount) -> Iterator[tuple[str, OSError | None]]:
        """Mount again what lies in a directory that was just remounted, since it is another directory now."""
        within = [overmount for overmount in self._overmounts if overmount.path.startswith(f"{top.path}/")]
        for overmount in within:
            self._parents.pop(overmount, None)
            above = os.path.dirname(overmount.path)
            with (
                suppress(OSError),
                open_existing(above, {os.path.dirname(top.path): self._parents[top].handle}, None) as handles,
            ):
                if handles is not None:
                    self._watch_parent(overmount, handles[1])
            yield from self._remount(overmount)
        used = set(self._parents.values())
        for key, directory in list(self._directories.items()) if within else ():
            if directory not in used:
                os.close(self._directories.pop(key).handle)

    def _watch_parent(self, overmount: Overmount, directory: int) -> None:
        """Start watching the directory that contains an overmount."""
        try:
            status, mount = os.fstat(directory), mount_id(directory)
            key = status.st_dev, status.st_ino, mount
            if key not in self._directories:
                number = -1 if self._watches is None else self._watches.add(directory, events=_NEW_ENTRY_EVENTS)
                self._directories[key] = _Directory(os.dup(directory), mount, number)
        except OSError:  # too many watches or descriptors
            self.poll_seconds = POLL_SECONDS
            return
        self._parents[overmount] = self._directories[key]
        name = os.fsencode(os.path.basename(overmount.path))
        self._by_event.setdefault((self._parents[overmount].watch, name), {})[overmount] = None

    def _mount(self, overmount: Overmount, place: int) -> None:
        if overmount.kind == PINNED:
            tree = clone(place)
        elif overmount.kind == READ_ONLY:
            tree = restrict_mount(clone(place), writable=False)
        else:
            tree = self._placeholders.mount(
                self._placeholders.placeholder_for(os.fstat(place)) if overmount.kind == MASKED else overmount.kind
            )
        try:
            attach(tree, place)
        finally:
            os.close(tree)
