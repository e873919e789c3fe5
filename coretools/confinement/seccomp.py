"""Seccomp: restrict the system calls of a thread and everything it starts, by an irrevocable filter.

The filter refuses what Landlock and namespaces leave open: sockets of other families, the memory of other processes,
new namespaces and mounts, calls that bypass the filter (io_uring), keys, and kernel interfaces that many sandbox
escapes have used. The instructions are those of seccomp(2) and `linux/filter.h`.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Collection
from functools import cache

from coretools.confinement import syscalls

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
"""Socket families (`linux/socket.h`)."""

_PR_SET_SECCOMP = 22
_FILTER = 2
_SET_FILTER = 1
_WITH_LISTENER = 1 << 3 | 1 << 5
"""Flags of seccomp(2): return a notification descriptor, and let only KILL end a call that was received from it."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AND = 0x54
_ALLOW, _KILL, _REFUSE, _NOTIFY = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT, _FOURTH_ARGUMENT = 16, 24, 32, 40
"""Offsets of what a filter can load: of each argument the low half, on little-endian machines."""

_X32 = 0x40000000
_NAMESPACES = 0x7E020080
"""Every CLONE_NEW* flag: time, mount, cgroup, UTS, IPC, user, PID and network."""
_CLONE_VM = 0x100
_KIND, _STREAM, _SEQPACKET = 0xF, 1, 5
"""Mask of the socket type, and the types that cannot name a peer with each message. A raw Unix socket (3) is a datagram
socket (unix(7))."""
_FASTOPEN = 0x20000000
"""MSG_FASTOPEN: sending connects."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""ioctls that inject characters into the input of a terminal."""

_SET_OPTIONS, _SEIZE = 0x4200, 0x4206
_TRACE_EXIT = 0x40
"""PTRACE_O_TRACEEXIT: stop a process at its end. KILL does not end that stop, so two processes that trace each other
this way could not be ended."""

_REFUSED = (
    *("mount", "umount2", "pivot_root", "chroot", "setns", "open_tree", "move_mount"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd"),
    *("process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    *("name_to_handle_at", "open_by_handle_at"),
    *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot"),
    *("swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog"),
    *("settimeofday", "clock_settime", "sethostname", "setdomainname"),
)
_ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
"""Calls answered with ENOSYS, so that programs fall back to older ones. A filter cannot read the structure that clone3
takes."""

CHANGING = (
    *("creat", "truncate", "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2", "mkdir", "mkdirat"),
    *("link", "linkat", "symlink", "symlinkat", "mknod", "mknodat", "openat2"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr"),
    "removexattrat",
)
"""Calls that change names, contents or metadata of files, or may (openat2, whose flags a filter can't read)."""
CHANGING_OPENS = {"open": _SECOND_ARGUMENT, "openat": _THIRD_ARGUMENT}
"""Calls that change something with some flags, and where those are."""
_CHANGING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_Instruction = tuple[int, int, int, int]


@cache
def command_filter(
    families: frozenset[int], *, forks: bool = True, watched: bool = False, changes: bool = False
) -> bytes:
    """Return the filter for a program that may open sockets of these families. `socketpair` is always allowed.

    With `watched` the supervisor creates and connects sockets; with `changes` it is notified of calls that change
    files, before they are made. Install such a filter with `install_watched`.

    Landlock restricts ptrace to the own domain, so the filter allows it: leak checkers and debuggers need it. Without
    `forks` the program can start threads but no process; the thread that starts the program must use vfork.
    """
    numbers = syscalls.NUMBERS
    program: list[_Instruction] = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, numbers["architecture"])]
    program += [(_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    # x86-64 has a second set of call numbers (x32), above all those compared below. AArch64 has none as high.
    program += _when(_AT_LEAST, _X32, [(_RETURN, 0, 0, _REFUSE | errno.ENOSYS)])
    for name in _ABSENT:
        program += _when(_EQUAL, numbers[name], [(_RETURN, 0, 0, _REFUSE | errno.ENOSYS)])
    for name in _REFUSED:
        program += _when(_EQUAL, numbers[name], [(_RETURN, 0, 0, _REFUSE | errno.EPERM)])
    unshares = _argument(_FIRST_ARGUMENT, _ANY_BIT, (_NAMESPACES,), allow=False)
    program += _when(_EQUAL, numbers["unshare"], unshares)
    program += _when(_EQUAL, numbers["clone"], unshares if forks else [*unshares[:-1], *_shares_memory()])
    if not forks and "fork" in numbers:
        program += _when(_EQUAL, numbers["fork"], [(_RETURN, 0, 0, _REFUSE | errno.EPERM)])
    ends = _argument(_FOURTH_ARGUMENT, _ANY_BIT, (_TRACE_EXIT,), allow=False, error=errno.EINVAL)
    options = [*_when(_EQUAL, _SET_OPTIONS, ends), *_when(_EQUAL, _SEIZE, ends), (_RETURN, 0, 0, _ALLOW)]
    program += _when(_EQUAL, numbers["ptrace"], [(_LOAD, 0, 0, _FIRST_ARGUMENT), *options])
    program += _when(_EQUAL, numbers["ioctl"], _argument(_SECOND_ARGUMENT, _EQUAL, (_TIOCSTI, _TIOCLINUX), allow=False))
    # Refuse to change limits of other processes, such as the server, which Landlock allows. 0 is the caller itself.
    program += _when(_EQUAL, numbers["prlimit64"], _argument(_FIRST_ARGUMENT, _EQUAL, (0,), allow=True))
    program += _sockets(families, watched=watched)
    program += _changes() if changes else []
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def install(program: bytes) -> None:
    """Install the filter on the calling thread and whatever it starts. The thread must have set no_new_privs."""
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    holder = ctypes.create_string_buffer(header, len(header))
    syscalls.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.addressof(holder))


def install_watched(program: bytes) -> int:
    """Install the filter and return the notification descriptor, by which the supervisor answers calls.

    Raises:
        OSError: unavailable, for example because the container's own filter has such a descriptor already.
    """
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    return syscalls.syscall("seccomp", _SET_FILTER, _WITH_LISTENER, header)


def _sockets(families: frozenset[int], *, watched: bool) -> list[_Instruction]:
    numbers = syscalls.NUMBERS
    # The error of a kernel that lacks the socket family: programs then continue without it.
    known = _argument(_FIRST_ARGUMENT, _EQUAL, sorted(families), allow=True, error=errno.EAFNOSUPPORT)
    if watched:
        known = [(*one[:3], _NOTIFY) if one == (_RETURN, 0, 0, _ALLOW) else one for one in known]
    program = _when(_EQUAL, numbers["socket"], known)
    pair = [(_RETURN, 0, 0, _ALLOW)]
    if watched or UNIX not in families:
        # A datagram socket of a pair can send and connect to any other one by path.
        pair = [(_LOAD, 0, 0, _SECOND_ARGUMENT), (_AND, 0, 0, _KIND)]
        for kind in (_STREAM, _SEQPACKET):
            pair += _when(_EQUAL, kind, [(_RETURN, 0, 0, _ALLOW)])
        pair.append((_RETURN, 0, 0, _REFUSE | errno.EPROTONOSUPPORT))
    # TIPC has pairs too.
    pair = [(_LOAD, 0, 0, _FIRST_ARGUMENT), *_when(_EQUAL, UNIX, pair), (_RETURN, 0, 0, _REFUSE | errno.EAFNOSUPPORT)]
    program += _when(_EQUAL, numbers["socketpair"], pair)
    if watched:
        for name in ("connect", "bind", "listen"):
            program += _when(_EQUAL, numbers[name], [(_RETURN, 0, 0, _NOTIFY)])
        for name, where in (("sendto", _FOURTH_ARGUMENT), ("sendmsg", _THIRD_ARGUMENT), ("sendmmsg", _FOURTH_ARGUMENT)):
            opens = _argument(where, _ANY_BIT, (_FASTOPEN,), allow=False, error=errno.EOPNOTSUPP)
            program += _when(_EQUAL, numbers[name], opens)
    return program


def _changes() -> list[_Instruction]:
    numbers, program = syscalls.NUMBERS, list[_Instruction]()
    for name, where in CHANGING_OPENS.items():
        if name in numbers:
            changes = [*_when(_ANY_BIT, _CHANGING_FLAGS, [(_RETURN, 0, 0, _NOTIFY)]), (_RETURN, 0, 0, _ALLOW)]
            program += _when(_EQUAL, numbers[name], [(_LOAD, 0, 0, where), *changes])
    for name in CHANGING:
        if name in numbers:
            program += _when(_EQUAL, numbers[name], [(_RETURN, 0, 0, _NOTIFY)])
    return program


def _when(test: int, value: int, then: list[_Instruction]) -> list[_Instruction]:
    """Return instructions that run `then` if the loaded word passes the test."""
    return [(test, 0, len(then), value), *then]


def _shares_memory() -> list[_Instruction]:
    """Allow clone(2) for a thread or for vfork; refuse it for fork."""
    return [*_when(_ANY_BIT, _CLONE_VM, [(_RETURN, 0, 0, _ALLOW)]), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]


def _argument(
    where: int, test: int, values: Collection[int], *, allow: bool, error: int = errno.EPERM
) -> list[_Instruction]:
    """Allow or refuse the call if an argument passes the test for one of the values; otherwise do the opposite."""
    refused = _REFUSE | error
    passed, otherwise = (_ALLOW, refused) if allow else (refused, _ALLOW)
    program: list[_Instruction] = [(_LOAD, 0, 0, where)]
    for value in values:
        program += _when(test, value, [(_RETURN, 0, 0, passed)])
    return [*program, (_RETURN, 0, 0, otherwise)]
