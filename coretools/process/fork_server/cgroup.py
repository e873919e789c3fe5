"""A control group for commands: limits for the whole tree, and a way to kill it at once.

Version 2 only (cgroups(7), cgroup-v2.rst). A server may create groups where a service manager delegated its own group,
or as root. Which limits hold depends on the controllers that are delegated; killing needs none (Linux 5.14). A missing
controller is reported, never required.
"""

import os
import time
from contextlib import suppress

from coretools.mounts import read_mounts
from coretools.process.children.reaper import CONTROL_GROUPS_FILE, KILL_ROUND_SECONDS

_PAUSE_SECONDS = 0.005

_USUAL_WEIGHT = 100
"""Default weight: all commands together count as one process, however many sessions they create (sched(7),
autogroup)."""


class ControlGroup:
    """One group, created with the object. `close` must be called."""

    def __init__(self, path: str, *, tasks: int, memory_bytes: int) -> None:
        """Create the group.

        Raises:
            OSError: not permitted, or the parent does not exist.
        """
        self.path = path
        bounds = {
            "pids": ("pids.max", tasks),
            "memory": ("memory.max", memory_bytes),
            "cpu": ("cpu.weight", _USUAL_WEIGHT),
        }
        for name in bounds:
            # Works only if the parent group has no processes, or has the controller enabled already. One write for
            # each: the kernel accepts several as all or none, and not every one may be delegated.
            with suppress(OSError):
                _write(f"{os.path.dirname(path)}/cgroup.subtree_control", f"+{name}")
        os.mkdir(path)
        self.bounds = dict.fromkeys(bounds, False)
        """Whether the group as a whole is limited, by controller."""
        for name, (file, value) in bounds.items():
            with suppress(OSError):
                _write(f"{path}/{file}", str(value))
                self.bounds[name] = True

    def add(self, pid: int) -> None:
        """Add a process; everything that it starts from then on is a member too.

        Raises:
            OSError: not permitted, or the process is gone.
        """
        _write(f"{self.path}/cgroup.procs", str(pid))

    def kill(self) -> bool:
        """Have the kernel kill every member at once; False if it can't."""
        try:
            _write(f"{self.path}/cgroup.kill", "1")
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Kill what is left in the group and remove it. Blocks shortly if something is left."""
        deadline = time.monotonic() + KILL_ROUND_SECONDS
        while not self.remove() and time.monotonic() < deadline:
            self.kill()
            time.sleep(_PAUSE_SECONDS)

    def remove(self) -> bool:
        """Remove the group if it is empty; return whether it is gone."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def own_group() -> str | None:
    """Directory of this process's own control group; None where version 2 is not mounted."""
    with suppress(OSError, StopIteration):
        mount = next(mount.path for mount in read_mounts() if mount.kind == "cgroup2")
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            relative = next(line.rstrip("\n")[3:] for line in file if line.startswith("0::"))
        path = f"{mount}{relative}".rstrip("/")
        return path if os.path.isdir(path) else None
    return None


def group_for_commands(scratch: str, number: int, *, tasks: int, memory_bytes: int) -> ControlGroup | None:
    """Create a control group for a fork server, if that is possible. The watchdog gets its name first."""
    above = own_group()
    if above is None:
        return None
    path = f"{above}/{os.path.basename(scratch)}-{number}"
    with suppress(OSError):
        with open(f"{scratch}/{CONTROL_GROUPS_FILE}", "a", encoding="utf-8") as file:
            file.write(f"{path}\n")
        return ControlGroup(path, tasks=tasks, memory_bytes=memory_bytes)
    return None


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
