"""Open a path beneath a directory without following links: by openat2, or by a walk where the kernel lacks it."""

import ctypes
import errno
import os
import sys
from functools import lru_cache
from struct import Struct
from typing import Protocol

from coretools.errors import BadSetting

# System calls that the `os` module lacks, by ctypes: openat2, renameat2, statx and fstatfs. Linux only. `CDLL`, not
# `PyDLL`: it releases the interpreter's lock, so a slow file system does not stop other threads.

NO_REPLACE = 1
"""RENAME_NOREPLACE: fail with EEXIST instead of replacing."""
EXCHANGE = 2
"""RENAME_EXCHANGE: each of two existing names gets what the other had."""

_SYS_OPENAT2 = 437
"""openat2 has the same number on every architecture (linux/include/uapi/asm-generic/unistd.h)."""

_NO_MAGICLINKS = 0x02
_NO_SYMLINKS = 0x04
_BENEATH = 0x08
_RESOLVE = _BENEATH | _NO_SYMLINKS
"""NO_SYMLINKS implies NO_MAGICLINKS (openat2(2))."""

_NO_XDEV = 0x01
_CACHED = 0x20
_IN_MEMORY = _RESOLVE | _CACHED | _NO_XDEV

_AT_FDCWD = -100
"""AT_FDCWD."""

_SYMLINK_NOFOLLOW = 0x100
_EMPTY_PATH = 0x1000
_DONT_SYNC = 0x4000
"""Flags of statx(2)."""
_INODE_MASK = 0x100
_BIRTH_MASK = 0x800
"""STATX_INO, STATX_BTIME."""
_STATUS = Struct("=I28xQ40xqI44xII")
"""Mask, inode, birth time, device: the beginning of `struct statx`."""

_ON_DISK = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010})
"""`f_type` of ext4, XFS, Btrfs and F2FS (statfs(2)), which no other machine or program serves. tmpfs is
missing: it refuses RWF_NOWAIT."""

_RETRY = (errno.EINTR, errno.EAGAIN)
_MAX_TRIES = 64


class _How(ctypes.Structure):
    """`struct open_how`."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_SIZE = ctypes.sizeof(_How)

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
_renameat2 = getattr(_libc, "renameat2", None)
if _renameat2 is not None:
    _renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_statx = getattr(_libc, "statx", None)
if _statx is not None:
    _statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)


@lru_cache(64)
def _how(flags: int, resolve: int) -> object:
    """A pointer to the structure for these flags. The kernel only reads it, so threads may share it."""
    return ctypes.byref(_How(flags | os.O_CLOEXEC, 0, resolve))


def open_cached(beneath: int | None, path: str, flags: int) -> int:
    """Open a path without links, if the kernel has every component cached, on one file system.

    Fails for a name that is a mount point in any mount namespace, as `.git` is in those of commands (Linux:
    `__follow_mount_rcu`). Without `beneath` the path is absolute, and may cross file systems.

    Raises:
        OSError: EAGAIN if it would block, EXDEV if another file system lies on the way, EINVAL before Linux 5.12; else
            as open(2).
    """
    resolve = _NO_SYMLINKS | _CACHED if beneath is None else _IN_MEMORY
    how = _how(flags, resolve)
    fd: int = _syscall(_SYS_OPENAT2, _AT_FDCWD if beneath is None else beneath, os.fsencode(path), how, _SIZE)
    if fd < 0:
        failure = ctypes.get_errno()
        raise OSError(failure, os.strerror(failure), path)
    return fd


def open_at_once(path: bytes) -> int:
    """Open a directory with O_PATH, if the kernel has every component cached; follows links, but none of /proc.

    Raises:
        OSError: EAGAIN if it would block, ELOOP for a link of /proc, EINVAL before Linux 5.12; else as open(2).
    """
    how = _how(os.O_PATH | os.O_DIRECTORY, _NO_MAGICLINKS | _CACHED)
    fd: int = _syscall(_SYS_OPENAT2, _AT_FDCWD, path, how, _SIZE)
    if fd < 0:
        failure = ctypes.get_errno()
        raise OSError(failure, os.strerror(failure), path)
    return fd


def statx_identity(fd: int) -> tuple[int, int]:
    """Device and inode of an open file from the cache: on FUSE or NFS fstat(2) may wait for the server.

    Raises:
        OSError: ENOSYS where this libc lacks statx.
    """
    _, inode, _, _, major, minor = _statx_of(fd, b"", _EMPTY_PATH | _DONT_SYNC, _INODE_MASK)
    return os.makedev(major, minor), inode


def birth_time(path: str, top: int | None = None) -> int | None:
    """Birth time of a file in nanoseconds; None if the file system does not record it. Follows no link.

    Raises:
        OSError: there is no such file.
    """
    if _statx is None:
        return None
    beneath = _AT_FDCWD if top is None else top
    known, _, seconds, nanoseconds, _, _ = _statx_of(beneath, os.fsencode(path), _SYMLINK_NOFOLLOW, _BIRTH_MASK)
    return seconds * 10**9 + nanoseconds if known & _BIRTH_MASK else None


def _statx_of(beneath: int, path: bytes, flags: int, mask: int) -> tuple[int, ...]:
    buffer = ctypes.create_string_buffer(256)
    if _statx is None or _statx(beneath, path, flags, mask, buffer) != 0:
        failure = errno.ENOSYS if _statx is None else ctypes.get_errno()
        raise OSError(failure, os.strerror(failure), os.fsdecode(path))
    return _STATUS.unpack_from(buffer.raw)


def is_on_disk(fd: int) -> bool:
    """Whether a descriptor is on a file system that no other program or machine serves."""
    if sys.platform != "linux":
        return False
    buffer = (ctypes.c_long * 64)()
    return _libc.fstatfs(fd, buffer) == 0 and (buffer[0] & 0xFFFFFFFF) in _ON_DISK


class Openat2Resolver:
    """Opens a path beneath a directory in one system call that refuses every link. See `Resolver`."""

    name = "openat2"

    def open(self, beneath: int, relative: str, flags: int) -> int:
        """Open `relative`, which holds no `..`; a link anywhere in it is an OSError with ELOOP."""
        path = os.fsencode(relative)
        how = _how(flags, _RESOLVE)
        failure = errno.EAGAIN
        for _ in range(_MAX_TRIES):
            fd: int = _syscall(_SYS_OPENAT2, beneath, path, how, _SIZE)
            if fd >= 0:
                return fd
            failure = ctypes.get_errno()
            if failure not in _RETRY:
                break
        raise OSError(failure, os.strerror(failure), relative)


def openat2_available() -> bool:
    """Whether openat2 can be called: Linux 5.6 or later, and no seccomp filter that forbids it."""
    if sys.platform != "linux":
        return False
    # Not the working directory, which may be unreadable.
    here = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(Openat2Resolver().open(here, ".", os.O_RDONLY | os.O_DIRECTORY))
    except OSError:
        return False
    finally:
        os.close(here)
    return True


def rename(source_directory: int, source: str, directory: int, name: str, *, flags: int) -> None:
    """Rename between two directories with flags.

    Raises:
        OSError: ENOSYS if this libc or kernel lacks it, EINVAL if the file system does; EEXIST with NO_REPLACE.
    """
    if _renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source)
    if _renameat2(source_directory, os.fsencode(source), directory, os.fsencode(name), flags) != 0:
        failure = ctypes.get_errno()
        raise OSError(failure, os.strerror(failure), source, None, name)


# The resolver for kernels without openat2 opens one component at a time, each from the descriptor of the one before,
# with O_NOFOLLOW: a link is an error here as with openat2. `resolve.PathWalker` reads the link and continues.

HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for opening a directory to start from; with O_PATH, read permission is not needed."""


class WalkResolver:
    """Opens a path beneath a directory component by component. See `Resolver`."""

    name = "walk"

    def open(self, beneath: int, relative: str, flags: int) -> int:
        """Open `relative`, which holds no `..`; a link anywhere in it is an OSError with ELOOP or ENOTDIR."""
        *directories, last = relative.split("/")
        top = beneath
        try:
            for name in directories:
                below = os.open(name, HANDLE, dir_fd=top)
                if top != beneath:
                    os.close(top)
                top = below
            return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        finally:
            if top != beneath:
                os.close(top)


class Resolver(Protocol):
    """Opens a path beneath an open directory, without races.

    The path contains no `..`, and is opened only if no component is a link. So the text of a path that was opened is
    the place that was reached, and deny globs and permissions can be decided by it.
    """

    name: str

    def open(self, beneath: int, relative: str, flags: int) -> int:
        """Open `relative`; `.` is the directory itself.

        Raises:
            OSError: ELOOP or ENOTDIR if a component is a link, else as open(2).
        """
        ...


def open_absolute(path: str, resolver: Resolver) -> int:
    """Open a directory by its absolute path, from which links were resolved; one that came since is an OSError.

    What is decided by the path, such as whether a rule of the operator covers it, then holds for what was opened.
    """
    top = os.open("/", HANDLE)
    try:
        return resolver.open(top, path.removeprefix("/"), HANDLE)
    finally:
        os.close(top)


def resolver_named(name: str | None) -> Resolver:
    """The resolver of this name; None chooses the strongest that the kernel supports.

    Raises:
        BadSetting: no such resolver, or not supported by this kernel.
    """
    if name is None:
        return Openat2Resolver() if openat2_available() else WalkResolver()
    if name == "walk":
        return WalkResolver()
    if name != "openat2":
        raise BadSetting(f"unknown resolver {name!r}; choose openat2 or walk")
    if not openat2_available():
        raise BadSetting("resolver openat2: this kernel lacks it, or a seccomp filter forbids it; choose walk")
    return Openat2Resolver()
