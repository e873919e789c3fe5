"""What is mounted over the files of a view that commands must not read or change: laid, and laid again.

A file that a process outside the view replaces by a rename loses its mount in every view: the kernel detaches it. No
mount can be laid before the new file is there. So process 1 of the view watches the directories of all covers and lays
a lost one again at once. Commands can't remove or replace what is covered, so a name that has lost its cover in the
same directory lost it to somebody outside. Used by the spawner alone; standard library only.
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

# Mounts by handle: cloned, made read-only, attached (open_tree(2), mount_setattr(2), move_mount(2)). Linux only.


ATTR_READ_ONLY, ATTR_NO_SUID, ATTR_NO_DEVICES, ATTR_NO_EXEC = 1, 2, 4, 8
"""The same bits in mount(2) and as MOUNT_ATTR_*."""

HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

_EMPTY_PATH, _ALL_BENEATH, _CLONE, _CLOSE_ON_EXEC = 0x1000, 0x8000, 1, 0o2000000
_FROM_HANDLE, _ON_HANDLE = 4, 0x40
"""MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH."""


def clone(handle: int) -> int:
    """A mount of what the handle is of, not yet anywhere."""
    # With everything beneath: what lies under a mount of the machine must not come to light (MNT_LOCKED).
    return syscalls.syscall("open_tree", handle, b"", _EMPTY_PATH | _ALL_BENEATH | _CLONE | _CLOSE_ON_EXEC)


def clone_at(path: str, directory: int | None = None) -> int:
    """The same of what stands at a path."""
    handle = os.open(path, HANDLE, dir_fd=directory)
    try:
        return clone(handle)
    finally:
        os.close(handle)


def restrict_mount(tree: int, *, writable: bool) -> int:
    """The mount itself, without programs that change the user, without devices, and writable or not."""
    flags = ATTR_NO_SUID | ATTR_NO_DEVICES | (0 if writable else ATTR_READ_ONLY)
    syscalls.syscall("mount_setattr", tree, b"", _EMPTY_PATH | _ALL_BENEATH, struct.pack("4Q", flags, 0, 0, 0), 32)
    return tree


def make_read_only(tree: int) -> int:
    """The mount itself, read-only."""
    return restrict_mount(tree, writable=False)


def attach(tree: int, place: int) -> None:
    """Mount a tree, which stays the caller's handle, on a handle."""
    syscalls.syscall("move_mount", tree, b"", place, b"", _FROM_HANDLE | _ON_HANDLE)


def mount_id(handle: int) -> int:
    """Number of the mount that a handle lies in (proc_pid_fdinfo(5))."""
    with open(f"/proc/self/fdinfo/{handle}", "rb", buffering=0) as file:
        for line in file.read(4096).splitlines():
            if line.startswith(b"mnt_id:"):
                return int(line.split()[1])
    raise OSError("no number of a mount")


PINNED, READ_ONLY, MASKED = "pinned", "fixed", "masked"
"""Kinds of covers: stays where it is; can't be changed either; can't be read either."""

POLL_SECONDS = 0.2
"""Between two looks at all covers where directories can't be watched."""

_NEW_ENTRY_EVENTS = 0x80 | 0x100
"""IN_MOVED_TO, IN_CREATE: how something new comes to stand at a name."""
_GONE_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ELOOP)
"""Errors for a name, or a directory, that is not there any more; EINVAL: its mount is not part of the view any more."""


class Overmount(NamedTuple):
    """One of them."""

    path: str
    kind: str
    """One of the three; otherwise the name of a link in the directory of hollows."""
    identity: tuple[int, int] | None = None
    """Device and inode of what stands there at first; None when whatever does is meant."""


class Placeholders:
    """The directory with what is mounted over files that must not be read: empty files, closed directories, links."""

    def __init__(self, base: str) -> None:
        """Make it in the root of the view, which may become read-only afterwards."""
        os.mkdir(f"{base}/.hollow", 0o755)
        self._seen = os.open(f"{base}/.hollow", HANDLE)
        self._written = clone(self._seen)
        """A mount of its own, which stays writable; what is mounted has to come from the other one."""
        os.mkdir("directory", 0o000, dir_fd=self._written)
        os.close(self._made("file"))

    def link(self, name: str, target: str) -> None:
        """Make a link."""
        os.symlink(target, name, dir_fd=self._written)

    def mount(self, name: str) -> int:
        """A mount of one of them, not yet anywhere."""
        return clone_at(name, self._seen)

    def like(self, found: os.stat_result) -> str:
        """Name of what is laid over this: a closed directory, or a closed file of the same size and times.

        By these git tells a file that was not changed (`plan.GIT_SETTINGS_FOR_MASKED_FILES`), and so leaves it alone.
        """
        if stat.S_ISDIR(found.st_mode):
            return "directory"
        if not found.st_size:
            return "file"
        name = f"{found.st_dev}-{found.st_ino}"
        handle = self._made(name, found.st_mode & stat.S_IXUSR)
        try:
            with suppress(OSError):  # larger than this process may make files: then it shows as changed
                os.ftruncate(handle, found.st_size)
            os.utime(handle, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(handle)
        return name

    def _made(self, name: str, mode: int = 0) -> int:
        with suppress(FileNotFoundError):  # of an earlier cover, which may be mounted still
            os.unlink(name, dir_fd=self._written)
        return os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=self._written)


class _Directory(NamedTuple):
    """A directory with covers in it."""

    handle: int
    mount: int
    """Number of the mount that it lies in."""
    watch: int


class Overmounts:
    """The covers of one view. Those that lie in others come after them."""

    def __init__(self, covers: Sequence[Overmount], hollows: Placeholders) -> None:
        self._covers = covers
        self._hollows = hollows
        self._is_watched = False
        self._watches: InotifyWatches | None = None
        self._directories: dict[tuple[int, int, int], _Directory] = {}
        """By device, inode and mount."""
        self._at: dict[Overmount, _Directory] = {}
        self._named: dict[tuple[int, bytes], dict[Overmount, None]] = {}
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.pause: float | None = None
        """Seconds after which `lay_again` is due without an event; None where every directory is watched."""

    def watch(self, *, is_polled: bool) -> None:
        """Have what `lay` lays watched. `is_polled`: there are changes that no event tells of."""
        self._is_watched = True
        self.pause = POLL_SECONDS if is_polled else None
        soft, hard = self._limit
        directories = {os.path.dirname(cover.path) for cover in self._covers}
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, soft + len(directories)), hard))
        try:
            self._watches = InotifyWatches()
        except OSError:
            self.pause = POLL_SECONDS

    def lay(self, trees: Mapping[str, int]) -> None:
        """Lay them in the trees, handles by path.

        Raises:
            OSError: ESTALE when something else stands at a path, or nothing.
        """
        for cover in self._covers:
            with open_existing(cover.path, trees, cover.identity) as found:
                if found is not None:
                    if self._is_watched:
                        self._enter(cover, found[0])
                    self._mount(cover, found[1])

    def leave(self) -> None:
        """In a child: give up what only the process that watches needs."""
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)
        for directory in self._directories.values():
            os.close(directory.handle)
        if self._watches is not None:
            self._watches.close()

    def fileno(self) -> int:
        """Can be read when `lay_again` is due; -1 where there are no events."""
        return -1 if self._watches is None else self._watches.fileno()

    def lay_again(self) -> Iterator[tuple[str, OSError | None]]:
        """Lay those that were lost since the last time: their paths, with what went wrong."""
        changed = None if self._watches is None else self._watches.names()
        due: Iterable[Overmount] = self._covers
        if changed is not None and self.pause is None:
            due = dict.fromkeys(cover for key in changed for cover in self._named.get(key, ()))
        for cover in due:
            yield from self._laid_again(cover)

    def _laid_again(self, cover: Overmount) -> Iterator[tuple[str, OSError | None]]:
        try:
            is_laid = self._restore(cover)
        except OSError as error:
            if error.errno not in _GONE_ERRORS:
                yield cover.path, error
            return
        if is_laid:
            yield cover.path, None
            yield from self._renew(cover)

    def _restore(self, cover: Overmount) -> bool:
        """Lay a cover if it was lost; whether it was."""
        directory = self._at.get(cover)
        if directory is None:
            return False
        place = os.open(os.path.basename(cover.path), HANDLE, dir_fd=directory.handle)
        try:
            if mount_id(place) != directory.mount or stat.S_ISLNK(os.fstat(place).st_mode):
                return False
            self._mount(cover, place)
        finally:
            os.close(place)
        return True

    def _renew(self, top: Overmount) -> Iterator[tuple[str, OSError | None]]:
        """After a directory was covered again: it is another one, and so is all that lies in it."""
        within = [cover for cover in self._covers if cover.path.startswith(f"{top.path}/")]
        for cover in within:
            self._at.pop(cover, None)
            above = os.path.dirname(cover.path)
            with (
                suppress(OSError),
                open_existing(above, {os.path.dirname(top.path): self._at[top].handle}, None) as found,
            ):
                if found is not None:
                    self._enter(cover, found[1])
            yield from self._laid_again(cover)
        used = set(self._at.values())
        for key, directory in list(self._directories.items()) if within else ():
            if directory not in used:
                os.close(self._directories.pop(key).handle)

    def _enter(self, cover: Overmount, directory: int) -> None:
        """Watch the directory that a cover lies in from now on."""
        try:
            status, mount = os.fstat(directory), mount_id(directory)
            key = status.st_dev, status.st_ino, mount
            if key not in self._directories:
                number = -1 if self._watches is None else self._watches.add(directory, events=_NEW_ENTRY_EVENTS)
                self._directories[key] = _Directory(os.dup(directory), mount, number)
        except OSError:  # too many watches, or handles
            self.pause = POLL_SECONDS
            return
        self._at[cover] = self._directories[key]
        name = os.fsencode(os.path.basename(cover.path))
        self._named.setdefault((self._at[cover].watch, name), {})[cover] = None

    def _mount(self, cover: Overmount, place: int) -> None:
        if cover.kind == PINNED:
            tree = clone(place)
        elif cover.kind == READ_ONLY:
            tree = make_read_only(clone(place))
        else:
            tree = self._hollows.mount(self._hollows.like(os.fstat(place)) if cover.kind == MASKED else cover.kind)
        try:
            attach(tree, place)
        finally:
            os.close(tree)
