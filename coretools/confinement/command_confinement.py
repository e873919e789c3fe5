"""Derive the confinement of commands (namespaces, Landlock rules, limits) from roots, policy and machine.

Policy only: the fork server in `process` enforces it. The confinement depends on the tier: `full` has namespaces,
`landlock` has none, and `none` confines nothing.
"""

import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from coretools.config.operator_policy import CONTAINER_DIRECTORIES, ConfinementPolicy
from coretools.confinement import allowed_paths, landlock, namespaces, seccomp
from coretools.confinement.allowed_paths import Grant
from coretools.confinement.caches import CARGO_HOME_NAME, NO_CACHES, CommandCaches, create_cargo_home
from coretools.confinement.memory import memory_bytes
from coretools.confinement.protected_paths import HiddenPath, Masks
from coretools.confinement.toolchain_grants import (
    NEVER_GRANTED,
    ToolchainSources,
    UserToolchains,
    path_links,
    user_toolchains,
)
from coretools.confinement.toolchains import home_of
from coretools.confinement.user_git import IN_VIEW, NO_USER_GIT, UserGit
from coretools.egress.environment import PORT
from coretools.reach import is_beneath
from coretools.roots.root import Root
from coretools.roots.root_set import Roots

DEFAULT_FILE_BYTES = 2 * 1024**3
"""Largest file that a command may write, by default."""
DEFAULT_PROCESSES = 512
"""Most processes of one command at once, by default."""
_MEMORY_SHARE = 0.75
"""Share of the memory of the machine or container that the data of one process may use, by default."""
_SHARED_MEMORY_BYTES = 1024**3
_TASKS_PER_PROCESS = 4
"""Limit for processes and threads of all commands together, per allowed process of one command."""


TERMINALS = ("/dev/ptmx", "/dev/pts")
"""The device that creates terminals, and the directory of the terminals."""


@dataclass(frozen=True, slots=True)
class ScratchDirectories:
    """Private directories of the server that commands see as `/tmp` and as their home. Removed with the server."""

    path: str
    identities: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Device and inode of each, by path, since something else may have their names later."""

    def bind(self, path: str, source: str) -> namespaces.BindMount:
        """Return the bind mount of one of the two directories at a path."""
        return namespaces.BindMount(path, writable=True, source=source, identity=self.identities[source])

    @property
    def temporary(self) -> str:
        """The directory that commands see as /tmp."""
        return f"{self.path}/tmp"

    @property
    def home(self) -> str:
        """The directory that commands see as their home."""
        return f"{self.path}/home"


@dataclass(frozen=True, slots=True)
class CommandConfinement:
    """The confinement of all commands of a server, except for the paths that are masked now."""

    roots: Roots
    policy: ConfinementPolicy
    environment: Mapping[str, str]
    """The environment that commands inherit."""
    system: tuple[Grant, ...]
    """Grants for the system's programs."""
    toolchains: UserToolchains
    home: str
    """Home of the server's user, which commands do not see."""
    caches: CommandCaches = NO_CACHES
    user_git: UserGit = NO_USER_GIT
    cpu_seconds: int | None = None
    """Most processor time of each process. None: not limited."""
    etc: allowed_paths.EtcMonitor = field(default_factory=allowed_paths.EtcMonitor)

    @property
    def programs(self) -> tuple[Grant, ...]:
        """Grants for the system's programs and for toolchains."""
        return (*self.system, *self.toolchains.grants)

    @property
    def granted(self) -> tuple[Grant, ...]:
        """What every command may currently read or run besides the roots."""
        return (*self.programs, *allowed_paths.etc_grants())

    def grant_state(self, scratch: ScratchDirectories, *, in_namespaces: bool) -> tuple[object, ...]:
        """Return the identities of what is at the granted paths. When they change, the grants have to be renewed."""
        by_name = (
            ()
            if in_namespaces or all(root.writable for root in self.roots)
            else self.rules(scratch, in_namespaces=False)
        )
        return (
            *self.etc.state(),
            *allowed_paths.identities(grant.path for grant in (*self.programs, *self._operator_grants())),
            *allowed_paths.entry_identities(by_name),
        )

    def namespace_plan(
        self, scratch: ScratchDirectories, masks: Masks, *, is_polled: bool = False
    ) -> namespaces.NamespacePlan:
        """Return the namespaces of tier `full`. `is_polled`: inotify does not report every change beneath the roots."""
        binds = {
            grant.path: namespaces.BindMount(grant.path, writable=False)
            for grant in self.granted
            if not is_beneath(grant.path, allowed_paths.ETC)
        }
        binds[allowed_paths.ETC] = namespaces.BindMount(allowed_paths.ETC, writable=False)
        for path in _directories(self.policy.readable):
            binds[path] = namespaces.BindMount(path, writable=False)
        for path in ("/tmp", "/var/tmp"):
            binds[path] = scratch.bind(path, scratch.temporary)
        if self.hides_home:
            binds[self.home] = scratch.bind(self.home, scratch.home)
        binds |= self._git_binds()
        for path in _directories(self.policy.writable):
            binds[path] = namespaces.BindMount(path, writable=True)
        for root in self.roots:
            binds[root.path] = namespaces.BindMount(root.path, writable=root.writable, identity=root.identity)
        links = path_links(self.toolchains.path, [path for path in binds if path != self.home])
        return namespaces.NamespacePlan(
            binds=sorted(binds.values(), key=lambda bind: bind.path.split("/")),
            links=[*allowed_paths.system_links(), *links],
            parents=self._parents(binds),
            pinned=masks.pinned,
            read_only=(*masks.read_only, *masks.settings),
            masked=masks.masked,
            identities=masks.identities,
            shares_network=self.has_network,
            proxy_port=PORT if self.has_host_list else 0,
            shared_memory_bytes=_SHARED_MEMORY_BYTES,
            max_tasks=self.max_tasks,
            is_polled=is_polled,
        )

    def _parents(self, binds: Mapping[str, namespaces.BindMount]) -> list[str]:
        """Return the directories of the home that contain roots or their repositories.

        They look like the user's own, so what a command wrote there (`../notes.txt`) would be lost without a word.
        Those with a dot in front belong to programs, which write there (`~/.config`).
        """
        inside = f"{self.home}/"
        above = {os.path.dirname(root.path) for root in self.roots} if self.hides_home else set()
        others = [path for path in binds if path.startswith(inside)]
        return sorted(
            path
            for path in above
            if path.startswith(inside)
            and "/." not in path.removeprefix(self.home)
            and not any(is_beneath(path, other) for other in others)
        )

    def rules(self, scratch: ScratchDirectories, *, in_namespaces: bool) -> list[landlock.Rule | landlock.EntryGrants]:
        """Return the Landlock rules. They grant roots by path inside namespaces and by descriptor elsewhere.

        Without namespaces commands only read the repository of a linked work tree: a right to create files in it would
        be one to create hooks (docs/adr/0047). Nor do they read the work tree of which a root is a folder.
        """
        full = landlock.RUN | landlock.CHANGE
        rules: list[landlock.Rule] = [*self.granted, *self._operator_grants()]
        rules += [
            (root.path, _rights(root)) if in_namespaces else (root.fd, landlock.RUN if root.only_git else _rights(root))
            for root in self.roots
            if in_namespaces or not root.is_above
        ]
        rules += [Grant(f"/dev/{name}", landlock.DEVICE) for name in namespaces.DEVICES]
        if not in_namespaces:
            rules += [Grant("/proc", landlock.READ), *(Grant(path, full) for path in (scratch.temporary, scratch.home))]
            rules += self._git_grants(self.user_git.directory)
            return allowed_paths.without_read_only_roots([*rules, *self._own_container(scratch)], self.roots)
        # Private to the command in its namespaces; the machine's own would be an exit.
        own = ("/tmp", "/var/tmp", "/dev/shm", namespaces.CONFIG_COPIES, *((self.home,) if self.hides_home else ()))
        rules += [Grant("/", landlock.READ_DIRECTORY), Grant("/proc", landlock.READ)]
        rules += [Grant(path, landlock.DEVICE) for path in TERMINALS]
        rules += self._git_grants(IN_VIEW)
        return [*rules, *(Grant(path, full) for path in own)]

    def _git_grants(self, path: str) -> list[Grant]:
        return [Grant(path, landlock.RUN)] if self.user_git.directory else []

    def _git_binds(self) -> dict[str, namespaces.BindMount]:
        """Return the mounts of the user's git configuration."""
        if not self.user_git.directory:
            return {}
        binds = {IN_VIEW: namespaces.BindMount(IN_VIEW, writable=False, source=self.user_git.directory)}
        if self.mounts_git_config:
            source = f"{self.user_git.directory}/config-in-view"
            path = f"{self.home}/.gitconfig"
            binds[path] = namespaces.BindMount(path, writable=False, source=source)
        return binds

    @property
    def mounts_git_config(self) -> bool:
        """Whether git in the view finds the user's configuration in the home of commands.

        Better than a variable: a test suite that sets HOME to a directory of its own gets a git of its own.
        """
        return self.hides_home and "GIT_CONFIG_GLOBAL" not in self.environment

    def _own_directories(self, scratch: ScratchDirectories) -> tuple[str, ...]:
        """Return the shared directories that commands may use when the server owns its container.

        Leaves out one that contains the temporary directories and homes of the server's roles.
        """
        own = CONTAINER_DIRECTORIES if self.policy.own_container else ()
        return tuple(
            path for path in own if not os.path.realpath(scratch.path).startswith(f"{os.path.realpath(path)}/")
        )

    def _own_container(self, scratch: ScratchDirectories) -> list[Grant]:
        """Return the grants for the container's directories and terminals when the server owns the container."""
        if not self.policy.own_container:
            return []
        grants = [Grant(path, landlock.RUN | landlock.CHANGE) for path in self._own_directories(scratch)]
        return grants + [Grant(path, landlock.DEVICE) for path in TERMINALS]

    def _operator_grants(self) -> list[Grant]:
        """Return the grants for the operator's `readable` and `writable` paths."""
        full = landlock.RUN | landlock.CHANGE
        grants = [Grant(path, landlock.RUN) for path in self.policy.readable]
        return grants + [Grant(path, full) for path in self.policy.writable]

    def can_see(self, path: str) -> bool:
        """Whether commands can see a path of the machine."""
        real = os.path.realpath(path)
        given = [os.path.realpath(grant.path) for grant in (*self.granted, *self._operator_grants())]
        given += [root.path for root in self.roots]
        return any(is_beneath(real, one) for one in given)

    @property
    def has_network(self) -> bool:
        """Whether commands may use the machine's network."""
        return self.policy.network == "allow"

    @property
    def has_host_list(self) -> bool:
        """Whether commands reach listed hosts only, through the server's proxy; only in tier `full`."""
        return not isinstance(self.policy.network, str)

    @property
    def hides_home(self) -> bool:
        """Whether commands get another home: the user's is a directory of its own and in no root."""
        own = bool(self.home) and self.home not in NEVER_GRANTED - {"/root"}
        return own and not any(is_beneath(self.home, root.path) for root in self.roots)

    def socket_families(self, tier: str) -> tuple[int, ...]:
        """Return the socket families that commands may use.

        A network namespace without a granted network leads nowhere, and only Unix sockets in granted directories are
        visible. Without namespaces supervisors check addresses; IPv6 is refused, because a socket cannot be kept on one
        device (ipv6(7), scope of an address).
        """
        if tier == "full":
            return (seccomp.UNIX, seccomp.INET, seccomp.INET6, seccomp.NETLINK)
        return (seccomp.UNIX, seccomp.INET, *((seccomp.INET6,) if self.has_network else ()))

    def socket_directories(self, scratch: ScratchDirectories) -> tuple[str, ...]:
        """Return the directories whose Unix sockets commands may connect to without namespaces."""
        granted = [
            *(root.path for root in self.roots if not (root.only_git or root.is_above)),
            *self.policy.writable,
            *self._own_directories(scratch),
        ]
        granted += [scratch.temporary, scratch.home]
        return tuple(os.path.realpath(path) for path in granted)

    @property
    def max_processes(self) -> int:
        """Most processes of one command at once."""
        return self.policy.processes or DEFAULT_PROCESSES

    @property
    def max_tasks(self) -> int:
        """Most processes and threads of all commands together."""
        return _TASKS_PER_PROCESS * self.max_processes

    @property
    def memory_bytes(self) -> int:
        """Most memory for the data of one process, and for all commands together where a control group limits it."""
        return self.policy.memory_bytes or int(_MEMORY_SHARE * memory_bytes())

    def limits(self, tier: str) -> list[tuple[int, int]]:
        """Return the resource limits of every process of a command."""
        memory = self.memory_bytes
        file = self.policy.file_bytes or DEFAULT_FILE_BYTES
        limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, file), (resource.RLIMIT_DATA, memory)]
        limits += [(resource.RLIMIT_CPU, self.cpu_seconds)] if self.cpu_seconds is not None else []
        # A user namespace counts its processes separately (Linux 5.14); elsewhere all of the user's count.
        return [*limits, (resource.RLIMIT_NPROC, self.max_tasks)] if tier == "full" else limits

    def prepare_home(self, scratch: ScratchDirectories) -> None:
        """Fill the home of commands with the directories that tool chains write to."""
        with suppress(OSError):  # a relative path in a working directory that was removed, too
            cargo_home = os.path.realpath(self.environment.get("CARGO_HOME") or os.path.join(self.home, ".cargo"))
            create_cargo_home(cargo_home, f"{scratch.home}/{CARGO_HOME_NAME}")


def command_confinement(
    roots: Roots,
    policy: ConfinementPolicy,
    environment: Mapping[str, str],
    *,
    login_path: Callable[[], Sequence[str]] = tuple,
    caches: CommandCaches = NO_CACHES,
    user_git: UserGit = NO_USER_GIT,
) -> CommandConfinement:
    """Find the programs and toolchains of the machine, and open the caches; done once, before the first command.

    `login_path` returns the PATH of the user's login shell.
    """
    home = home_of(environment)
    sources = ToolchainSources(
        environment=environment,
        home=home,
        login_path=login_path(),
        roots=[*(root.path for root in roots), *map(os.path.realpath, policy.writable)],
        readable=policy.readable,
        prefixes=(sys.prefix, sys.base_prefix),
    )
    caches.prepare()
    system = tuple(allowed_paths.system_grants())
    return CommandConfinement(roots, policy, environment, system, user_toolchains(sources), home, caches, user_git)


def _rights(root: Root) -> int:
    return landlock.RUN | landlock.CHANGE if root.writable else landlock.RUN


def _directories(paths: Sequence[str]) -> list[str]:
    return [path for path in (os.path.realpath(given) for given in paths) if os.path.exists(path)]


class ConfinementStatus(NamedTuple):
    """How commands are confined here."""

    tier: str
    missing: Mapping[str, str]
    """Stronger tiers, and why each is unavailable."""
    is_permitted: bool
    """Whether commands may run in this tier, as configured by the operator."""
    is_whole: bool
    """Whether the scan of the roots for hidden files is complete."""
    bounds: Mapping[str, bool] | None = None
    """Whether a control group limits all commands together, by controller; None without a group."""
    polled: tuple[str, ...] = ()
    """Why directories are polled for changes; empty if all are watched."""
    hidden: tuple[HiddenPath, ...] = ()
    """Files in the roots that commands can't read; only known in tier `full`."""
    exposed: tuple[HiddenPath, ...] = ()
    """Files in the roots that hold a secret and that commands can read; only known in tier `landlock`."""
    refusal: str = ""
    """Why commands are refused as long as the roots are as they are; empty if they are not."""
