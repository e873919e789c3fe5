"""A private view of the machine: namespaces in which a process sees, and can change, only what it was given.

The view is a file system of its own, built from nothing: what the plan names is bound into it, everything else is not
there. It closes what Landlock leaves open (sizes and times of files outside, chmod, chown, extended attributes, sockets
by path), and with its own processes and network nothing outside can be signalled, traced or called. Used by the spawner
alone, in a process without threads; standard library only. Facts: namespaces(7), mount_namespaces(7), pivot_root(2).
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
    restrict_mount,
)

NEW_MOUNTS, NEW_IPC, NEW_USERS, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x08000000, 0x10000000, 0x20000000, 0x40000000

CONFIG_COPIES = "/.git-config"
"""Where copies of git's configuration are seen."""

_BASE = "/usr"
"""Where the new root is put together, out of sight of everybody else; a directory that is there everywhere."""

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


class BindMount(NamedTuple):
    """A directory or file of the machine that is seen in the view, at the same path unless `source` says otherwise."""

    path: str
    writable: bool
    source: str = ""
    """Where it comes from, if not from `path`."""
    identity: tuple[int, int] | None = None
    """Device and inode that must stand there; None takes what stands there."""


class NamespacePlan(NamedTuple):
    """Everything that a view consists of."""

    binds: Sequence[BindMount]
    """Parents before what lies in them."""
    links: Sequence[tuple[str, str]]
    """Links of the machine's own, and what they say: `/bin`, which is `usr/bin`."""
    pinned: Sequence[str]
    """Can be changed, but not moved away or replaced."""
    read_only: Sequence[str]
    """Can't be changed, moved or replaced."""
    masked: Sequence[str]
    """Can't be read either."""
    shares_network: bool
    """Share the machine's network; otherwise there is a loopback of the view's own, and nothing else."""
    shared_memory_bytes: int
    max_tasks: int
    """Most processes and threads in the view at once, where the kernel can bound them (Linux 6.14)."""
    linked: Sequence[tuple[str, str]] = ()
    """Files that lead elsewhere, and where: can't be moved or replaced; a write goes to what they lead to."""
    identities: Mapping[str, tuple[int, int]] = {}
    """Device and inode of what stands at paths that are pinned, fixed, masked or linked, as far as known."""
    is_polled: bool = False
    """Whether beneath the binds there are changes that inotify does not tell of."""


def unshare_namespaces(*, network: bool) -> None:
    """Move into new namespaces. The process keeps its user and group; its next child is process 1 of the new ones.

    Raises:
        OSError: the system does not let this user have namespaces.
    """
    user, group = os.geteuid(), os.getegid()
    syscalls.unshare(NEW_USERS | NEW_MOUNTS | NEW_IPC | NEW_PROCESSES | (0 if network else NEW_NETWORK))
    # A group map may be written only after groups were given up (user_namespaces(7)).
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def build(plan: NamespacePlan) -> Overmounts:
    """Make the plan the whole of what this process, process 1 of its namespaces, and its children can see.

    The overmounts in it are watched: the caller has to have them laid again.

    Raises:
        OSError: something could not be mounted, or what stands at a path is not what the plan means.
    """
    syscalls.syscall("mount", None, b"/", None, _RECURSIVE | _PRIVATE, None)
    if not plan.shares_network:
        _bring_up_loopback()
    trees = [_MountedTree(bind, _clone_bind(bind)) for bind in plan.binds]
    devices = [(name, clone_at(f"/dev/{name}")) for name in DEVICES]
    _mount("tmpfs", _BASE, ATTR_NO_SUID | ATTR_NO_DEVICES, "mode=755,size=16m")
    placeholders = Placeholders(_BASE)
    _mount_proc_and_devices(devices, plan, placeholders)
    for tree in trees:
        with mount_point(_BASE, tree.bind.path, directory=tree.is_directory) as place:
            attach(tree.handle, place)
    for path, target in plan.links:
        _link(path, target)
    overmounts = _overmounts(plan, placeholders)
    overmounts.start_watching(is_polled=plan.is_polled)
    overmounts.mount_all({tree.bind.path: tree.handle for tree in trees})
    for tree in trees:
        os.close(tree.handle)
    syscalls.syscall("mount_setattr", _AT_FDCWD, _BASE.encode(), 0, struct.pack("4Q", ATTR_READ_ONLY, 0, 0, 0), 32)
    os.chdir(_BASE)
    # The old root comes to lie over the new one, which is then all that stays (pivot_root(2), "." twice).
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
    """A mount of what the bind names, not yet anywhere."""
    source = bind.source or bind.path
    handle = os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if bind.identity is not None and [found.st_dev, found.st_ino] != list(bind.identity):
            raise OSError(errno.ESTALE, "was replaced by something else", source)
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, "is a link", source)
        return restrict_mount(clone(handle), writable=bind.writable)
    finally:
        os.close(handle)


def _mount_tree(tree: int, place: int) -> None:
    """Mount a tree on a handle and give the tree's own handle back."""
    try:
        attach(tree, place)
    finally:
        os.close(tree)


def _overmounts(plan: NamespacePlan, placeholders: Placeholders) -> Overmounts:
    """What is pinned, fixed, masked or leads elsewhere: one for a path, none in what is masked or for a bind itself."""
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
    """Have a link in the new root, where nothing else came to stand."""
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
            _mount_tree(tree, place)
    for name, target in _DEVICE_LINKS:
        os.symlink(target, f"{_BASE}/dev/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{_BASE}/dev/{name}")
    _mount("devpts", f"{_BASE}/dev/pts", ATTR_NO_SUID | ATTR_NO_EXEC, "newinstance,ptmxmode=0666,mode=620")
    _mount(
        "tmpfs",
        f"{_BASE}/dev/shm",  # noqa: S108  # the view's own
        ATTR_NO_SUID | ATTR_NO_DEVICES,
        f"mode=1777,size={plan.shared_memory_bytes}",
    )


def _restrict_proc(placeholders: Placeholders) -> None:
    """Settings and insides of the kernel, which are the whole machine's: not changed, some not seen.

    User 0 of the machine may write them without any capability, in whatever namespace.
    """
    handle = os.open(f"{_BASE}/proc", HANDLE)
    try:
        kinds = ((READ_ONLY, _PROC_READ_ONLY), (MASKED, _PROC_MASKED))
        overmounts = [Overmount(f"/proc/{name}", kind) for kind, names in kinds for name in names]
        Overmounts(overmounts, placeholders).mount_all({"/proc": handle})
    finally:
        os.close(handle)


def _limit_tasks(most: int) -> None:
    """Bound the numbers of this namespace's processes, and so how many there can be.

    Before 6.14 the file is the whole machine's, and root of the machine could really change it: not touched then.
    """
    release = os.uname().release.split(".")
    if (int(release[0]), int(release[1].partition("-")[0])) < (6, 14):
        return
    with suppress(OSError), open(f"{_BASE}/proc/sys/kernel/pid_max", "w", encoding="ascii") as file:
        file.write(str(most))


def _mount(kind: str, target: str, flags: int, options: str) -> None:
    syscalls.syscall("mount", kind.encode(), os.fsencode(target), kind.encode(), flags, options.encode())


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(channel, _GET_FLAGS, request))[1]
        fcntl.ioctl(channel, _SET_FLAGS, struct.pack("16sh22x", b"lo", flags | _UP))
