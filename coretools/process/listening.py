"""Whether a run listens on a port, without connecting to it.

A connection would be an event for the server that is waited for, and can't be made at all where commands have a network
of their own. What /proc says of the run's processes is true in both cases.
"""

import os
from contextlib import suppress

from coretools.process.children import reaper
from coretools.process.fork_server.listeners import listening


def is_listening(marker: bytes, port: int) -> bool:
    """Whether a process that carries the marker has a TCP socket that listens on this port. Blocking."""
    return any(_listens(pid, port) for pid in reaper.find((), marker))


def _listens(pid: int, port: int) -> bool:
    with suppress(OSError):  # ended meanwhile
        inodes = listening(pid, port)
        return bool(inodes) and not _open(pid).isdisjoint(f"socket:[{inode}]" for inode in inodes)
    return False


def _open(pid: int) -> set[str]:
    """What the descriptors of a process lead to."""
    found = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found
