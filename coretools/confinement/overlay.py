"""Overlays over roots: a command sees the root, and its changes go to another directory (docs/adr/0059).

Only the fork server uses this module; it imports the standard library alone. See the kernel's
`Documentation/filesystems/overlayfs.rst`.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol

from coretools.confinement import syscalls
from coretools.confinement.overmounts import ATTR_NO_DEVICES, ATTR_NO_SUID, HANDLE

_CLOSE_ON_EXEC, _SET_FLAG, _SET_STRING, _CREATE = 1, 0, 1, 6
"""FSOPEN_CLOEXEC (and FSMOUNT_CLOEXEC), FSCONFIG_SET_FLAG, FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE."""


class OverlaidMount(Protocol):
    """A mount of the plan that is an overlay."""

    @property
    def path(self) -> str:
        """Path of the root."""

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the root."""


def mount_overlay(lower: int, upper: str, work: str) -> int:
    """Return a detached mount that shows the directory `lower` and keeps what is changed in `upper`.

    Raises:
        OSError: the file system can't be used for it, or something is mounted in `lower`.
    """
    with ExitStack() as opened:
        context = syscalls.syscall("fsopen", b"overlay", _CLOSE_ON_EXEC)
        opened.callback(os.close, context)
        handles = {"lowerdir": lower}
        for name, path in (("upperdir", upper), ("workdir", work)):
            handles[name] = os.open(path, HANDLE)
            opened.callback(os.close, handles[name])
        for name, handle in handles.items():  # by descriptor: no quoting, and no path is walked again
            path = f"/proc/self/fd/{handle}"
            syscalls.syscall("fsconfig", context, _SET_STRING, name.encode(), path.encode(), 0)
        # Attributes of the user in place of trusted ones, which need a privilege on the machine.
        syscalls.syscall("fsconfig", context, _SET_FLAG, b"userxattr", None, 0)
        # Else every file is synced when it is copied: 1,000 took eight times as long. No trial outlives a crash anyway.
        syscalls.syscall("fsconfig", context, _SET_FLAG, b"volatile", None, 0)
        syscalls.syscall("fsconfig", context, _CREATE, None, None, 0)
        return syscalls.syscall("fsmount", context, _CLOSE_ON_EXEC, ATTR_NO_SUID | ATTR_NO_DEVICES)


def overlaid_identities(
    identities: Mapping[str, tuple[int, int]], overlays: Sequence[tuple[OverlaidMount, int]]
) -> dict[str, tuple[int, int]]:
    """Return the identities as they are in these overlays, given with a descriptor each.

    An overlay whose layers are on one file system has a device of its own, and the inode numbers of the lower layer.
    """
    translated = dict(identities)
    for bind, handle in overlays:
        device = os.fstat(handle).st_dev
        for path, (below, inode) in identities.items():
            if path.startswith(f"{bind.path}/") and bind.identity is not None and below == bind.identity[0]:
                translated[path] = device, inode
    return translated
