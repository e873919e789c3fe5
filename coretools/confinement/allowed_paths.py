"""Grant what commands may see of the system besides the roots: its programs and its configuration.

An allow-list by path: anything else, above all the operator's home, is unreadable, and with namespaces does not exist.
Programs are searched once, at start; the entries of /etc whenever one was replaced. `toolchain_grants` has what is
granted of the user's home.
"""

import os
import stat
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from coretools.config.operator_policy import CONTAINER_DIRECTORIES, ConfinementPolicy
from coretools.confinement.command_path import SYSTEM
from coretools.confinement.landlock import CHANGE, READ, READ_DIRECTORY, RUN, EntryGrants, Rule
from coretools.reach import is_beneath
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.file_version import Version, version_of
from coretools.roots.hidden_inodes import Inode, inode_of
from coretools.roots.root import Root

KERNEL = ("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm")
"""Number of processors and amount of memory, by which language runtimes choose their sizes."""

ETC = "/etc"

SECRET_ETC_ENTRIES = frozenset(
    {
        *("shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "security", "krb5.keytab", "wireguard"),
        *("kubernetes", "rancher", "docker", "containerd", "NetworkManager", "wpa_supplicant", "ppp", "openvpn"),
        *("ssh", "letsencrypt", "ipsec.secrets", "ipsec.d", "swanctl", "cups", "cron.d", "crontab", "environment"),
        *("coretools", "haproxy", "caddy", "traefik", "grafana", "prometheus", "vault"),
        *("mysql", "postgresql", "redis", "rabbitmq", "ansible", "puppet", "chef", "vault.d", "consul.d", "nomad.d"),
    }
)
"""Entries of /etc that are not granted. A server of user 0 could read them even without capabilities, as owner."""

WITH_PRIVATE = ("ssl", "pki", "pki/tls")
"""Directories of /etc with public certificates, and with private keys in a subdirectory `private`."""

PRIVATE = "private"

RESOLVER = f"{ETC}/resolv.conf"
"""Often a link to a file outside /etc, which is granted too."""


class Grant(NamedTuple):
    """A path of the machine, with links followed, and the `landlock` rights beneath it."""

    path: str
    rights: int


def system_grants() -> list[Grant]:
    """Return the grants for the operating system: programs, libraries, kernel information."""
    grants = [Grant(path, RUN) for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    grants += [Grant(path, READ) for path in KERNEL if os.path.isdir(path)]
    return grants


def etc_grants() -> list[Grant]:
    """Return the grants in /etc: one per entry, since Landlock cannot take back below what is granted above."""
    grants = _etc_directory_grants("")
    target = os.path.realpath(RESOLVER)
    if not target.startswith(f"{ETC}/") and os.path.isfile(target):
        grants.append(Grant(target, READ))
    return grants


def _etc_directory_grants(directory: str) -> list[Grant]:
    """Return the grants in /etc or in one of its directories that also holds secrets."""
    above = os.path.join(ETC, directory) if directory else ETC
    try:
        names = os.listdir(above)
    except OSError:
        return []
    grants = [Grant(above, READ_DIRECTORY)]
    for name in names:
        inner = os.path.join(directory, name)
        if inner in WITH_PRIVATE and not os.path.islink(os.path.join(above, name)):
            grants += _etc_directory_grants(inner)
        elif name not in ((PRIVATE,) if directory else SECRET_ETC_ENTRIES):
            grants.append(Grant(os.path.join(above, name), READ))
    return grants


Identities = tuple[tuple[int, int], ...]
"""Device and inode of each file; zeros for one that does not exist."""


class EtcMonitor:
    """Detects when entries of /etc were replaced. A grant applies to an inode, so new files need new grants."""

    def __init__(self) -> None:
        self._stamp: tuple[object, ...] = ()
        self._state: Identities = ()

    def state(self) -> Identities:
        """Return the identity of each entry that commands may read. Costs five stats while no directory has changed."""
        now = time.time_ns()
        directories = tuple(_version(os.path.join(ETC, name)) for name in ("", *WITH_PRIVATE))
        stamp = (*directories, *identities((RESOLVER,)))
        if stamp != self._stamp:
            self._state = identities(grant.path for grant in etc_grants())
            is_settled = all(one is None or one.is_settled(now) for one in directories)
            self._stamp = stamp if is_settled else ()
        return self._state


def identities(paths: Iterable[str]) -> Identities:
    """Return device and inode at each path, with links followed."""
    versions = map(_version, paths)
    return tuple((0, 0) if one is None else one.identity for one in versions)


def _version(path: str) -> Version | None:
    """The version of the file at a path, with links followed; None if there is none."""
    try:
        return version_of(os.stat(path))
    except OSError:
        return None


def is_granted(path: str) -> bool:
    """Whether every command may read a file because it is in a granted part of the system."""
    real = os.path.realpath(path)
    granted = [*system_grants(), *etc_grants()]
    return any(is_beneath(real, one.path) for one in granted if one.rights != READ_DIRECTORY)


def system_links() -> list[tuple[str, str]]:
    """Return top-level links of the machine that programs rely on (`/bin` is `usr/bin`), with their targets."""
    names = [path for path in SYSTEM if os.path.islink(path)]
    return [(path, os.readlink(path)) for path in names]


def outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that exist and are not inside another of them."""
    chosen: list[str] = []
    for path in sorted({path for path in paths if os.path.exists(path)}):
        if not any(is_beneath(path, one) for one in chosen):
            chosen.append(path)
    return chosen


# Read-only roots inside writable directories, for tier `landlock`.
#
# Landlock rights add up: a right on a directory applies to everything beneath it and cannot be removed further down. So
# the directories between the writable one and the read-only root are only readable, and their other entries are granted
# one by one. Nothing can be created, deleted or renamed directly in those directories: that right would apply in the
# root too.

MAX_ENTRIES = 4096
"""Most entries granted by name in one directory. The other entries are read-only."""


def directories_above_read_only_roots(roots: Iterable[Root], policy: ConfinementPolicy) -> tuple[str, ...]:
    """Return the directories in which commands cannot create entries, since a read-only root lies beneath."""
    known = list(roots)
    writable = [root.path for root in known if root.writable]
    writable += [os.path.realpath(path) for path in policy.writable]
    writable += CONTAINER_DIRECTORIES if policy.own_container else ()
    directories = set[str]()
    for path in (root.path for root in known if not root.writable):
        above = os.path.dirname(path)
        while above not in directories and any(_beneath(one, [above]) for one in writable):
            directories.add(above)
            above = os.path.dirname(above)
    return tuple(sorted(directories))


def without_read_only_roots(rules: Iterable[Rule], roots: Iterable[Root]) -> list[Rule | EntryGrants]:
    """Return the rules changed so that none grants the right to change a read-only root."""
    read_only = [path for path in (_path_of(root.fd) for root in roots if not root.writable) if path]
    changed: list[Rule | EntryGrants] = []
    for where, rights in rules:
        path = _real_path(where) if rights & CHANGE else ""
        inner = _beneath(path, read_only)
        changed.append((where, rights & ~CHANGE if inner else rights))
        if inner and path not in inner:
            changed += entry_grants(path, rights, inner)
    return changed


def entry_identities(rules: Iterable[Rule | EntryGrants]) -> tuple[Inode, ...]:
    """Return the inodes of entries granted by name. When they change, the grants have to be renewed."""
    inodes: list[Inode] = []
    for rule in rules:
        if isinstance(rule, EntryGrants):
            inodes += filter(None, (inode_of(f"{rule.path}/{name}") for name in rule.names))
    return tuple(inodes)


def _beneath(directory: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that are, by text, this directory or beneath it; none for an empty directory name."""
    return [path for path in paths if directory and is_beneath(path, directory)]


def entry_grants(
    directory: str, rights: int, excluded: list[str], *, skipped: Container[str] = ()
) -> Iterator[EntryGrants]:
    """Yield grants for the entries of a directory, and of its subdirectories, but for the closed paths.

    `skipped` are entries that are not granted because the look at one may never end.
    """
    if directory in excluded:
        return
    names: list[str] = []
    with suppress(OSError):
        handle = os.open(directory, DIRECTORY)
        try:
            status = os.fstat(handle)
            listed = sorted(os.listdir(handle))[:MAX_ENTRIES]
        finally:
            os.close(handle)
        inner_of = _by_first_name(directory, excluded)
        for name in listed:
            path = os.path.join(directory, name)
            inner = inner_of.get(name, [])
            if not inner and path not in skipped:
                names.append(name)
            elif inner and path not in inner:
                yield from entry_grants(path, rights, inner, skipped=skipped)
        yield EntryGrants(directory, rights, names, (status.st_dev, status.st_ino))


def _by_first_name(directory: str, paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the paths that are, by text, beneath a directory, by the entry of it that leads to them."""
    prefix, found = directory.rstrip("/") + "/", dict[str, list[str]]()
    for path in paths:
        if path.startswith(prefix):
            found.setdefault(path[len(prefix) :].partition("/")[0], []).append(path)
    return found


def _real_path(where: str | int) -> str:
    return os.path.realpath(where) if isinstance(where, str) else _path_of(where)


def _path_of(handle: int) -> str:
    """Return the current path of an open directory; empty when it was deleted."""
    try:
        return os.readlink(f"/proc/self/fd/{handle}") if stat.S_ISDIR(os.fstat(handle).st_mode) else ""
    except OSError:
        return ""
