"""What a program needs of the system to start at all: itself, its loader and its libraries. Nothing else to execute.

For programs that are one file of machine code. A script would need its interpreter too, which runs anything; so it is
no program to be held here, and who asks is told so.
"""

import os
import shutil
import struct
from functools import lru_cache

from coretools.confinement.landlock import DEVICE, EXECUTE, READ_FILE, Rule

LIBRARIES = (
    *("/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/local/lib"),
    # NixOS and Guix keep every library under a path of its own in one of these.
    *("/nix/store", "/gnu/store"),
)
"""Where libraries lie (ld.so(8)); each is only read. A library is mapped, not executed, as Landlock sees it."""

_FILES = ("/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/dev/urandom")
_ZONES = "/usr/share/zoneinfo"

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHH")
"""Up to the size and number of the program headers (elf(5), Elf64_Ehdr)."""
_SEGMENT = struct.Struct("<IIQQQQ")
_INTERPRETER = 3
_SIXTY_FOUR_BITS, _LOW_FIRST = 2, 1
_MOST_SEGMENTS = 64


def found(program: str, path: str) -> str | None:
    """The file that this name means in PATH, every link followed; None when there is none."""
    where = shutil.which(program, path=path)
    return None if where is None else os.path.realpath(where)


def rules_to_start(file: str) -> tuple[Rule, ...] | None:
    """What must be allowed so that this file runs; None when it is not machine code of this kind of system.

    Also the null device, which every program may expect, random bytes, and the local time.
    """
    try:
        status = os.stat(file)
    except OSError:
        return None
    return _rules(file, (status.st_dev, status.st_ino, status.st_mtime_ns))


@lru_cache(maxsize=16)
def _rules(file: str, _identity: tuple[int, int, int]) -> tuple[Rule, ...] | None:
    try:
        loader = _loader(file)
    except (OSError, ValueError, struct.error):
        return None
    prefix = os.path.dirname(os.path.dirname(file))
    places = dict.fromkeys((*LIBRARIES, f"{prefix}/lib", f"{prefix}/lib64", _ZONES, *_FILES))
    started = (file,) if loader is None else (file, loader)
    return (
        *((name, EXECUTE | READ_FILE) for name in started),
        *((name, READ_FILE) for name in places if os.path.exists(name)),
        ("/dev/null", DEVICE),
    )


def _loader(file: str) -> str | None:
    """The loader that a file of machine code names; None when it needs none.

    Raises:
        ValueError: some other kind of file.
    """
    with open(file, "rb") as stream:
        header = _HEADER.unpack(stream.read(_HEADER.size))
        magic, bits, order, offset, size, count = header[0], header[1], header[2], header[7], header[11], header[12]
        if magic != b"\x7fELF" or bits != _SIXTY_FOUR_BITS or order != _LOW_FIRST or count > _MOST_SEGMENTS:
            raise ValueError(file)
        for number in range(count):
            stream.seek(offset + number * size)
            kind, _, where, _, _, length = _SEGMENT.unpack(stream.read(_SEGMENT.size))
            if kind == _INTERPRETER:
                stream.seek(where)
                return os.fsdecode(stream.read(length).rstrip(b"\0"))
    return None
