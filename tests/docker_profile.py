"""Runs a program as an ordinary user under the relevant part of Docker's default seccomp profile.

    python -m tests.docker_profile [--user UID] -- PROGRAM [ARGUMENT ...]

This is the environment of a container started with `--user` and `--cap-drop ALL`, without Docker and libseccomp: no
capability, no new privileges, and a filter that this module builds. `--user 0` is root without capabilities from the
start of the program, for an interpreter that only root can read.

Source: moby/profiles, seccomp/default.json, read 2026-11-22 for a container without capabilities. That profile lists
the allowed calls; the table here lists the remaining calls that a kernel of x86-64 or arm64 has, and allows calls that
neither list contains. Numbers: asm/unistd.h of both.
"""

import argparse
import ctypes
import errno
import os
import platform
import struct
import sys

REFUSED = {
    # Name: its number on x86-64 and on arm64; None where the machine has no such call.
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_mempolicy": (239, 236),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lsm_get_self_attr": (459, 459),
    "lsm_list_modules": (461, 461),
    "lsm_set_self_attr": (460, 460),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
"""Calls that the profile refuses to a process without capabilities."""

ABSENT = {"clone3": (435, 435)}
"""Answered with ENOSYS, so that the C library uses `clone`, whose flags a filter can read."""

LOOKED_INTO = {"clone": (56, 220), "socket": (41, 198), "personality": (135, 92)}
NAMESPACES = 0x7E020000
"""Flags of clone(2) that create a namespace."""
FAMILIES = frozenset({*range(12), 13, 14, 15, 16, 17, 18, 21, 22, 24, *range(26, 34), 35, 36, 39, *range(41, 46)})
"""Address families of sockets that are allowed; ALG (38), VSOCK (40) and some unused ones are not."""
PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the tables, and AUDIT_ARCH of linux/audit.h."""
_X32 = 0x40000000

# linux/bpf_common.h and linux/seccomp.h
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT = 0, 4, 16

# linux/prctl.h
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 22, 24, 38, 47
_SECCOMP_MODE_FILTER, _PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
_CAPABILITIES = 64
NOBODY = 65534


def is_supported() -> bool:
    """Whether there is a table for this machine."""
    return sys.platform == "linux" and platform.machine() in _MACHINES


def program_for(machine: str) -> bytes:
    """The filter as `struct sock_filter[]`, in the byte order of this machine."""
    column, arch = _MACHINES[machine]
    code = [_of(_LOAD, _ARCH_AT), _of(_JUMP_EQUAL, arch, 1, 0), _refuse(errno.EPERM), _of(_LOAD, _NUMBER_AT)]
    if machine == "x86_64":
        code += [_of(_JUMP_GREATER_EQUAL, _X32, 0, 1), _refuse(errno.EPERM)]
    for table, number in ((REFUSED, errno.EPERM), (ABSENT, errno.ENOSYS)):
        for name in sorted(table):
            if (call := table[name][column]) is not None:
                code += [_of(_JUMP_EQUAL, call, 0, 1), _refuse(number)]
    bodies = {
        "clone": [_of(_JUMP_BITS, NAMESPACES, 0, 1), _refuse(errno.EPERM), _of(_RETURN, _ALLOW)],
        "socket": _only(sorted(FAMILIES)),
        "personality": _only(PERSONALITIES),
    }
    for name, body in bodies.items():
        code += [_of(_JUMP_EQUAL, LOOKED_INTO[name][column], 0, len(body) + 1), _of(_LOAD, _FIRST_ARGUMENT_AT), *body]
    return b"".join([*code, _of(_RETURN, _ALLOW)])


def _only(values: "list[int] | tuple[int, ...]") -> list[bytes]:
    """Allow these values of the argument, and refuse all others."""
    checks = [_of(_JUMP_EQUAL, value, len(values) - at, 0) for at, value in enumerate(values)]
    return [*checks, _refuse(errno.EPERM), _of(_RETURN, _ALLOW)]


def _refuse(number: int) -> bytes:
    return _of(_RETURN, _ERRNO | number)


def _of(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def under_profile() -> list[str]:
    """The words to put before a command line: it runs as the user of the tests, without capabilities, under the
    profile."""
    return [sys.executable, "-m", "tests.docker_profile", "--keep-user", "--"]


def enter(user: int | None = NOBODY) -> None:
    """Turn this process into an ordinary one in such a container, irrevocably. Only before any thread is started.

    Root becomes `user`, or for None stays user 0 without privileges.

    Raises:
        OSError: the kernel refused a step.
    """
    if not is_supported():
        raise OSError(errno.ENOSYS, f"no table of system calls for {sys.platform} on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)

    def prctl(option: int, *arguments: int) -> int:
        words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
        result: int = libc.prctl(ctypes.c_int(option), *words)
        return result

    def require(result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    if os.geteuid() == 0:
        for capability in range(_CAPABILITIES):
            if prctl(_PR_CAPBSET_DROP, capability) != 0:  # after the last one that this kernel has
                break
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    require(prctl(_PR_SET_NO_NEW_PRIVS, 1))
    code = program_for(platform.machine())
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: the number of instructions, and their address.
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    require(prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header)))


def main() -> None:
    """Enter the profile and execute the program."""
    parser = argparse.ArgumentParser(prog="python -m tests.docker_profile")
    parser.add_argument("--user", type=int, default=NOBODY, help="user and group to become when started by root")
    parser.add_argument("--keep-user", action="store_true", help="stay root, without capabilities")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    words = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not words:
        parser.error("name a program")
    enter(None if options.keep_user else options.user)
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
