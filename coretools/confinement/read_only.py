"""Read-only roots that lie in something writable, for a tier whose only means is Landlock.

Landlock adds up: a right that is granted to a directory holds for all beneath it and can't be taken back further down.
So what is writable around a read-only root is granted entry by entry, from the writable directory down to the one that
holds the root; those directories themselves are only read. Nothing can be created, deleted or renamed directly in
them, since that right would hold in the root too.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress

from coretools.confinement.landlock import CHANGE, Entries, Rule
from coretools.operator_policy import CONTAINER_PLACES, ConfinementPolicy
from coretools.sandbox.hidden_inodes import Inode, inode_of
from coretools.sandbox.roots import Root

MOST_ENTRIES = 4096
"""Granted in one directory, by name; the rest of a larger one is read-only."""

_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def directories_around(roots: Iterable[Root], policy: ConfinementPolicy) -> tuple[str, ...]:
    """Directories in which commands can create nothing, since a read-only root lies beneath."""
    known = list(roots)
    writable = [root.path for root in known if root.writable]
    writable += [os.path.realpath(path) for path in policy.writable]
    writable += CONTAINER_PLACES if policy.own_container else ()
    found = set[str]()
    for path in (root.path for root in known if not root.writable):
        above = os.path.dirname(path)
        while above not in found and any(_beneath(one, [above]) for one in writable):
            found.add(above)
            above = os.path.dirname(above)
    return tuple(sorted(found))


def granted_around(rules: Iterable[Rule], roots: Iterable[Root]) -> list[Rule | Entries]:
    """The rules, of which none gives a right to change a read-only root."""
    closed = [path for path in (_path_of(root.fd) for root in roots if not root.writable) if path]
    found: list[Rule | Entries] = []
    for where, rights in rules:
        path = _reached(where) if rights & CHANGE else ""
        inner = _beneath(path, closed)
        found.append((where, rights & ~CHANGE if inner else rights))
        if inner and path not in inner:
            found += _entries(path, rights, inner)
    return found


def state_of(rules: Iterable[Rule | Entries]) -> tuple[Inode, ...]:
    """What is granted by name, as it stands now. When that changes, what was granted before is not what is there."""
    found: list[Inode] = []
    for rule in rules:
        if isinstance(rule, Entries):
            found += filter(None, (inode_of(f"{rule.path}/{name}") for name in rule.names))
    return tuple(found)


def _beneath(directory: str, paths: Iterable[str]) -> list[str]:
    """Those of the paths that are this directory or lie in it, by text; none for no directory."""
    return [path for path in paths if directory and f"{path}/".startswith(f"{directory.rstrip('/')}/")]


def _entries(directory: str, rights: int, closed: list[str]) -> Iterator[Entries]:
    """The entries of a directory, and of those in it that hold what is closed."""
    names: list[str] = []
    with suppress(OSError):
        handle = os.open(directory, _LISTED)
        try:
            found = os.fstat(handle)
            listed = sorted(os.listdir(handle))[:MOST_ENTRIES]
        finally:
            os.close(handle)
        for name in listed:
            path = os.path.join(directory, name)
            inner = _beneath(path, closed)
            if not inner:
                names.append(name)
            elif path not in inner:
                yield from _entries(path, rights, inner)
        yield Entries(directory, rights, names, (found.st_dev, found.st_ino))


def _reached(where: str | int) -> str:
    return os.path.realpath(where) if isinstance(where, str) else _path_of(where)


def _path_of(handle: int) -> str:
    """Where an open directory is now; empty when it was deleted."""
    try:
        return os.readlink(f"/proc/self/fd/{handle}") if stat.S_ISDIR(os.fstat(handle).st_mode) else ""
    except OSError:
        return ""
