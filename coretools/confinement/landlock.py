"""Landlock: restrict the files that a thread, and everything it starts, may access. An irrevocable allow-list.

Constants are from the kernel's `linux/landlock.h`, facts from landlock(7). Landlock does not restrict stat, chmod,
chown, times and extended attributes of other files, UDP, or Unix sockets by path; other layers have to.
"""

import os
import stat
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from coretools.confinement import syscalls

ABI_REQUIRED = 3
"""Linux 6.2. Before it, files that are not granted could be truncated."""

SIGNAL_SCOPE_ABI = 6
"""Linux 6.12, which can restrict signals."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIRECTORY, REMOVE_FILE, MAKE_DIRECTORY, MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
MAKE_LINK = 1 << 12
"""Symbolic links."""
TRUNCATE = 1 << 14
_IOCTL_DEVICE = 1 << 15
RESOLVE_UNIX = 1 << 16
_CREATE_AND_REMOVE = sum(1 << bit for bit in (4, 5, 7, 8, 9, 10, 12))
"""For directories, files, sockets, FIFOs and links, but not device nodes."""
REFER = 1 << 13

READ = READ_FILE | READ_DIRECTORY
RUN = READ | EXECUTE
CHANGE = WRITE_FILE | TRUNCATE | _CREATE_AND_REMOVE | REFER
DEVICE = READ_FILE | WRITE_FILE | _IOCTL_DEVICE

_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | _IOCTL_DEVICE | RESOLVE_UNIX
_FIRST_ABI = (1 << 13) - 1
_NEWER = ((2, REFER), (3, TRUNCATE), (5, _IOCTL_DEVICE), (9, RESOLVE_UNIX))
"""Rights that later ABI versions added."""

_TCP = 0b11
_TCP_CONNECT = 0b10
"""The second of the two bits for bind and connect."""
_SCOPES = 0b11
"""Scope bits: abstract Unix sockets of, and signals to, processes outside the Landlock domain."""
_SIGNALS = 0b10
"""The scope bit for signals alone."""
_VERSION = 1
_PATH_BENEATH = 1

Rule = tuple[str | int, int]
"""A path or a file descriptor, and the rights beneath it."""


class EntryGrants(NamedTuple):
    """Entries of a directory that are granted one by one. Symbolic links among them are not."""

    path: str
    rights: int
    names: Sequence[str]
    identity: tuple[int, int]
    """Required device and inode of the directory."""


@cache
def abi() -> int:
    """Return the Landlock ABI version; 0 when the kernel has no Landlock or refuses its use."""
    if not syscalls.is_supported():
        return 0
    try:
        return syscalls.syscall("landlock_create_ruleset", None, 0, _VERSION)
    except OSError:
        return 0


def ruleset(rules: Iterable[Rule | EntryGrants], *, tcp: bool, binds: bool = False) -> int:
    """Create a ruleset that any number of threads and processes can enforce. The caller closes the descriptor.

    Paths that do not exist or cannot be opened are left out: what is not granted is refused. `tcp` False refuses bind
    and connect, or with `binds` only connect (ABI 4). Signals to and abstract Unix sockets of processes outside the
    Landlock domain are refused (ABI 6).

    Raises:
        OSError: Landlock is unavailable, or no descriptor is left.
    """
    version = abi()
    handled = _FIRST_ABI
    for since, right in _NEWER:
        handled |= right if version >= since else 0
    words = [handled]
    if version >= 4:
        words.append(0 if tcp else _TCP_CONNECT if binds else _TCP)
    if version >= SIGNAL_SCOPE_ABI:
        words.append(_SCOPES)
    return _created(words, rules)


def _created(words: Sequence[int], rules: Iterable[Rule | EntryGrants]) -> int:
    """Create a ruleset that handles the rights in the first word: file rights, then TCP, then scopes."""
    ruleset_fd = syscalls.syscall("landlock_create_ruleset", struct.pack(f"{len(words)}Q", *words), 8 * len(words), 0)
    try:
        os.set_inheritable(ruleset_fd, False)
        for rule in rules:
            if isinstance(rule, EntryGrants):
                _add_entries(ruleset_fd, rule, words[0])
            else:
                _add(ruleset_fd, rule[0], rule[1] & words[0])
    except OSError:
        os.close(ruleset_fd)
        raise
    return ruleset_fd


def restrict_thread(ruleset_fd: int) -> None:
    """Enforce a ruleset on the calling thread and whatever it starts. The thread must have set no_new_privs."""
    syscalls.syscall("landlock_restrict_self", ruleset_fd, 0)


def confine_signals(outsider: int, handles: Sequence[int] = ()) -> bool:
    """Restrict the signals of the calling process for good to itself and what it starts. Restricts nothing else.

    Returns True if a signal to `outsider`, a living process that could be signalled before, is now refused. Then
    `kill(-1, ...)` reaches all descendants at once, however fast they fork, and no other process. Needs ABI 6.
    `handles` are directories outside the view between which it links files.
    """
    if abi() < SIGNAL_SCOPE_ABI:
        return False
    try:
        os.kill(outsider, 0)
        syscalls.set_no_new_privileges()
        # Every Landlock layer denies REFER unless it grants it, even one that handles no file right (landlock(7)). So
        # this one grants it everywhere; the layer that confines the command decides where it applies.
        ruleset_fd = _created((REFER, 0, _SIGNALS), [("/", REFER), *((handle, REFER) for handle in handles)])
        try:
            restrict_thread(ruleset_fd)
        finally:
            os.close(ruleset_fd)
    except OSError:
        return False
    try:
        os.kill(outsider, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _add_entries(ruleset_fd: int, entries: EntryGrants, handled: int) -> None:
    try:
        directory = os.open(entries.path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        status = os.fstat(directory)
        if (status.st_dev, status.st_ino) != tuple(entries.identity):
            return
        for name in entries.names:
            with suppress(FileNotFoundError, PermissionError):
                handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
                try:
                    if not stat.S_ISLNK(os.fstat(handle).st_mode):
                        _add(ruleset_fd, handle, entries.rights & handled)
                finally:
                    os.close(handle)
    finally:
        os.close(directory)


def _add(ruleset_fd: int, where: str | int, rights: int) -> None:
    try:
        handle = os.open(where, os.O_PATH | os.O_CLOEXEC) if isinstance(where, str) else where
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _FILE_RIGHTS
        if rights:  # a rule without rights fails with ENOMSG
            syscalls.syscall("landlock_add_rule", ruleset_fd, _PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
    finally:
        if isinstance(where, str):
            os.close(handle)
