"""A control group for commands, where the server may make one: bounds of the whole tree, and an end of it at once.

The kernel's second hierarchy only (cgroups(7), cgroup-v2.rst). A server may make groups where a service manager
delegated its own, or as user 0. Which bounds hold depends on the controllers that are handed down; killing needs none
(Linux 5.14). What can't be had is left out and told, never required.
"""

import os
import time
from contextlib import suppress

from coretools.process.children.reaper import KILL_ROUND_SECONDS

_PAUSE_SECONDS = 0.005

_USUAL_WEIGHT = 100
"""All commands together then count as one process does, however many sessions they begin (sched(7), autogroup)."""


class ControlGroup:
    """One group, made when this is. `close` must be called."""

    def __init__(self, path: str, *, tasks: int, memory_bytes: int) -> None:
        """Make the group.

        Raises:
            OSError: not permitted, or there is no such place.
        """
        self.path = path
        bounds = {
            "pids": ("pids.max", tasks),
            "memory": ("memory.max", memory_bytes),
            "cpu": ("cpu.weight", _USUAL_WEIGHT),
        }
        for name in bounds:
            # Only where no process is in the group above, or the controller is there already. One after the other: of
            # several the kernel takes all or none, and not every one may have been handed down.
            with suppress(OSError):
                _write(f"{os.path.dirname(path)}/cgroup.subtree_control", f"+{name}")
        os.mkdir(path)
        self.bounds = dict.fromkeys(bounds, False)
        """What is bounded for the group as a whole, by controller."""
        for name, (file, value) in bounds.items():
            with suppress(OSError):
                _write(f"{path}/{file}", str(value))
                self.bounds[name] = True

    def add(self, pid: int) -> None:
        """Make a process a member; what it starts from then on is one too.

        Raises:
            OSError: not permitted, or it is gone.
        """
        _write(f"{self.path}/cgroup.procs", str(pid))

    def kill(self) -> bool:
        """Have the kernel kill every member at once; False when it can't."""
        try:
            _write(f"{self.path}/cgroup.kill", "1")
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End what is left in the group and remove it. Blocks for a moment when something is."""
        deadline = time.monotonic() + KILL_ROUND_SECONDS
        while not self.remove() and time.monotonic() < deadline:
            self.kill()
            time.sleep(_PAUSE_SECONDS)

    def remove(self) -> bool:
        """Remove the group if nothing is in it; whether it is gone."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def own_group() -> str | None:
    """Directory of this process's own group in the second hierarchy; None where that is not mounted."""
    with suppress(OSError, StopIteration):
        mount = next(iter(_mounts()))
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            relative = next(line.rstrip("\n")[3:] for line in file if line.startswith("0::"))
        path = f"{mount}{relative}".rstrip("/")
        return path if os.path.isdir(path) else None
    return None


def _mounts() -> list[str]:
    """Where the hierarchy is mounted (proc(5), mountinfo: fields before and behind a lone `-`)."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return [words[4] for words in lines if words[words.index("-") + 1] == "cgroup2"]


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
