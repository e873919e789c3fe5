"""Mounts by handle: cloned, made read-only, attached (open_tree(2), mount_setattr(2), move_mount(2)). Linux only."""

import os
import struct

from coretools.confinement import syscalls

READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC = 1, 2, 4, 8
"""The same bits in mount(2) and as MOUNT_ATTR_*."""

HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

_EMPTY_PATH, _ALL_BENEATH, _CLONE, _CLOSE_ON_EXEC = 0x1000, 0x8000, 1, 0o2000000
_FROM_HANDLE, _ON_HANDLE = 4, 0x40
"""MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH."""


def clone(handle: int) -> int:
    """A mount of what the handle is of, not yet anywhere."""
    # With everything beneath: what lies under a mount of the machine must not come to light (MNT_LOCKED).
    return syscalls.call("open_tree", handle, b"", _EMPTY_PATH | _ALL_BENEATH | _CLONE | _CLOSE_ON_EXEC)


def clone_at(path: str, directory: int | None = None) -> int:
    """The same of what stands at a path."""
    handle = os.open(path, HANDLE, dir_fd=directory)
    try:
        return clone(handle)
    finally:
        os.close(handle)


def limited(tree: int, *, writable: bool) -> int:
    """The mount itself, without programs that change the user, without devices, and writable or not."""
    flags = NO_SUID | NO_DEVICES | (0 if writable else READ_ONLY)
    syscalls.call("mount_setattr", tree, b"", _EMPTY_PATH | _ALL_BENEATH, struct.pack("4Q", flags, 0, 0, 0), 32)
    return tree


def read_only(tree: int) -> int:
    """The mount itself, read-only."""
    return limited(tree, writable=False)


def attach(tree: int, place: int) -> None:
    """Mount a tree, which stays the caller's handle, on a handle."""
    syscalls.call("move_mount", tree, b"", place, b"", _FROM_HANDLE | _ON_HANDLE)


def mount_id(handle: int) -> int:
    """Number of the mount that a handle lies in (proc_pid_fdinfo(5))."""
    with open(f"/proc/self/fdinfo/{handle}", "rb", buffering=0) as file:
        for line in file.read(4096).splitlines():
            if line.startswith(b"mnt_id:"):
                return int(line.split()[1])
    raise OSError("no number of a mount")
