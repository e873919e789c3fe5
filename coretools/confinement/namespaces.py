"""Namespaces in which a process sees and can change only what a plan grants.

The root file system is built from nothing: the plan's bind mounts are its only content. That closes what Landlock
leaves open (sizes and times of files outside, chmod, chown, extended attributes, sockets by path). With PID and network
namespaces nothing outside can be signalled, traced or connected to. Only the fork server uses this module, in a process
without threads; it imports the standard library alone. See namespaces(7), mount_namespaces(7), pivot_root(2).
"""

import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

from coretools.confinement import syscalls
from coretools.confinement.mount_points import is_beneath, mount_point, open_parent
from coretools.confinement.overlay import mount_overlay, overlaid_identities
from coretools.confinement.overmounts import (
    ATTR_NO_DEVICES,
    ATTR_NO_EXEC,
    ATTR_NO_SUID,
    ATTR_READ_ONLY,
    HANDLE,
    MASKED,
    PINNED,
    READ_ONLY,
    Overmount,
    Overmounts,
    Placeholders,
    attach,
    clone,
    clone_at,
    make_read_only_alone,
    restrict_mount,
)

NEW_MOUNTS, NEW_IPC, NEW_USERS, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x08000000, 0x10000000, 0x20000000, 0x40000000

CONFIG_COPIES = "/.git-config"
"""Directory of the copies of git configurations."""

_BASE = "/usr"
"""Mount point for the new root while it is built. Exists on every system."""

_RECURSIVE, _PRIVATE, _DETACH = 0x4000, 0x40000, 2
_AT_FDCWD = -100
"""AT_FDCWD."""

_PROC_READ_ONLY = ("sys", "irq", "bus", "fs", "scsi", "acpi", "sysrq-trigger", "mtrr", "asound", "pressure")
_PROC_MASKED = (
    *("kcore", "kallsyms", "kmsg", "keys", "key-users", "timer_list", "sched_debug", "latency_stats", "slabinfo"),
    *("vmallocinfo", "pagetypeinfo", "kpagecount", "kpageflags", "kpagecgroup", "iomem", "ioports"),
)
"""Entries of /proc."""

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "fd/0"),
    ("stdout", "fd/1"),
    ("stderr", "fd/2"),
    ("ptmx", "pts/ptmx"),
)

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
"""SIOCGIFFLAGS, SIOCSIFFLAGS and IFF_UP."""


_BACKLOG = 128
"""Connections that wait to be accepted."""


class BindMount(NamedTuple):
    """A directory or file of the machine to bind-mount, at the same path unless `source` names another."""

    path: str
    writable: bool
    source: str = ""
    """Path on the machine, if not `path`."""
    identity: tuple[int, int] | None = None
    """Required device and inode; None accepts any."""
    upper: str = ""
    """Where an overlay keeps what is changed; empty for a plain mount, whose changes reach the source."""
    work: str = ""
    """Directory in which an overlay prepares changes, on the file system of `upper`."""


class NamespacePlan(NamedTuple):
    """Everything that the namespaces of a command consist of."""

    binds: Sequence[BindMount]
    """Sorted so that parents precede their children."""
    links: Sequence[tuple[str, str]]
    """Symbolic links of the machine and their targets: `/bin`, which is `usr/bin`."""
    pinned: Sequence[str]
    """Paths that can be changed, but not moved or replaced."""
    read_only: Sequence[str]
    """Paths that cannot be changed, moved or replaced."""
    masked: Sequence[str]
    """Paths that cannot be read either."""
    shares_network: bool
    """Whether the machine's network is shared; otherwise there is only a loopback device of its own."""
    shared_memory_bytes: int
    max_tasks: int
    """Most processes and threads at once, where the kernel can limit them (Linux 6.14)."""
    linked: Sequence[tuple[str, str]] = ()
    """Files to cover with symbolic links, and the targets. None can be moved or replaced; writes reach the target."""
    identities: Mapping[str, tuple[int, int]] = {}
    """Device and inode of what is expected at pinned, read-only, masked and linked paths, as far as known."""
    is_polled: bool = False
    """Whether some directories need polling because inotify does not report their changes."""
    parents: Sequence[str] = ()
    """Directories that contain nothing but what else is mounted in them, and stay as they are."""
    proxy_port: int = 0
    """Port on loopback where the server accepts connections of commands; 0: none."""


def unshare_namespaces(*, network: bool) -> None:
    """Move into new namespaces. The process keeps its user and group; its next child is process 1 in them.

    Raises:
        OSError: the system does not let this user create namespaces.
    """
    # Before the unshare: in a user namespace without a map every id reads as the overflow id (user_namespaces(7)).
    user, group = os.geteuid(), os.getegid()
    syscalls.unshare(NEW_USERS | NEW_MOUNTS | NEW_IPC | NEW_PROCESSES | (0 if network else NEW_NETWORK))
    # A group map may be written only after setgroups was denied (user_namespaces(7)).
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def listen_on_loopback(port: int) -> socket.socket:
    """Make a listener in the network namespace of this process; it stays there, whoever accepts on it.

    Raises:
        OSError: not permitted, or the port is taken.
    """
    listener = socket.socket()
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def build(plan: NamespacePlan) -> Overmounts:
    """Replace the file system of this process (process 1 of its namespaces) and its children by that of the plan.

    The caller must call `remount_lost` on the returned overmounts when they are lost.

    Raises:
        OSError: a mount failed, or the file at a path is not the one that the plan expects.
    """
    # The copied mounts are slaves of the machine's: without this a later mount of the machine would appear here too
    # (mount_namespaces(7)).
    syscalls.syscall("mount", None, b"/", None, _RECURSIVE | _PRIVATE, None)
    if not plan.shares_network:
        _bring_up_loopback()
    # All sources are opened before anything is mounted over the machine's directories, which hides what lies beneath.
    trees = [_MountedTree(bind, _clone_bind(bind)) for bind in plan.binds]
    devices = [(name, clone_at(f"/dev/{name}")) for name in DEVICES]
    _mount("tmpfs", _BASE, ATTR_NO_SUID | ATTR_NO_DEVICES, "mode=755,size=16m")
    placeholders = Placeholders(_BASE)
    _mount_proc_and_devices(devices, plan, placeholders)
    parents = [(path, placeholders.parent(f"parent-{number}")) for number, path in enumerate(plan.parents)]
    mounts = [*((tree.bind.path, tree.handle, tree.is_directory) for tree in trees), *((*one, True) for one in parents)]
    for path, handle, is_directory in sorted(mounts, key=lambda mount: mount[0].split("/")):
        with mount_point(_BASE, path, directory=is_directory) as place:
            attach(handle, place)
    for path, target in plan.links:
        _link(path, target)
    identities = overlaid_identities(plan.identities, [(tree.bind, tree.handle) for tree in trees if tree.bind.upper])
    overmounts = _overmounts(plan._replace(identities=identities), placeholders)
    overmounts.start_watching(is_polled=plan.is_polled)
    overmounts.mount_all({tree.bind.path: tree.handle for tree in trees})
    for tree in trees:
        os.close(tree.handle)
    # Read-only at last: until here mount points and placeholders were created in them.
    for _, handle in parents:
        make_read_only_alone(handle)
        os.close(handle)
    syscalls.syscall("mount_setattr", _AT_FDCWD, _BASE.encode(), 0, struct.pack("4Q", ATTR_READ_ONLY, 0, 0, 0), 32)
    os.chdir(_BASE)
    # Stack the old root on the new one and detach it (pivot_root(2), `pivot_root(".", ".")`).
    syscalls.syscall("pivot_root", b".", b".")
    syscalls.syscall("umount2", b".", _DETACH)
    os.chdir("/")
    return overmounts


class _MountedTree(NamedTuple):
    bind: BindMount
    handle: int

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(os.fstat(self.handle).st_mode)


def _clone_bind(bind: BindMount) -> int:
    """Return a detached mount of what the bind names."""
    source = bind.source or bind.path
    # By descriptor: what is checked is what gets mounted, although the path may be exchanged in between.
    handle = os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if bind.identity is not None and [status.st_dev, status.st_ino] != list(bind.identity):
            raise OSError(errno.ESTALE, "was replaced", source)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, "is a link", source)
        if bind.upper:
            return mount_overlay(handle, bind.upper, bind.work)
        return restrict_mount(clone(handle), writable=bind.writable)
    finally:
        os.close(handle)


def _overmounts(plan: NamespacePlan, placeholders: Placeholders) -> Overmounts:
    """Return one overmount per protected path, but none inside a masked directory or for a bind mount itself."""
    trees = {bind.path for bind in plan.binds}
    masked = set(plan.masked)
    links = []
    for number, (path, target) in enumerate(plan.linked):
        if path not in masked and not is_beneath(path, masked, trees):
            placeholders.link(f"link-{number}", target)
            links.append((path, f"link-{number}"))
    kinds = (
        *((path, PINNED) for path in plan.pinned if path not in masked),
        *((path, READ_ONLY) for path in plan.read_only if path not in masked),
        *((path, MASKED) for path in sorted(masked) if not is_beneath(path, masked, trees)),
        *links,
    )
    overmounts = [Overmount(path, kind, plan.identities.get(path)) for path, kind in kinds if path not in trees]
    return Overmounts(overmounts, placeholders)


def _link(path: str, target: str) -> None:
    """Create a symbolic link in the new root unless something exists there."""
    with ExitStack() as way, suppress(FileExistsError):
        os.symlink(target, os.path.basename(path), dir_fd=open_parent(_BASE, path, way))


def _mount_proc_and_devices(
    devices: Sequence[tuple[str, int]], plan: NamespacePlan, placeholders: Placeholders
) -> None:
    for name in ("proc", "dev"):
        os.mkdir(f"{_BASE}/{name}")
    _mount("proc", f"{_BASE}/proc", ATTR_NO_SUID | ATTR_NO_DEVICES | ATTR_NO_EXEC, "")
    _limit_tasks(plan.max_tasks)
    _restrict_proc(placeholders)
    _mount("tmpfs", f"{_BASE}/dev", ATTR_NO_SUID | ATTR_NO_EXEC, "mode=755,size=64k")
    for name, tree in devices:
        with mount_point(f"{_BASE}/dev", name, directory=False) as place:
            attach(tree, place)
            os.close(tree)
    for name, target in _DEVICE_LINKS:
        os.symlink(target, f"{_BASE}/dev/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{_BASE}/dev/{name}")
    # An instance of its own, without the machine's terminals; the default mode of its ptmx is 0000 (devpts.rst).
    _mount("devpts", f"{_BASE}/dev/pts", ATTR_NO_SUID | ATTR_NO_EXEC, "newinstance,ptmxmode=0666,mode=620")
    _mount(
        "tmpfs",
        f"{_BASE}/dev/shm",  # noqa: S108  # private to the namespace
        ATTR_NO_SUID | ATTR_NO_DEVICES,
        f"mode=1777,size={plan.shared_memory_bytes}",
    )


def _restrict_proc(placeholders: Placeholders) -> None:
    """Make kernel settings in /proc read-only and mask its internals: they belong to the whole machine.

    User 0 of the machine may write them without any capability, in any namespace.
    """
    handle = os.open(f"{_BASE}/proc", HANDLE)
    try:
        kinds = ((READ_ONLY, _PROC_READ_ONLY), (MASKED, _PROC_MASKED))
        overmounts = [Overmount(f"/proc/{name}", kind) for kind, names in kinds for name in names]
        Overmounts(overmounts, placeholders).mount_all({"/proc": handle})
    finally:
        os.close(handle)


def _limit_tasks(most: int) -> None:
    """Limit the process ids of this PID namespace, and so the number of its processes.

    Before Linux 6.14 the file applies to the whole machine, and root could really change it, so it is left alone.
    """
    release = os.uname().release.split(".")
    if (int(release[0]), int(release[1].partition("-")[0])) < (6, 14):
        return
    with suppress(OSError), open(f"{_BASE}/proc/sys/kernel/pid_max", "w", encoding="ascii") as file:
        file.write(str(most))


def _mount(kind: str, target: str, flags: int, options: str) -> None:
    syscalls.syscall("mount", kind.encode(), os.fsencode(target), kind.encode(), flags, options.encode())


def _bring_up_loopback() -> None:
    # The loopback device of a new network namespace is down. Any socket will do for these requests (netdevice(7)).
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(channel, _GET_FLAGS, request))[1]
        fcntl.ioctl(channel, _SET_FLAGS, struct.pack("16sh22x", b"lo", flags | _UP))
