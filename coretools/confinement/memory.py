"""Memory of the machine or of the container that the server runs in."""

import os
from collections.abc import Iterator
from contextlib import suppress

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
    with suppress(OSError), open(f"{process}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for words in map(str.split, file):
            kind = words[words.index("-") + 1]
            # Of the version 1 mounts only the one with the memory controller.
            if kind not in own or (kind == "cgroup" and "memory" not in words[-1].split(",")):
                continue
            root, top = words[3].rstrip("/"), words[4]
            path = own[kind]
            # A container may see its own group as the root while it reads its path on the machine.
            inner = path.removeprefix(root) if f"{path}/".startswith(f"{root}/") else ""
            yield f"{top}{inner}".rstrip("/"), top, _MEMORY_LIMIT_FILES[kind]
