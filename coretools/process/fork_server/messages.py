"""What the server, its fork servers and their supervisors send each other."""

import socket
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from coretools.confinement import landlock, namespaces

READY, READY_UNRECORDED = b"ready", b"ready, without records"
"""First message of a fork server, once it is set up. The second: changes can't be recorded here, as was asked."""

COMMAND, RETIRE, REPORT_WHEN_EMPTY = b"C", b"R", b"S"
"""Requests of the server to a fork server: prefork a command; exit after the last command; report when nothing is left
of commands whose supervisors have exited."""

COVER_RESTORED, COVER_LOST = b"A", b"L"
"""Reports about a cover, followed by its path: it was lost and restored, or it can't be restored."""

SOCKETS: Mapping[int, bytes] = MappingProxyType({socket.AF_INET: b"4", socket.AF_INET6: b"6"})
"""Requests by family: make a TCP socket in the network namespace, and send it on the socket that comes along."""

EXECUTES = b"E"
"""Message of a preforked process to the server, right before its exec: from then on its program may have run."""

PAIR = 2
"""Sockets that come with a request for a command: one for its supervisor, one for the command."""

TERM, KILL, WATCH = b"T", b"K", b"W"
"""Messages of the server to a supervisor. End of file means KILL."""

EXITED, GONE = "exited", "gone"
"""Messages of a supervisor to the server. EXITED: the command has exited; with its wait status, its peak memory in KiB
if known, and how many processes it left and how many were stopped so far. GONE: nothing of the tree is left; with the
peak memory, how many processes were stopped, and why, if not at the request of the server. Both end with the directory
in the spool that records its changes; empty if it changed nothing, or left processes."""


class SpawnRequest(NamedTuple):
    """What a command is started with; passed through `marshal`, since both ends are the same interpreter."""

    argv: tuple[bytes, ...]
    environment: tuple[tuple[bytes, bytes], ...]
    directory: bytes
    identity: tuple[int, int]
    """Device and inode of the directory; 0 stands for any, since an overlay has a device of its own."""
    terminal: bool
    """Standard input is a terminal that becomes the controlling one."""
    program: bytes
    """Path of the program; empty: search the PATH of the environment."""


class SocketRules(NamedTuple):
    """What sockets of commands may reach; part of the config."""

    loopback: bool
    """Only TCP listeners of commands of this server; otherwise the whole network."""
    places: Sequence[str]
    """Directories beneath which Unix sockets may be connected to."""


class RecordedChanges(NamedTuple):
    """What is recorded of the changes that commands make; part of the config. Descriptors are inherited."""

    roots: Sequence[tuple[bytes, int]]
    """Paths in the view, and directories opened outside it, of the roots in which changes are recorded."""
    spool: int
    """The directory of records, opened outside the view."""
    role: str
    file_bytes: int
    """Largest file that is copied."""
    total_bytes: int
    """Space that the records of one command may occupy."""
    server: str
    """Identity of the server, which takes the records as long as it lives."""

    @property
    def handles(self) -> tuple[int, ...]:
        """All descriptors."""
        return (self.spool, *(handle for _, handle in self.roots))


class ForkServerConfig(NamedTuple):
    """Config of a fork server, passed through `marshal`."""

    view: namespaces.NamespacePlan | None
    """None for no namespaces."""
    rules: Sequence[landlock.Rule | landlock.EntryGrants] | None
    """Landlock rules; None for none. Descriptors in them are inherited."""
    tcp: bool
    families: Sequence[int] | None
    """Socket families that the seccomp filter allows; None for no filter."""
    socket_rules: SocketRules | None
    """What sockets may reach if supervisors create them; None if commands do."""
    limits: Sequence[tuple[int, int]]
    processes: int
    changes: RecordedChanges | None = None
    """None: changes are not recorded."""


class ForkServerFailed(Exception):
    """A fork server could not be started, or could not apply its config; the text says why."""

    def __init__(self, why: str, number: int = 0) -> None:
        super().__init__(why)
        self.number = number
        """The error number of the system, or 0."""
