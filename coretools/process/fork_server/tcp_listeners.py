"""TCP listeners of this machine as /proc shows them, and those among them that belong to commands of this server.

Standard library only: supervisors import it.
"""

import array
import errno
import fcntl
import os
import socket
import struct
import sys
from contextlib import suppress

from coretools.process.children import reaper

MAX_LISTENERS = 4096
"""Capacity of the table; the oldest entries are dropped."""

_LOOPBACK_NET = 127
_LISTEN = "0A"
"""TCP_LISTEN of the kernel's include/net/tcp_states.h, as proc(5) writes it."""
_ADDRESS, _STATE, _INODE = 1, 3, 9
"""Places in a line of /proc/PID/net/tcp."""


def listening_sockets(process: int | str, port: int) -> dict[int, bytes]:
    """Inodes of the sockets that listen on a port in the network namespace of a process, with their addresses.

    Listening sockets come first in the table (tcp_seq_start in the kernel's net/ipv4/tcp_ipv4.c).

    Raises:
        OSError: not readable, or the process has exited.
    """
    addresses = {}
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError), open(f"/proc/{process}/net/{table}", encoding="ascii") as file:
            file.readline()
            for fields in map(str.split, file):
                if fields[_STATE] != _LISTEN:
                    break
                host, _, at = fields[_ADDRESS].rpartition(":")
                if int(at, 16) == port:  # addresses are written in host byte order; an IPv4 address is one number
                    addresses[int(fields[_INODE])] = int(host, 16).to_bytes(len(host) // 2, sys.byteorder)
    return addresses


class ListenerTable:
    """Inodes of the listening sockets of all commands of a server, shared by their supervisors in memory."""

    def __init__(self) -> None:
        self._file = os.memfd_create("listeners")
        os.ftruncate(self._file, 8 * (MAX_LISTENERS + 1))

    def add(self, inode: int) -> None:
        """Add a socket; the oldest is dropped when the table is full."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            (count,) = struct.unpack("Q", os.pread(self._file, 8, 0))
            os.pwrite(self._file, struct.pack("Q", inode), 8 + 8 * (count % MAX_LISTENERS))
            os.pwrite(self._file, struct.pack("Q", count + 1), 0)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def require_own(self, address: bytes) -> None:
        """Refuse an address unless a command of this server listens on it, and nobody else on the same port.

        A command has to listen on this very address: then a foreign listener, which could be missing in a table that
        changes while it is read, can't be the one that answers.
        """
        if len(address) < 16 or int.from_bytes(address[:2], "little") != socket.AF_INET:
            raise OSError(errno.EAFNOSUPPORT, "")
        host = address[4:8] if any(address[4:8]) else bytes((_LOOPBACK_NET, 0, 0, 1))
        listeners = listening_sockets("self", int.from_bytes(address[2:4], "big"))
        known = set(array.array("Q", os.pread(self._file, 8 * MAX_LISTENERS, 8)))
        if host[0] != _LOOPBACK_NET or not known.issuperset(listeners):
            raise OSError(errno.ENETUNREACH, "")
        if not any(at in (host, bytes(4)) for at in listeners.values()):
            raise OSError(errno.ECONNREFUSED, "")


def is_listening(marker: bytes, port: int) -> bool:
    """Whether a process with this marker in its environment listens on the TCP port. Blocking.

    Read from /proc, without connecting: a connection would be an event for the server that is waited for, and commands
    with a network namespace of their own can't be reached.
    """
    return any(_process_listens(pid, port) for pid in reaper.find_processes((), marker))


def _process_listens(pid: int, port: int) -> bool:
    with suppress(OSError):  # ended meanwhile
        inodes = listening_sockets(pid, port)
        return bool(inodes) and not _open_descriptors(pid).isdisjoint(f"socket:[{inode}]" for inode in inodes)
    return False


def _open_descriptors(pid: int) -> set[str]:
    """What the descriptors of a process lead to."""
    targets = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                targets.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return targets
