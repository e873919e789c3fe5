"""What of the machine a command may see beside the roots: the system's programs and the tool chains behind its PATH.

An allow-list by path: whatever is not named here, the operator's home first of all, is neither readable nor, where
there is a view, there at all. Programs and tool chains are looked for once, at start; the entries of /etc whenever one
was replaced. Pure but for looking which of the paths exist.
"""

import os
import pwd
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from coretools.config.operator_policy import CONTAINER_DIRECTORIES, ConfinementPolicy
from coretools.confinement.landlock import CHANGE, READ, READ_DIRECTORY, RUN, EntryGrants, Rule
from coretools.roots.hidden_inodes import Inode, inode_of
from coretools.roots.root_set import Root

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store", "/snap")
"""Programs and their libraries."""

KERNEL = ("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm")
"""How many processors and how much memory there are; run times of languages size themselves by it."""

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
"""Entries of /etc that are not granted: a server of user 0 would read them without capabilities too, as their owner."""

WITH_PRIVATE = ("ssl", "pki", "pki/tls")
"""Directories of /etc that hold public certificates, and private keys in a directory of that name."""

PRIVATE = "private"

HOME_TOOLCHAINS: Mapping[str, tuple[str, ...]] = {
    "CARGO_HOME": (".cargo", "bin", "registry", "git"),
    "RUSTUP_HOME": (".rustup", "."),
    "GOPATH": ("go", "bin", "pkg"),
    "PYENV_ROOT": (".pyenv", "."),
    "NVM_DIR": (".nvm", "versions", "alias", "nvm.sh", "nvm-exec", "bash_completion"),
    "VOLTA_HOME": (".volta", "bin", "tools"),
    "RBENV_ROOT": (".rbenv", "."),
    "SDKMAN_DIR": (".sdkman", "candidates"),
    "DOTNET_ROOT": (".dotnet", "."),
    "BUN_INSTALL": (".bun", "bin"),
    "UV_PYTHON_INSTALL_DIR": (".local/share/uv/python", "."),
    "ASDF_DATA_DIR": (".asdf", "."),
    "MISE_DATA_DIR": (".local/share/mise", "."),
}
"""Tool chains that live in a home: the variable that names where, the usual place, and which parts of it are granted.
Parts are named where the rest holds credentials (`~/.cargo/credentials.toml`)."""

NEVER_GRANTED = frozenset({"/", "/home", "/root", "/proc", "/sys", "/dev", "/run", "/var", "/tmp", "/etc"})
"""Too much to be granted because a PATH names something in it."""

HOME_INDICATORS = (".ssh", ".aws", ".gnupg", ".netrc", ".bash_history", ".config")
"""No directory that holds one of these is a tool chain."""

_OF_SYSTEM_USERS = frozenset(
    {"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/games", "/usr/lib", "/usr", "/opt", "/dev"}
)
"""What /etc/passwd calls the home of users that are none."""

RESOLVER = f"{ETC}/resolv.conf"
"""Often a link to a file outside, which is granted too."""

SETTLED_NS = 2 * 10**9
"""A directory that changed less than this before it was listed may change again within the same tick of its clock, and
its times would not show that: the coarsest clock of a file system has steps of 2 s."""

LIBRARIES = ("lib", "lib64", "libexec", "share", "include", "pyvenv.cfg")
"""Stands beside the `bin` of a tool chain."""


class Grant(NamedTuple):
    """A path of the machine, links followed, and the rights beneath it (of `landlock`)."""

    path: str
    rights: int


def system_grants() -> list[Grant]:
    """The operating system: programs, libraries, public configuration."""
    found = [Grant(path, RUN) for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    found += [Grant(path, READ) for path in KERNEL if os.path.isdir(path)]
    return found


def etc_grants() -> list[Grant]:
    """What may be read in /etc: each entry for itself, since what is granted above can't be taken back below."""
    found = _etc_directory_grants("")
    outer = os.path.realpath(RESOLVER)
    if not outer.startswith(f"{ETC}/") and os.path.isfile(outer):
        found.append(Grant(outer, READ))
    return found


def _etc_directory_grants(directory: str) -> list[Grant]:
    """What may be read in a directory of /etc that holds secrets too."""
    above = os.path.join(ETC, directory) if directory else ETC
    try:
        names = os.listdir(above)
    except OSError:
        return []
    found = [Grant(above, READ_DIRECTORY)]
    for name in names:
        inner = os.path.join(directory, name)
        if inner in WITH_PRIVATE and not os.path.islink(os.path.join(above, name)):
            found += _etc_directory_grants(inner)
        elif name not in ((PRIVATE,) if directory else SECRET_ETC_ENTRIES):
            found.append(Grant(os.path.join(above, name), READ))
    return found


Identities = tuple[tuple[int, int], ...]
"""Device and inode of each of some files; zeros for one that is not there."""


class EtcMonitor:
    """Tells when entries of /etc were replaced: a grant is one of an inode, so new ones have to be granted again."""

    def __init__(self) -> None:
        self._stamp: tuple[tuple[int, ...], ...] = ()
        self._state: Identities = ()

    def state(self) -> Identities:
        """Identity of each entry that commands may read now. Costs five stats while no directory has changed."""
        now = time.time_ns()
        directories = tuple(_identity_and_ctime(os.path.join(ETC, name)) for name in ("", *WITH_PRIVATE))
        stamp = (*directories, *identities((RESOLVER,)))
        if stamp != self._stamp:
            self._state = identities(grant.path for grant in etc_grants())
            is_settled = all(now - changed > SETTLED_NS for *_, changed in directories)
            self._stamp = stamp if is_settled else ()
        return self._state


def identities(paths: Iterable[str]) -> Identities:
    """What stands at the paths now, links followed."""
    return tuple(_identity_and_ctime(path)[:2] for path in paths)


def _identity_and_ctime(path: str) -> tuple[int, int, int]:
    """Device, inode and the time of the last change; zeros when there is nothing."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return found.st_dev, found.st_ino, found.st_ctime_ns


def is_granted(path: str) -> bool:
    """Whether every command may read a file: it lies in a part of the system that is granted."""
    real = os.path.realpath(path)
    granted = [*system_grants(), *etc_grants()]
    return any(real == one.path or real.startswith(f"{one.path}/") for one in granted if one.rights != READ_DIRECTORY)


def toolchain_grants(environment: Mapping[str, str], *, home: str, prefixes: Sequence[str]) -> list[Grant]:
    """The tool chains: what stands behind the PATH, in known places of the home, and the server's own Python."""
    paths = [os.path.realpath(prefix) for prefix in prefixes]
    for folder in environment.get("PATH", "").split(os.pathsep):
        paths += _toolchain_paths(os.path.realpath(folder), home) if folder else ()
    for variable, (usual, *parts) in HOME_TOOLCHAINS.items():
        place = environment.get(variable) or os.path.join(home, usual)
        paths += [os.path.realpath(os.path.join(place, part)) for part in parts]
    paths += _linked_toolchains(environment)
    return [Grant(path, RUN) for path in _outermost(path for path in paths if not _is_private(path, home))]


def _is_private(path: str, home: str) -> bool:
    """Whether a path is, or lies above, somebody's home, or looks like one: a PATH that names `~/bin` opens no more."""
    homes = {os.path.realpath(home), *(os.path.realpath(one.pw_dir) for one in pwd.getpwall())} - {"/"}
    is_above = any(one == path or one.startswith(f"{path}/") for one in homes if one not in _OF_SYSTEM_USERS)
    return (
        path in NEVER_GRANTED or is_above or any(os.path.lexists(os.path.join(path, name)) for name in HOME_INDICATORS)
    )


def home_variables(environment: Mapping[str, str], home: str) -> dict[str, str]:
    """Variables that tell tool chains where they are, now that their home is hidden from them."""
    places = {variable: os.path.join(home, usual) for variable, (usual, *_) in HOME_TOOLCHAINS.items() if home}
    return {name: place for name, place in places.items() if name not in environment and os.path.isdir(place)}


def system_links() -> list[tuple[str, str]]:
    """Links at the top of the machine that programs go by (`/bin` is `usr/bin`), and what they say."""
    names = [path for path in SYSTEM if os.path.islink(path)]
    return [(path, os.readlink(path)) for path in names]


def path_links(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Links on the way to the folders of the PATH: where each stands, and what it really is."""
    found = []
    for folder in environment.get("PATH", "").split(os.pathsep):
        path = folder.rstrip("/")
        if os.path.isabs(path) and os.path.isdir(path) and os.path.realpath(path) != path:
            found.append((path, os.path.realpath(path)))
    return found


def _toolchain_paths(folder: str, home: str) -> Iterable[str]:
    """A folder of programs, and the libraries of the same tool chain."""
    above = os.path.dirname(folder)
    yield folder
    if os.path.basename(folder) in ("bin", "sbin") and above not in (home, *NEVER_GRANTED):
        if home and os.path.dirname(above) == home:
            # ~/.local and the like hold more than a tool chain.
            yield from (os.path.join(above, name) for name in ("lib", "libexec"))
        else:
            yield above if _is_toolchain(above) else folder


def _is_toolchain(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in LIBRARIES)


def _linked_toolchains(environment: Mapping[str, str]) -> Iterable[str]:
    """Where links in the PATH's folders lead: a few are enough to know a tool chain elsewhere (`~/.local/bin/x`)."""
    for folder in environment.get("PATH", "").split(os.pathsep):
        if not os.path.isabs(folder) or folder.startswith(("/usr", "/bin", "/sbin")):
            continue
        try:
            with os.scandir(folder) as entries:
                targets = {os.path.realpath(entry.path) for entry in entries if entry.is_symlink()}
        except OSError:
            continue
        for target in targets:
            above = os.path.dirname(target)
            chain = os.path.dirname(above)
            # A working copy is somebody's project, not a tool chain, though it has a `bin` too.
            if os.path.basename(above) == "bin" and _is_toolchain(chain) and not os.path.lexists(f"{chain}/.git"):
                yield chain


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths that exist and do not lie in another of them."""
    chosen: list[str] = []
    for path in sorted({path for path in paths if os.path.exists(path)}):
        if not any(path == one or path.startswith(f"{one}/") for one in chosen):
            chosen.append(path)
    return chosen


# Read-only roots that lie in something writable, for a tier whose only means is Landlock.
#
# Landlock adds up: a right that is granted to a directory holds for all beneath it and can't be taken back further
# down.
# So what is writable around a read-only root is granted entry by entry, from the writable directory down to the one
# that
# holds the root; those directories themselves are only read. Nothing can be created, deleted or renamed directly in
# them, since that right would hold in the root too.


MAX_ENTRIES = 4096
"""Granted in one directory, by name; the rest of a larger one is read-only."""

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def directories_above_read_only_roots(roots: Iterable[Root], policy: ConfinementPolicy) -> tuple[str, ...]:
    """Directories in which commands can create nothing, since a read-only root lies beneath."""
    known = list(roots)
    writable = [root.path for root in known if root.writable]
    writable += [os.path.realpath(path) for path in policy.writable]
    writable += CONTAINER_DIRECTORIES if policy.own_container else ()
    found = set[str]()
    for path in (root.path for root in known if not root.writable):
        above = os.path.dirname(path)
        while above not in found and any(_beneath(one, [above]) for one in writable):
            found.add(above)
            above = os.path.dirname(above)
    return tuple(sorted(found))


def without_read_only_roots(rules: Iterable[Rule], roots: Iterable[Root]) -> list[Rule | EntryGrants]:
    """The rules, of which none gives a right to change a read-only root."""
    closed = [path for path in (_path_of(root.fd) for root in roots if not root.writable) if path]
    found: list[Rule | EntryGrants] = []
    for where, rights in rules:
        path = _real_path(where) if rights & CHANGE else ""
        inner = _beneath(path, closed)
        found.append((where, rights & ~CHANGE if inner else rights))
        if inner and path not in inner:
            found += _entry_grants(path, rights, inner)
    return found


def entry_identities(rules: Iterable[Rule | EntryGrants]) -> tuple[Inode, ...]:
    """What is granted by name, as it stands now. When that changes, what was granted before is not what is there."""
    found: list[Inode] = []
    for rule in rules:
        if isinstance(rule, EntryGrants):
            found += filter(None, (inode_of(f"{rule.path}/{name}") for name in rule.names))
    return tuple(found)


def _beneath(directory: str, paths: Iterable[str]) -> list[str]:
    """Those of the paths that are this directory or lie in it, by text; none for no directory."""
    return [path for path in paths if directory and f"{path}/".startswith(f"{directory.rstrip('/')}/")]


def _entry_grants(directory: str, rights: int, closed: list[str]) -> Iterator[EntryGrants]:
    """The entries of a directory, and of those in it that hold what is closed."""
    names: list[str] = []
    with suppress(OSError):
        handle = os.open(directory, _OPEN_DIRECTORY)
        try:
            found = os.fstat(handle)
            listed = sorted(os.listdir(handle))[:MAX_ENTRIES]
        finally:
            os.close(handle)
        for name in listed:
            path = os.path.join(directory, name)
            inner = _beneath(path, closed)
            if not inner:
                names.append(name)
            elif path not in inner:
                yield from _entry_grants(path, rights, inner)
        yield EntryGrants(directory, rights, names, (found.st_dev, found.st_ino))


def _real_path(where: str | int) -> str:
    return os.path.realpath(where) if isinstance(where, str) else _path_of(where)


def _path_of(handle: int) -> str:
    """Where an open directory is now; empty when it was deleted."""
    try:
        return os.readlink(f"/proc/self/fd/{handle}") if stat.S_ISDIR(os.fstat(handle).st_mode) else ""
    except OSError:
        return ""
