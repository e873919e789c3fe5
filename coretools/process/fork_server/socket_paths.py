"""Follow a path that a command gave, without waiting for a file system that does not answer.

A supervisor that waits can neither end its command nor say that it has ended. So it goes from one directory to the next
by handle, follows links itself, and looks at nothing on a file system that another machine or a program serves, unless
the roots lie there too: such a one the server relies on anyway. Runs in the supervisor; standard library only.
"""

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack

from coretools.confinement.inotify import LOCAL

_PIN = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
"""As the kernel has it (path_resolution(7))."""

_KERNEL_FILESYSTEMS = frozenset(
    {"proc", "sysfs", "devtmpfs", "devpts", "ramfs", "rootfs", "cgroup2", "mqueue", "hugetlbfs"}
)


def open_pinned(path: bytes, cwd: int, places: Sequence[str]) -> int:
    """A handle of what a path leads to; `cwd` is where a relative one begins.

    Raises:
        OSError: EACCES where it leads to a file system that may not answer, and what open(2) says.
    """
    allowed = _allowed_mounts(places)
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
            links += 1
            _check_link_count(links)
            rest += link.split(b"/")[::-1]
            if link.startswith(b"/"):
                os.close(here)
                here = os.open("/", _PIN)
        undo.pop_all()
    return here


def _link(fd: int, allowed: frozenset[int]) -> bytes | None:
    """Where a link leads, whose handle is given up; None for what is none."""
    try:
        _require_allowed(fd, allowed)
        link = os.readlink(b"", dir_fd=fd) if stat.S_ISLNK(os.fstat(fd).st_mode) else None
    except OSError:
        os.close(fd)
        raise
    if link is not None:
        os.close(fd)
    return link


def _check_link_count(links: int) -> None:
    if links > _MOST_LINKS:
        raise OSError(errno.ELOOP, "")


def _require_allowed(fd: int, allowed: frozenset[int]) -> None:
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        number = next(int(line.split()[1]) for line in file if line.startswith("mnt_id:"))
    if number not in allowed:
        raise OSError(errno.EACCES, "")


def _allowed_mounts(places: Sequence[str]) -> frozenset[int]:
    """Numbers of the mounts that answer, or on which the places lie (proc(5), mountinfo)."""
    found = set()
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words, _, more = line.partition(" - ")
            number, _, _, _, point, *_ = words.split(" ")
            kind = more.partition(" ")[0]
            above = f"{point.rstrip('/')}/"
            if kind in LOCAL or kind in _KERNEL_FILESYSTEMS or any(f"{place}/".startswith(above) for place in places):
                found.add(int(number))
    return frozenset(found)
