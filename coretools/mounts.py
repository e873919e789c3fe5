"""The mounted file systems (proc_pid_mountinfo(5)), and the mount of an open file.

Standard library only: the fork server and its supervisors import it.
"""

import os
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

TABLE = "/proc/self/mountinfo"

_ESCAPED = re.compile(rb"\\([0-7]{3})")
"""Space, tab, line feed and backslash are written as octal numbers."""


class Mount(NamedTuple):
    """A mounted file system."""

    number: int
    device: bytes
    source: str
    """The mounted directory, as a path in its file system."""
    path: str
    """Where it is mounted."""
    kind: str
    """Type of the file system, such as `ext4`."""
    options: bytes
    """Of the file system; of a control group also its controllers."""


def read_mounts(table: str = TABLE) -> list[Mount]:
    """Return the mounts of a table, those on top last. Linux only; none elsewhere.

    Raises:
        OSError: it can't be read.
    """
    if sys.platform != "linux":
        return []
    with open(table, "rb") as file:
        return list(parse_mounts(file.read()))


def mounts_by_path() -> dict[str, str]:
    """Return the type of the file system at each mount point."""
    return {mount.path: mount.kind for mount in read_mounts()}


def parse_mounts(data: bytes) -> Iterator[Mount]:
    """Yield the mounts that the text of a table names."""
    for line in filter(None, data.split(b"\n")):
        words = line.split(b" ")
        # The number of optional fields varies; a hyphen ends them, and the type follows. The type of a FUSE file system
        # may have any bytes: its user chooses them.
        kind = os.fsdecode(words[words.index(b"-") + 1])
        yield Mount(int(words[0]), words[2], _path(words[3]), _path(words[4]), kind, words[-1])


def mount_id(handle: int) -> int:
    """Return the number of the mount that contains an open file (proc_pid_fdinfo(5)).

    Raises:
        OSError: it can't be read.
    """
    with open(f"/proc/self/fdinfo/{handle}", "rb", buffering=0) as file:
        for line in file.read(4096).splitlines():
            if line.startswith(b"mnt_id:"):
                return int(line.split()[1])
    raise OSError("fdinfo has no mnt_id")


def _path(text: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), text))
