"""System calls that Python does not wrap, and how a process drops its privileges.

Linux on x86-64 and AArch64 only; call nothing here unless `is_supported()` returns True. The numbers are from the
kernel's `asm/unistd.h`, the constants from its `linux/*.h`. The fork server imports this module, so it uses the
standard library alone.
"""

import ctypes
import os
import struct
import sys
from types import MappingProxyType

_X86_64 = {
    "open": 2,
    "truncate": 76,
    "rename": 82,
    "mkdir": 83,
    "rmdir": 84,
    "creat": 85,
    "link": 86,
    "unlink": 87,
    "symlink": 88,
    "chmod": 90,
    "fchmod": 91,
    "chown": 92,
    "fchown": 93,
    "lchown": 94,
    "utime": 132,
    "mknod": 133,
    "setxattr": 188,
    "lsetxattr": 189,
    "fsetxattr": 190,
    "removexattr": 197,
    "lremovexattr": 198,
    "fremovexattr": 199,
    "utimes": 235,
    "openat": 257,
    "mkdirat": 258,
    "mknodat": 259,
    "fchownat": 260,
    "futimesat": 261,
    "unlinkat": 263,
    "renameat": 264,
    "linkat": 265,
    "symlinkat": 266,
    "fchmodat": 268,
    "utimensat": 280,
    "renameat2": 316,
    "architecture": 0xC000003E,
    "socket": 41,
    "connect": 42,
    "sendto": 44,
    "sendmsg": 46,
    "bind": 49,
    "listen": 50,
    "socketpair": 53,
    "clone": 56,
    "fork": 57,
    "ptrace": 101,
    "syslog": 103,
    "personality": 135,
    "pivot_root": 155,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "sethostname": 170,
    "setdomainname": 171,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "clock_settime": 227,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "perf_event_open": 298,
    "prlimit64": 302,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "sendmmsg": 307,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "seccomp": 317,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
    "ioctl": 16,
}
_AARCH64 = {
    "setxattr": 5,
    "lsetxattr": 6,
    "fsetxattr": 7,
    "removexattr": 14,
    "lremovexattr": 15,
    "fremovexattr": 16,
    "mknodat": 33,
    "mkdirat": 34,
    "unlinkat": 35,
    "symlinkat": 36,
    "linkat": 37,
    "renameat": 38,
    "truncate": 45,
    "fchmod": 52,
    "fchmodat": 53,
    "fchownat": 54,
    "fchown": 55,
    "openat": 56,
    "utimensat": 88,
    "renameat2": 276,
    "architecture": 0xC00000B7,
    "ioctl": 29,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "chroot": 51,
    "quotactl": 60,
    "acct": 89,
    "personality": 92,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "clock_settime": 112,
    "syslog": 116,
    "ptrace": 117,
    "reboot": 142,
    "sethostname": 161,
    "setdomainname": 162,
    "settimeofday": 170,
    "socket": 198,
    "socketpair": 199,
    "bind": 200,
    "listen": 201,
    "connect": 203,
    "sendto": 206,
    "sendmsg": 211,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "clone": 220,
    "swapon": 224,
    "swapoff": 225,
    "perf_event_open": 241,
    "prlimit64": 261,
    "name_to_handle_at": 264,
    "open_by_handle_at": 265,
    "setns": 268,
    "sendmmsg": 269,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "seccomp": 277,
    "bpf": 280,
    "userfaultfd": 282,
    "kexec_file_load": 294,
}
_EVERYWHERE = {
    "openat2": 437,
    "fchmodat2": 452,
    "setxattrat": 463,
    "removexattrat": 466,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}
"""Calls with the same number on all architectures, as all have since Linux 5.0."""

_TABLES = {"x86_64": _X86_64, "aarch64": _AARCH64}

NUMBERS = MappingProxyType({**_EVERYWHERE, **_TABLES.get(os.uname().machine, {})})
"""Numbers of the system calls that this package makes or filters. `architecture` is the audit number for seccomp."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36
_CAPABILITY_VERSION_3 = 0x20080522

CAP_DAC_OVERRIDE = 1 << 1
"""Mask of the capability to access files of other users as their owners can."""

_libc = ctypes.CDLL(None, use_errno=True)
# ctypes takes every result for an int of 32 bits unless told otherwise.
_libc.syscall.restype = ctypes.c_long
# All four: some options refuse a call whose unused arguments are not zero (prctl(2), PR_SET_NO_NEW_PRIVS).
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def is_supported() -> bool:
    """Whether the tables have the call numbers of this system."""
    return sys.platform == "linux" and os.uname().machine in _TABLES


def syscall(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call by name and return its result.

    Raises:
        OSError: the call failed.
    """
    # syscall(2) is variadic: a plain int would fill half of a register and leave the other half undefined.
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return _checked(int(_libc.syscall(ctypes.c_long(NUMBERS[name]), *words)), name)


def prctl(option: int, argument: int = 0, pointer: int = 0) -> None:
    """Change an attribute of the calling thread (prctl(2)).

    Raises:
        OSError: it failed.
    """
    _checked(_libc.prctl(option, argument, pointer, 0, 0), f"prctl {option}")


def set_no_new_privileges() -> None:
    """Set no_new_privs: no later exec of this thread, or of what it starts, gains a privilege."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_privileges(*, keep: int = 0) -> None:
    """Set no_new_privs and drop all capabilities of the calling thread except those in the mask `keep`.

    Both are attributes of the thread that its children inherit. With no_new_privs, an exec by user 0 does not regain
    capabilities.
    """
    set_no_new_privileges()
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    kept = keep & _permitted(header) if keep else 0
    # Effective, permitted and inheritable: for the first 32 capabilities, then for the others.
    _checked(_libc.capset(header, struct.pack("6I", kept, kept, 0, 0, 0, 0)), "capset")


def _permitted(header: bytes) -> int:
    """Return the permitted set of the first 32 capabilities."""
    sets = ctypes.create_string_buffer(24)
    _checked(_libc.capget(header, sets), "capget")
    return int(struct.unpack("6I", sets.raw)[1])


def _checked(result: int, call: str) -> int:
    """Return the result of a call of the C library; raise the OSError with its name if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def current_processor() -> int:
    """Return the number of the processor that the calling thread runs on (sched_getcpu(3))."""
    return int(_libc.sched_getcpu())


def set_parent_death_signal(number: int) -> None:
    """Request this signal for the calling process when the thread that started it ends."""
    prctl(_PR_SET_PDEATHSIG, number)


def set_child_subreaper() -> None:
    """Make orphaned descendants of this process its children instead of those of process 1."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def unshare(flags: int) -> None:
    """Move the process into new namespaces of the kinds in `flags` (unshare(2)).

    Raises:
        OSError: not permitted, or a limit was reached.
    """
    syscall("unshare", flags)
