"""Memory of the machine or of the container that the server runs in."""

import os
from collections.abc import Iterator
from contextlib import suppress

from coretools.mounts import read_mounts

_MEMORY_LIMIT_FILES = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}


def memory_bytes(process: str = "/proc/self") -> int:
    """Return the memory of the machine, or the smallest limit of the process's control group and its ancestors.

    In a container the kernel still reports the memory of the machine. The limit is in the control group, in version 2
    as `memory.max`, in version 1 as `memory.limit_in_bytes` (cgroups(7)).
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_memory_limits(process)])


def _memory_limits(process: str) -> Iterator[int]:
    for directory, top, file in _control_groups(process):
        at = directory
        while True:
            with suppress(OSError, ValueError), open(f"{at}/{file}", encoding="ascii") as bound:
                yield int(bound.read())  # "max" is no limit
            if at == top or len(at) <= len(top):
                break
            at = os.path.dirname(at)


def _control_groups(process: str) -> Iterator[tuple[str, str, str]]:
    """Yield directory, mount point of the hierarchy and limit file for each control group of the process."""
    own: dict[str, str] = {}
    with suppress(OSError), open(f"{process}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            number, controllers, path = line.rstrip("\n").split(":", 2)
            if number == "0" and not controllers:
                own["cgroup2"] = path
            elif "memory" in controllers.split(","):
                own["cgroup"] = path
    with suppress(OSError):
        for mount in read_mounts(f"{process}/mountinfo"):
            # Of the version 1 mounts only the one with the memory controller.
            is_other = mount.kind == "cgroup" and b"memory" not in mount.options.split(b",")
            if mount.kind not in own or is_other:
                continue
            path, source = own[mount.kind], mount.source.rstrip("/")
            # A container may see its own group as the root while it reads its path on the machine.
            inner = path.removeprefix(source) if f"{path}/".startswith(f"{source}/") else ""
            yield f"{mount.path}{inner}".rstrip("/"), mount.path, _MEMORY_LIMIT_FILES[mount.kind]
