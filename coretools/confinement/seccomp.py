"""Seccomp: which system calls a thread, and all that it starts, may make. A filter that can't be taken back.

The filter is a list of what is refused, for what Landlock and namespaces leave open: sockets of other families, other
processes' memory, namespaces and mounts of its own, calls that go past the filter (io_uring), keys, kernel interfaces
that have been the way out of many a sandbox. Instructions are those of seccomp(2) and `linux/filter.h`.
"""

import ctypes
import errno
import struct
from collections.abc import Collection
from functools import cache

from coretools.confinement import syscalls

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
"""Families of sockets (`linux/socket.h`)."""

_PR_SET_SECCOMP = 22
_FILTER = 2
_SET_FILTER = 1
_WITH_LISTENER = 1 << 3 | 1 << 5
"""Flags of seccomp(2): notices come by a descriptor, and once one was taken only KILL ends the call."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AND = 0x54
_ALLOW, _KILL, _REFUSE, _NOTIFY = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT, _FOURTH_ARGUMENT = 16, 24, 32, 40
"""Where the words stand that a filter can load; of an argument its low half, on machines with the low one first."""

_X32 = 0x40000000
_NAMESPACES = 0x7E020080
"""Every CLONE_NEW* flag: time, mount, cgroup, UTS, IPC, user, PID and network."""
_CLONE_VM = 0x100
_KIND, _STREAM, _SEQPACKET = 0xF, 1, 5
"""Of a socket: the bits that say which, and those that can't name a peer with each message. A raw Unix socket (3) is a
datagram socket (unix(7))."""
_FASTOPEN = 0x20000000
"""MSG_FASTOPEN: to send is to connect."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""Put characters into a terminal's input, for whoever reads it next."""

_SET_OPTIONS, _SEIZE = 0x4200, 0x4206
_TRACE_EXIT = 0x40
"""A request of ptrace(2) for a stop at the end of a process, in which KILL does not reach it: two that trace each other
so can't be ended by anybody."""

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
"""Answered as by a kernel that lacks them, so that programs take the older way. A filter can't see into the structure
that clone3 is given."""

_Instruction = tuple[int, int, int, int]


@cache
def command_filter(
    families: frozenset[int], *, ptrace: bool = True, forks: bool = True, watched: bool = False
) -> bytes:
    """The filter for a program that may open sockets of these families. `socketpair` is always there.

    `watched`: its supervisor makes and connects them; to be installed by `install_watched`.

    Tracing is left to Landlock, which keeps it inside the domain: leak checkers and debuggers need it. Without `forks`
    the program can start threads, but no process that goes on beside it; the thread that starts it must do so by vfork.
    """
    numbers = syscalls.NUMBERS
    refused = (*_REFUSED, *(() if ptrace else ("ptrace",)))
    program: list[_Instruction] = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, numbers["architecture"])]
    program += [(_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    # x86-64 answers a second set of numbers, past every comparison below. No number of AArch64 is as high.
    program += _when(_AT_LEAST, _X32, [(_RETURN, 0, 0, _REFUSE | errno.ENOSYS)])
    for name in _ABSENT:
        program += _when(_EQUAL, numbers[name], [(_RETURN, 0, 0, _REFUSE | errno.ENOSYS)])
    for name in refused:
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
    # The limits of other processes, the server's too, which Landlock does not guard. 0 is the caller itself.
    program += _when(_EQUAL, numbers["prlimit64"], _argument(_FIRST_ARGUMENT, _EQUAL, (0,), allow=True))
    program += _sockets(families, watched=watched)
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def install(program: bytes) -> None:
    """Hold the calling thread, and whatever it starts from now on, to the filter. It must have no new privileges."""
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    holder = ctypes.create_string_buffer(header, len(header))
    syscalls.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.addressof(holder))


def install_watched(program: bytes) -> int:
    """Like `install`; the descriptor by which the calls are told and answered that the filter leaves to somebody.

    Raises:
        OSError: not to be had here, for example because the container's own filter has such a descriptor.
    """
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    return syscalls.syscall("seccomp", _SET_FILTER, _WITH_LISTENER, header)


def _sockets(families: frozenset[int], *, watched: bool) -> list[_Instruction]:
    numbers = syscalls.NUMBERS
    # "Not supported", as where the kernel lacks a family of sockets: programs then go on without.
    known = _argument(_FIRST_ARGUMENT, _EQUAL, sorted(families), allow=True, error=errno.EAFNOSUPPORT)
    if watched:
        known = [(*one[:3], _NOTIFY) if one == (_RETURN, 0, 0, _ALLOW) else one for one in known]
    program = _when(_EQUAL, numbers["socket"], known)
    pair = [(_RETURN, 0, 0, _ALLOW)]
    if watched or UNIX not in families:
        # One of a pair of datagram sockets can send to, and connect to, any other by path.
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


def _when(test: int, value: int, then: list[_Instruction]) -> list[_Instruction]:
    """`then`, to be run when the loaded word passes the test; skipped otherwise."""
    return [(test, 0, len(then), value), *then]


def _shares_memory() -> list[_Instruction]:
    """Allow a new thread, or a child that its parent waits for until exec; refuse what a fork asks for."""
    return [*_when(_ANY_BIT, _CLONE_VM, [(_RETURN, 0, 0, _ALLOW)]), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]


def _argument(
    where: int, test: int, values: Collection[int], *, allow: bool, error: int = errno.EPERM
) -> list[_Instruction]:
    """Allow, or refuse, the call when an argument passes the test for one of the values; do the opposite otherwise."""
    refused = _REFUSE | error
    found, otherwise = (_ALLOW, refused) if allow else (refused, _ALLOW)
    program: list[_Instruction] = [(_LOAD, 0, 0, where)]
    for value in values:
        program += _when(test, value, [(_RETURN, 0, 0, found)])
    return [*program, (_RETURN, 0, 0, otherwise)]
