"""Resolve a path that a command passed, without blocking on a file system that does not answer.

A blocked supervisor can neither kill its command nor report its exit. So it opens one directory after the other,
follows links itself, and touches no file system that another machine or a program serves (NFS, FUSE), unless the roots
are on it: the server relies on such a one anyway. Runs in the supervisor; standard library only.
"""

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack

from coretools.confinement.inotify import LOCAL
from coretools.mounts import mount_id, read_mounts
from coretools.reach import is_beneath

_PIN = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
"""The limit of the kernel (path_resolution(7))."""

KERNEL_FILESYSTEMS = frozenset(
    {"proc", "sysfs", "devtmpfs", "devpts", "ramfs", "rootfs", "cgroup2", "mqueue", "hugetlbfs"}
)


def open_pinned(path: bytes, cwd: int, places: Sequence[str], *, thread: int = 0) -> int:
    """Open the target of a path with O_PATH; a relative path starts at `cwd`. `/proc/self` is `thread`, if given.

    Raises:
        OSError: EACCES for a file system that may not answer; otherwise as open(2).
    """
    allowed = allowed_mounts(places)
    rest = path.split(b"/")[::-1]
    here = os.open("/", _PIN) if path.startswith(b"/") else os.dup(cwd)
    links = 0
    with ExitStack() as undo:
        undo.callback(lambda: os.close(here))
        _require_allowed(here, allowed)
        while rest:
            name = rest.pop()
            if name in (b"", b"."):
                continue
            below = os.open(name, _PIN, dir_fd=here)
            link = _link(below, allowed)
            if link is None:
                os.close(here)
                here = below
                continue
            if thread and name in (b"self", b"thread-self") and _is_own(link):
                link = b"%d" % thread
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, "")
            rest += link.split(b"/")[::-1]
            if link.startswith(b"/"):
                os.close(here)
                here = os.open("/", _PIN)
        undo.pop_all()
    return here


def _is_own(link: bytes) -> bool:
    """Whether it is the target of `/proc/self` or `/proc/thread-self` for this process."""
    own = b"%d" % os.getpid()
    return link == own or link.startswith(own + b"/task/")


def _link(fd: int, allowed: frozenset[int]) -> bytes | None:
    """Target of a symbolic link, whose descriptor is closed; None for anything else."""
    try:
        _require_allowed(fd, allowed)
        link = os.readlink(b"", dir_fd=fd) if stat.S_ISLNK(os.fstat(fd).st_mode) else None
    except OSError:
        os.close(fd)
        raise
    if link is not None:
        os.close(fd)
    return link


def _require_allowed(fd: int, allowed: frozenset[int]) -> None:
    if mount_id(fd) not in allowed:
        raise OSError(errno.EACCES, "")


def allowed_mounts(places: Sequence[str]) -> frozenset[int]:
    """Ids of the mounts that always answer, or that contain the places."""
    answering = LOCAL | KERNEL_FILESYSTEMS
    return frozenset(
        mount.number
        for mount in read_mounts()
        if mount.kind in answering or any(is_beneath(place, mount.path) for place in places)
    )
