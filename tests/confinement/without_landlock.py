"""Runs one program as on a kernel without Landlock: `-m tests.confinement.without_landlock PROGRAM WORD...`.

A seccomp filter answers Landlock's system calls as a kernel does that lacks them; then the program is executed."""

import errno
import os
import struct
import sys

from coretools.confinement import seccomp, syscalls

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NO_NEW_PRIVILEGES = 38
CALLS = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")


def main() -> None:
    syscalls.prctl(NO_NEW_PRIVILEGES, 1)
    program = [(LOAD, 0, 0, 0)]
    for name in CALLS:
        program += [(EQUAL, 0, 1, syscalls.NUMBERS[name]), (RETURN, 0, 0, REFUSE | errno.ENOSYS)]
    program.append((RETURN, 0, 0, ALLOW))
    seccomp.install(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
