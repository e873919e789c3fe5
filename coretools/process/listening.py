"""Whether a run listens on a port, without connecting to it.

A connection would be an event for the server that is waited for, and can't be made at all where commands have a network
of their own. What /proc says of the run's processes is true in both cases.
"""

import os
from contextlib import suppress

from coretools.process import survivors

_LISTEN = "0A"
"""TCP_LISTEN of the kernel's include/net/tcp_states.h, as proc(5) writes it."""
_ADDRESS, _STATE, _INODE = 1, 3, 9
"""Places in a line of /proc/PID/net/tcp."""


def is_listening(marker: bytes, port: int) -> bool:
    """Whether a process that carries the marker has a TCP socket that listens on this port. Blocking."""
    return any(_listens(pid, port) for pid in survivors.find((), marker))


def _listens(pid: int, port: int) -> bool:
    inodes = _inodes(pid, port)
    return bool(inodes) and any(f"socket:[{inode}]" in _open(pid) for inode in inodes)


def _inodes(pid: int, port: int) -> set[str]:
    """Sockets that listen on the port in the network that this process sees."""
    found = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[_STATE] == _LISTEN and int(fields[_ADDRESS].rpartition(":")[2], 16) == port:
                    found.add(fields[_INODE])
    return found


def _open(pid: int) -> set[str]:
    """What the descriptors of a process lead to."""
    found = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found
