"""Tell whether a process that was written down still lives. Linux only: proc(5)."""

import os


def own_identity() -> str:
    """This process by its pid and start time; empty where the system does not tell."""
    return _identity(os.getpid())


def is_alive(identity: str) -> bool:
    """Whether the process with this identity lives, and its pid was not given to another one."""
    pid = identity.partition(" ")[0]
    return pid.isdigit() and _identity(int(pid)) == identity


def _identity(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return f"{pid} {fields[19].decode()}" if len(fields) > 19 and fields[0] not in (b"Z", b"X") else ""
