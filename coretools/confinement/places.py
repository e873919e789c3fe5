"""Places in a view to mount on: made where they are missing, or found again as what was looked up.

Name by name, links never followed: commands of another view may be changing every part of the way.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

MOVED = (
    "files that commands must not read, or repositories, are moved all the time, so they can't be covered; "
    "try again when what moves them has ended (stop_run ends a run)"
)

_WAY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 8
"""Looks for a place to mount on, while commands of another view may be changing it."""
_LOOKS = 100
"""Looks for what is to be covered, while commands of another view may be moving what lies above it."""


@contextmanager
def place_at(base: str, path: str, *, directory: bool) -> Iterator[int]:
    """Handle of a place to mount on, made where it is missing, and the directories above it too.

    Name by name, links never followed: a part of the way may lie in the home or in /tmp, which commands of another view
    are changing. What stands there and is of another kind is moved aside.
    """
    with ExitStack() as way:
        here = way_to(base, path, way)
        found = _stepped(here, os.path.basename(path), is_right=stat.S_ISDIR if directory else stat.S_ISREG)
        way.callback(os.close, found)
        yield found


def way_to(base: str, path: str, way: ExitStack) -> int:
    """Handle of the directory above a path, made where it is missing; closed with `way`, as are those on it."""
    here = os.open(base, _WAY)
    way.callback(os.close, here)
    for name in path.strip("/").split("/")[:-1]:
        here = _stepped(here, name, is_right=stat.S_ISDIR)
        way.callback(os.close, here)
    return here


def _stepped(here: int, name: str, *, is_right: Callable[[int], bool]) -> int:
    """Handle of the directory or file of this name, which of the two `is_right` tells; made where it is missing."""
    for _ in range(_TRIES):
        try:
            found = os.open(name, _WAY, dir_fd=here)
        except FileNotFoundError:
            with suppress(FileExistsError):
                if is_right is stat.S_ISDIR:
                    os.mkdir(name, 0o755, dir_fd=here)
                else:
                    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=here))
            continue
        if is_right(os.fstat(found).st_mode):
            return found
        os.close(found)
        _aside(here, name)
    raise OSError(errno.EBUSY, "is changed all the time", name)


def _aside(here: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.rename(name, f"{name}.{os.urandom(4).hex()}", src_dir_fd=here, dst_dir_fd=here)


@contextmanager
def found_at(path: str, trees: Mapping[str, int], identity: tuple[int, int] | None) -> Iterator[tuple[int, int] | None]:
    """Handles of what has this device and inode at a path beneath one of the trees, after that of its directory.

    Without an identity of whatever stands there; None when nothing does, or a link.

    Raises:
        OSError: ESTALE when something else stands there, or nothing.
    """
    found = _walked(path, trees) if identity is None else _met(path, trees, identity)
    try:
        yield found
    finally:
        for handle in found or ():
            os.close(handle)


def _met(path: str, trees: Mapping[str, int], identity: tuple[int, int]) -> tuple[int, int]:
    for _ in range(_LOOKS):
        found = _walked(path, trees)
        if found is None:
            continue
        status = os.fstat(found[1])
        if (status.st_dev, status.st_ino) == identity:
            return found
        for handle in found:
            os.close(handle)
    raise OSError(errno.ESTALE, MOVED, path)


def _walked(path: str, trees: Mapping[str, int]) -> tuple[int, int] | None:
    """Name by name from the tree's own handle, wherever its mount was moved to and however long the path is.

    None when nothing is there, or a link.
    """
    root = max((one for one in trees if path == one or path.startswith(f"{one}/")), key=len)
    above, here = os.dup(trees[root]), os.dup(trees[root])
    for name in path[len(root) :].strip("/").split("/"):
        os.close(above)
        above = here
        try:
            here = os.open(name, _WAY, dir_fd=above)
        except OSError as error:
            os.close(above)
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                return None
            raise
    if stat.S_ISLNK(os.fstat(here).st_mode):
        os.close(above)
        os.close(here)
        return None
    return above, here


def is_beneath(path: str, covered: Collection[str], trees: Collection[str]) -> bool:
    """Whether a directory above it, in the same tree, is covered: what was laid over that is met in its place."""
    while (path := os.path.dirname(path)) not in trees and path != "/":
        if path in covered:
            return True
    return False
