"""Status of an open file as a few bytes to compare, told without asking another machine or program for it.

fstat(2) of a file on FUSE or NFS may wait for who serves it; statx(2) with AT_STATX_DONT_SYNC gives what the kernel
knows. Linux only. Bytes, because they are taken a dozen times before each call of git and only compared.
"""

import ctypes
import errno
import os
from struct import Struct

from coretools.sandbox.inside import Stamp

_FLAGS = 0x1000 | 0x4000
"""AT_EMPTY_PATH, AT_STATX_DONT_SYNC."""
_MASK = 0x7FF | 0x1000
"""STATX_BASIC_STATS, STATX_MNT_ID (Linux 5.8)."""
_PARTS = Struct("=QQqI4xqI4xIIQ")
"""Inode, size, changed, modified, device, mount: in the order of `struct statx`."""
_MOUNT_BYTES = 8

_HERE = -100
"""AT_FDCWD."""
_SYMLINK_NOFOLLOW = 0x100
_BIRTH_MASK = 0x800
"""STATX_BTIME."""
_BIRTH = Struct("=I76xqI")
"""What is known, and the birth time: the beginning of `struct statx`."""

_Buffer = ctypes.c_char * 256
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
if _statx is not None:
    _statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)


def signature(fd: int) -> bytes:
    """What tells a file, and where it is mounted, from every earlier state of it, short of its content.

    Raises:
        OSError: ENOSYS where this libc lacks statx.
    """
    found = _Buffer()
    if _statx is None or _statx(fd, b"", _FLAGS, _MASK, found) != 0:
        failure = errno.ENOSYS if _statx is None else ctypes.get_errno()
        raise OSError(failure, os.strerror(failure))
    raw = found.raw
    return raw[32:48] + raw[96:128] + raw[136:152]


def birth_of(path: str, top: int | None = None) -> int | None:
    """When a file was made, in nanoseconds; None where the file system does not tell. Follows no link.

    Raises:
        OSError: there is none.
    """
    found = _Buffer()
    if _statx is None:
        return None
    if _statx(_HERE if top is None else top, os.fsencode(path), _SYMLINK_NOFOLLOW, _BIRTH_MASK, found) != 0:
        failure = ctypes.get_errno()
        raise OSError(failure, os.strerror(failure))
    mask, seconds, nanoseconds = _BIRTH.unpack_from(found.raw)
    return int(seconds) * 10**9 + int(nanoseconds) if mask & _BIRTH_MASK else None


def mount_of(signed: bytes) -> bytes:
    """Identifier of the mount: differs where something is mounted between two handles, of the same device too."""
    return signed[-_MOUNT_BYTES:]


def stamp_from(signed: bytes) -> Stamp:
    """The rest of it, as `inside.stamp` gives it."""
    inode, size, changed, changed_ns, modified, modified_ns, major, minor, _ = _PARTS.unpack(signed)
    return Stamp(os.makedev(major, minor), inode, size, modified * 10**9 + modified_ns, changed * 10**9 + changed_ns)
