"""How much memory there is: the machine's, or less where a control group bounds this process.

In a container the kernel goes on to report the whole machine's; what a process may use stands in its control group, in
both versions of the hierarchy (cgroups(7); `memory.max`, `memory.limit_in_bytes`).
"""

import os
from collections.abc import Iterator
from contextlib import suppress

_FILES = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}


def memory_bytes(process: str = "/proc/self") -> int:
    """Memory of the machine, or the smallest bound of the process's control group and those above it."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_bounds(process)])


def _bounds(process: str) -> Iterator[int]:
    for directory, top, file in _groups(process):
        at = directory
        while True:
            with suppress(OSError, ValueError), open(f"{at}/{file}", encoding="ascii") as bound:
                yield int(bound.read())  # "max" is none
            if at == top or len(at) <= len(top):
                break
            at = os.path.dirname(at)


def _groups(process: str) -> Iterator[tuple[str, str, str]]:
    """Directory of the process's group, where its hierarchy is mounted, and the file with the bound, for each."""
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
            # Of the first version's mounts only the one with this controller.
            if kind not in own or (kind == "cgroup" and "memory" not in words[-1].split(",")):
                continue
            root, top = words[3].rstrip("/"), words[4]
            path = own[kind]
            # A container may see its own group as the top while it is told the path on the machine.
            inner = path.removeprefix(root) if f"{path}/".startswith(f"{root}/") else ""
            yield f"{top}{inner}".rstrip("/"), top, _FILES[kind]
