"""Sockets of a command without a view: its supervisor creates and connects them on its behalf.

Without a network namespace the kernel has no rule for "loopback only", and Landlock has none for Unix sockets by path
before ABI 9. So the supervisor answers `socket` and `connect` of a command (seccomp_unotify(2)). It creates the socket,
binds it to the device `lo` unless network access is granted (only CAP_NET_RAW can undo that), passes a copy to the
command, and keeps its own until the socket is connected, bound or listening. It reads an address once and uses its own
copy, so that the command can't change it after the check. Runs in the supervisor; standard library only.
"""

import errno
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from coretools.confinement import syscalls
from coretools.process.fork_server.messages import SocketRules
from coretools.process.fork_server.notifications import CallListener, InterceptedCall
from coretools.process.fork_server.socket_paths import open_pinned
from coretools.process.fork_server.tcp_listeners import ListenerTable

MAX_SOCKET_COPIES = 256
"""Sockets of one command, neither connected nor bound, of which the supervisor keeps a copy."""
_RETRY_SECONDS = 0.02
"""Between two attempts to connect to a Unix socket whose queue is full, and two checks who listens on a TCP port."""
_PATH_BYTES = 108
_SYN_SENT = 2
"""Socket state in the first byte of TCP_INFO (tcp(7))."""


class _PendingConnection(NamedTuple):
    """A connection attempt of a blocking socket."""

    call: InterceptedCall
    inode: int
    address: bytes
    handles: tuple[int, ...]
    """Kept open while the address names them."""


class SocketBroker:
    """Responds to the socket calls of one command. `close` must be called."""

    def __init__(self, watch: SocketRules, listeners: ListenerTable, calls: CallListener, poll: "select.poll") -> None:
        self._watch, self._listeners, self._calls, self._poll = watch, listeners, calls, poll
        self._copies: dict[int, socket.socket] = {}
        """By inode, oldest first."""
        self._connected: dict[int, None] = {}
        self._pending: dict[int, _PendingConnection] = {}
        """By the descriptor of our copy."""
        self._retries: list[_PendingConnection] = []
        self._begun: dict[int, bytes] = {}
        """Addresses of TCP connections in progress, by inode. The kernel repeats its first packet for two minutes, in
        which another process can begin to listen there."""
        self._next_check = 0.0

    @property
    def pause(self) -> float | None:
        """Seconds until the next retry, or None."""
        return _RETRY_SECONDS if self._retries or self._begun else None

    def handle_events(self, ready: Mapping[int, int]) -> None:
        """Handle poll events; does not block."""
        if self._begun and (time.monotonic() >= self._next_check or not self._pending.keys().isdisjoint(ready)):
            for inode, address in list(self._begun.items()):
                self._retry(inode, address)
            self._next_check = time.monotonic() + _RETRY_SECONDS
        again, self._retries = self._retries, []
        for handle in self._pending.keys() & ready.keys():
            self._poll.unregister(handle)
            again.append(self._pending.pop(handle))
        for one in again:  # a second connect(2) returns the result of the first
            self._connect(one)

    def handle(self, call: InterceptedCall) -> None:
        """Answer a call, or keep it until its connection is decided."""
        try:
            if call.number == syscalls.NUMBERS["socket"]:
                self._make(call)
            elif call.number == syscalls.NUMBERS["connect"]:
                self._begin(call)
            else:
                self._let_go(call)
        except OSError as error:
            self._calls.answer(call, error.errno or errno.EACCES)

    def close(self) -> None:
        """Close every copy and drop pending calls."""
        for one in (*self._pending.values(), *self._retries):
            _close_all(one.handles)
        for copy in self._copies.values():
            copy.close()

    def _make(self, call: InterceptedCall) -> None:
        family, kind, protocol = (word & 0xFFFFFFFF for word in call.arguments[:3])
        base = kind & 0xF
        kinds: tuple[int, ...]
        protocols: tuple[int, ...]
        if family == socket.AF_UNIX:
            # A datagram socket names its peer with each message, which can't be intercepted.
            kinds, protocols = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET), (0, socket.AF_UNIX)
        elif self._watch.loopback:
            # UDP can leave the device that it is bound to (ip(7), IP_PKTINFO), and so can IPv6 (bind with a scope).
            if family != socket.AF_INET:
                raise OSError(errno.EAFNOSUPPORT, "")
            kinds, protocols = (socket.SOCK_STREAM,), (0, socket.IPPROTO_TCP)
        else:
            kinds, protocols = (socket.SOCK_STREAM, socket.SOCK_DGRAM), (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP)
        is_served = base in kinds and protocol in protocols
        if not is_served:
            # Without network access there are no others; with it the rights of the command decide.
            if self._watch.loopback or family == socket.AF_UNIX:
                raise OSError(errno.EPROTONOSUPPORT, "")
            self._calls.let_pass(call)
            return
        self._give(call, socket.socket(family, base, protocol), kind)

    def _give(self, call: InterceptedCall, created: socket.socket, kind: int) -> None:
        try:
            if self._watch.loopback and created.family != socket.AF_UNIX:
                # Bound to the loopback device it reaches no other, whatever it is connected to later (socket(7)).
                created.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
            os.set_blocking(created.fileno(), not kind & socket.SOCK_NONBLOCK)
            flags = os.O_CLOEXEC if kind & socket.SOCK_CLOEXEC else 0
            self._calls.give(call, created.fileno(), flags)
        except OSError:
            created.close()
            raise
        self._copies[os.fstat(created.fileno()).st_ino] = created
        if len(self._copies) > MAX_SOCKET_COPIES:
            # One that is connecting is needed for the response to its call.
            oldest = next(inode for inode, copy in self._copies.items() if copy.fileno() not in self._pending)
            self._disconnect(oldest)
            self._copies.pop(oldest).close()

    def _let_go(self, call: InterceptedCall) -> None:
        """Drop our copy before `bind` and `listen`: from now on the command owns the address or the queue."""
        inode = _inode(call)
        self._require_valid(call)
        if inode in self._begun:
            raise OSError(errno.EINVAL, "")
        if call.number == syscalls.NUMBERS["listen"]:
            self._listeners.add(inode)
        copy = self._copies.pop(inode, None)
        if copy is not None:
            copy.close()
        self._calls.let_pass(call)

    def _begin(self, call: InterceptedCall) -> None:
        inode = _inode(call)
        copy = self._copies.get(inode)
        if copy is None:
            raise OSError(errno.EISCONN if inode in self._connected else errno.EOPNOTSUPP, "")
        if copy.fileno() in self._pending:
            raise OSError(errno.EALREADY, "")
        given = call.memory(call.arguments[1], min(call.arguments[2] & 0xFFFFFFFF, 128))
        if copy.family != socket.AF_UNIX:
            self._require_valid(call)
            if self._watch.loopback:
                self._listeners.require_own(given)
            self._connect(_PendingConnection(call, inode, given, ()))
            return
        handle = self._found(call.thread, given)
        if not self._calls.is_valid(call):
            os.close(handle)
            return
        # By the descriptor that was examined: the path may lead to another socket by now.
        address = struct.pack("H", socket.AF_UNIX) + f"/proc/self/fd/{handle}\0".encode()
        self._connect(_PendingConnection(call, inode, address, (handle,)))

    def _require_valid(self, call: InterceptedCall) -> None:
        """Check that the call is pending: then the thread id was not reused when its memory was read."""
        if not self._calls.is_valid(call):
            raise OSError(errno.ESRCH, "")

    def _found(self, thread: int, address: bytes) -> int:
        """Open the Unix socket that an address names, if it is in a permitted directory."""
        path = address[2:_PATH_BYTES].partition(b"\0")[0]
        if len(address) < 3 or not path:  # abstract addresses are shared by the whole machine
            raise OSError(errno.ECONNREFUSED, "")
        cwd = os.open(f"/proc/{thread}/cwd", os.O_PATH | os.O_CLOEXEC)
        try:
            handle = open_pinned(path, cwd, self._watch.places)
        finally:
            os.close(cwd)
        real = os.readlink(f"/proc/self/fd/{handle}")
        is_socket = stat.S_ISSOCK(os.fstat(handle).st_mode)
        if is_socket and any(real.startswith(f"{place}/") for place in self._watch.places):
            return handle
        os.close(handle)
        raise OSError(errno.EACCES if is_socket else errno.ECONNREFUSED, "")

    def _connect(self, one: _PendingConnection) -> None:
        copy = self._copies.get(one.inode)
        if copy is None:
            self._calls.answer(one.call, errno.ECONNABORTED)
            _close_all(one.handles)
            return
        handle = copy.fileno()
        # The supervisor must not block. The flag belongs to the open socket, which the command shares, so it is set
        # back at once.
        is_blocking = os.get_blocking(handle)
        os.set_blocking(handle, False)
        error = 0
        try:
            syscalls.syscall("connect", handle, one.address, len(one.address))
        except OSError as failure:
            error = failure.errno or errno.EACCES
        finally:
            os.set_blocking(handle, is_blocking)
        self._note_begun(one, copy)
        if is_blocking and error == errno.EAGAIN and self._calls.is_valid(one.call):
            self._retries.append(one)
        elif is_blocking and error in (errno.EINPROGRESS, errno.EALREADY):
            self._pending[handle] = one
            self._poll.register(handle, select.POLLOUT)
        else:
            self._conclude(one, error)

    def _note_begun(self, one: _PendingConnection, copy: socket.socket) -> None:
        """Track a connection in progress, whatever connect returned: TCP_FASTOPEN_CONNECT succeeds before a packet."""
        if self._watch.loopback and _is_connecting(copy):
            self._begun.setdefault(one.inode, one.address)
        else:
            self._begun.pop(one.inode, None)

    def _retry(self, inode: int, address: bytes) -> None:
        """Abort a connection in progress unless its peer is a command of this server."""
        copy = self._copies[inode]
        is_begun = _is_connecting(copy)
        is_refused = False
        try:
            self._listeners.require_own(address)
        except OSError as error:  # no listener: a command that accepted it may have closed its own
            is_refused = is_begun or error.errno != errno.ECONNREFUSED
        one = self._pending.get(copy.fileno())
        if is_refused:
            self._disconnect(inode)
            if one is not None:
                self._poll.unregister(copy)
                del self._pending[copy.fileno()]
                self._conclude(one, errno.ECONNREFUSED)
        elif one is None and not is_begun:
            self._settle(inode)

    def _disconnect(self, inode: int) -> None:
        if self._begun.pop(inode, None) is not None:
            syscalls.syscall("connect", self._copies[inode].fileno(), bytes(16), 16)  # AF_UNSPEC, connect(2)

    def _settle(self, inode: int) -> None:
        """Close our copy of a connected socket, so that a close by the command takes effect."""
        self._begun.pop(inode, None)
        self._copies.pop(inode).close()
        self._connected[inode] = None
        if len(self._connected) > MAX_SOCKET_COPIES:
            del self._connected[next(iter(self._connected))]

    def _conclude(self, one: _PendingConnection, error: int) -> None:
        """Respond to the call; close our copy unless the socket may be connected again or is not connected yet."""
        _close_all(one.handles)
        is_connected = error in (0, errno.EINPROGRESS) and one.inode not in self._begun
        if is_connected and self._copies[one.inode].type != socket.SOCK_DGRAM:
            self._settle(one.inode)
        self._calls.answer(one.call, error)


def _inode(call: InterceptedCall) -> int:
    """Inode of the socket in the first argument. Inodes of sockets are unique on the machine."""
    try:
        name = os.readlink(f"/proc/{call.thread}/fd/{call.arguments[0] & 0xFFFFFFFF}")
    except FileNotFoundError:
        raise OSError(errno.EBADF, "") from None
    if not name.startswith("socket:["):
        raise OSError(errno.ENOTSOCK, "")
    return int(name[8:-1])


def _is_connecting(copy: socket.socket) -> bool:
    """Whether a TCP connection is in progress: neither established nor refused."""
    if copy.family != socket.AF_INET or copy.type != socket.SOCK_STREAM:
        return False
    return copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _SYN_SENT


def _close_all(handles: Sequence[int]) -> None:
    for handle in handles:
        os.close(handle)
