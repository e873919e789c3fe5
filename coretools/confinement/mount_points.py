"""Open or create mount points without races.

Paths are resolved name by name and links are never followed: other commands may be changing every component meanwhile.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

KEEPS_MOVING = (
    "files that commands must not read, or repositories, keep moving, so they cannot be protected; "
    "try again when the program that moves them has ended (stop_run ends a run)"
)

_PATH_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_ATTEMPTS = 8
"""Attempts to create a mount point that other commands keep changing."""
_LOOKUP_ATTEMPTS = 100
"""Attempts to open the file to mount on while other commands move the directories above it."""


@contextmanager
def mount_point(base: str, path: str, *, directory: bool) -> Iterator[int]:
    """Open a mount point. Creates it and its parent directories where they are missing.

    Components may lie in the home or in /tmp, which other commands are changing. An entry of another kind is renamed to
    make room.
    """
    with ExitStack() as way:
        here = open_parent(base, path, way)
        opened = _open_or_create(here, os.path.basename(path), is_right=stat.S_ISDIR if directory else stat.S_ISREG)
        way.callback(os.close, opened)
        yield opened


def open_parent(base: str, path: str, way: ExitStack) -> int:
    """Open the parent directory of a path, creating missing ones. `way` closes the descriptors."""
    here = os.open(base, _PATH_FLAGS)
    way.callback(os.close, here)
    for name in path.strip("/").split("/")[:-1]:
        here = _open_or_create(here, name, is_right=stat.S_ISDIR)
        way.callback(os.close, here)
    return here


def _open_or_create(here: int, name: str, *, is_right: Callable[[int], bool]) -> int:
    """Open the directory or file of this name, as `is_right` demands. Creates it where it is missing."""
    for _ in range(_CREATE_ATTEMPTS):
        try:
            handle = os.open(name, _PATH_FLAGS, dir_fd=here)
        except FileNotFoundError:
            with suppress(FileExistsError):
                if is_right is stat.S_ISDIR:
                    os.mkdir(name, 0o755, dir_fd=here)
                else:
                    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=here))
            continue
        if is_right(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        _move_aside(here, name)
    raise OSError(errno.EBUSY, "keeps changing", name)


def _move_aside(here: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.rename(name, f"{name}.{os.urandom(4).hex()}", src_dir_fd=here, dst_dir_fd=here)


@contextmanager
def open_existing(
    path: str, trees: Mapping[str, int], identity: tuple[int, int] | None
) -> Iterator[tuple[int, int] | None]:
    """Open the parent directory and the file at a path beneath one of the trees, if it has this device and inode.

    Without an identity, open whatever is there; None when there is nothing or a link.

    Raises:
        OSError: ESTALE when there is something else or nothing.
    """
    handles = _open_beneath(path, trees) if identity is None else _open_matching(path, trees, identity)
    if handles is not None and identity is None and stat.S_ISLNK(os.fstat(handles[1]).st_mode):
        for handle in handles:
            os.close(handle)
        handles = None
    try:
        yield handles
    finally:
        for handle in handles or ():
            os.close(handle)


def _open_matching(path: str, trees: Mapping[str, int], identity: tuple[int, int]) -> tuple[int, int]:
    for _ in range(_LOOKUP_ATTEMPTS):
        handles = _open_beneath(path, trees)
        if handles is None:
            continue
        status = os.fstat(handles[1])
        if (status.st_dev, status.st_ino) == identity:
            return handles
        for handle in handles:
            os.close(handle)
    raise OSError(errno.ESTALE, KEEPS_MOVING, path)


def _open_beneath(path: str, trees: Mapping[str, int]) -> tuple[int, int] | None:
    """Open a path name by name from the descriptor of its tree, wherever the mount was moved and however long the path.

    Returns None when there is nothing.
    """
    root = max((one for one in trees if path == one or path.startswith(f"{one}/")), key=len)
    above, here = os.dup(trees[root]), os.dup(trees[root])
    for name in path[len(root) :].strip("/").split("/"):
        os.close(above)
        above = here
        try:
            here = os.open(name, _PATH_FLAGS, dir_fd=above)
        except OSError as error:
            os.close(above)
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                return None
            raise
    return above, here


def is_beneath(path: str, covered: Collection[str], trees: Collection[str]) -> bool:
    """Whether a directory above the path, in the same tree, is in `covered`."""
    while (path := os.path.dirname(path)) not in trees and path != "/":
        if path in covered:
            return True
    return False
