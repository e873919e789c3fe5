"""Landlock: which files a thread, and all that it starts, may touch. An allow-list that can't be taken back.

Facts are from the kernel's `linux/landlock.h` and landlock(7). What this layer leaves open (stat, chmod, chown, times,
extended attributes of files outside; UDP; Unix sockets by path) others have to close.
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
"""Linux 6.2: before it a file outside could be truncated."""

SIGNAL_SCOPE_ABI = 6
"""Linux 6.12: signals can be kept inside."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIRECTORY, REMOVE_FILE, MAKE_DIRECTORY, MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
TRUNCATE = 1 << 14
_IOCTL_DEVICE = 1 << 15
_RESOLVE_UNIX = 1 << 16
_CREATE_AND_REMOVE = sum(1 << bit for bit in (4, 5, 7, 8, 9, 10, 12))
"""Directories, files, sockets, FIFOs and links; no device nodes."""
REFER = 1 << 13

READ = READ_FILE | READ_DIRECTORY
RUN = READ | EXECUTE
CHANGE = WRITE_FILE | TRUNCATE | _CREATE_AND_REMOVE | REFER
DEVICE = READ_FILE | WRITE_FILE | _IOCTL_DEVICE

_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | _IOCTL_DEVICE | _RESOLVE_UNIX
_FIRST_ABI = (1 << 13) - 1
_NEWER = ((2, REFER), (3, TRUNCATE), (5, _IOCTL_DEVICE), (9, _RESOLVE_UNIX))
"""Rights that came with a later ABI."""

_TCP = 0b11
_TCP_CONNECT = 0b10
"""The second of bind and connect."""
_SCOPES = 0b11
"""Abstract Unix sockets, and signals, to processes outside."""
_SIGNALS = 0b10
"""The second of these alone."""
_VERSION = 1
_PATH_BENEATH = 1

Rule = tuple[str | int, int]
"""A path or a handle, and the rights beneath it."""


class EntryGrants(NamedTuple):
    """Entries of a directory, each granted for itself; links among them, and what they lead to, are not."""

    path: str
    rights: int
    names: Sequence[str]
    identity: tuple[int, int]
    """Device and inode that the directory must have."""


@cache
def abi() -> int:
    """Version of Landlock in force; 0 when the kernel has none or does not let it be used."""
    if not syscalls.is_supported():
        return 0
    try:
        return syscalls.syscall("landlock_create_ruleset", None, 0, _VERSION)
    except OSError:
        return 0


def ruleset(rules: Iterable[Rule | EntryGrants], *, tcp: bool, binds: bool = False) -> int:
    """Descriptor of a set of rules, to be used by any number of threads and processes. The caller closes it.

    Paths that are not there, or not ours to look at, are left out: what is not granted is refused. `tcp` False refuses
    to bind and connect, with `binds` only to connect (ABI 4). Signals and abstract Unix sockets don't leave the domain
    (ABI 6).

    Raises:
        OSError: no Landlock here, or no descriptor left.
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
    made = syscalls.syscall("landlock_create_ruleset", struct.pack(f"{len(words)}Q", *words), 8 * len(words), 0)
    try:
        os.set_inheritable(made, False)
        for rule in rules:
            if isinstance(rule, EntryGrants):
                _add_entries(made, rule, handled)
            else:
                _add(made, rule[0], rule[1] & handled)
    except OSError:
        os.close(made)
        raise
    return made


def restrict_thread(made: int) -> None:
    """Hold the calling thread, and whatever it starts from now on, to the rules. It must have no new privileges."""
    syscalls.syscall("landlock_restrict_self", made, 0)


def confine_signals(outsider: int) -> bool:
    """Keep the signals of the calling process to itself and to what it starts from now on, for good; nothing else.

    True when that is so, which is proved on `outsider`, a living process that can be signalled until now. Then
    `kill(-1, ...)` reaches every descendant at once, however they multiply, and nobody else. Needs ABI 6 (Linux 6.12).
    """
    if abi() < SIGNAL_SCOPE_ABI:
        return False
    try:
        os.kill(outsider, 0)
        syscalls.set_no_new_privileges()
        made = _signals_ruleset()
        try:
            restrict_thread(made)
        finally:
            os.close(made)
    except OSError:
        return False
    try:
        os.kill(outsider, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _signals_ruleset() -> int:
    # Every Landlock layer denies REFER unless it grants it, even one that handles no file right (landlock(7)). So it is
    # handled here and granted everywhere; the layer that holds the command decides where it may be used.
    made = syscalls.syscall("landlock_create_ruleset", struct.pack("3Q", REFER, 0, _SIGNALS), 24, 0)
    try:
        top = os.open("/", os.O_PATH | os.O_CLOEXEC)
        try:
            _add(made, top, REFER)
        finally:
            os.close(top)
    except OSError:
        os.close(made)
        raise
    return made


def _add_entries(made: int, entries: EntryGrants, handled: int) -> None:
    try:
        directory = os.open(entries.path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        found = os.fstat(directory)
        if (found.st_dev, found.st_ino) != tuple(entries.identity):
            return
        for name in entries.names:
            with suppress(FileNotFoundError, PermissionError):
                handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
                try:
                    if not stat.S_ISLNK(os.fstat(handle).st_mode):
                        _add(made, handle, entries.rights & handled)
                finally:
                    os.close(handle)
    finally:
        os.close(directory)


def _add(made: int, where: str | int, rights: int) -> None:
    try:
        handle = os.open(where, os.O_PATH | os.O_CLOEXEC) if isinstance(where, str) else where
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _FILE_RIGHTS
        if rights:  # none at all is ENOMSG
            syscalls.syscall("landlock_add_rule", made, _PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
    finally:
        if isinstance(where, str):
            os.close(handle)
