"""Sockets of a command where there is no view: its supervisor makes and connects them on its behalf.

Without a network namespace the kernel has no rule for "loopback only", and Landlock none for Unix sockets by path
before ABI 9. So `socket` and `connect` of a command are answered by its supervisor (seccomp_unotify(2)): it makes the
socket, binds it to the device `lo` where no network is granted (only CAP_NET_RAW can undo that), gives a copy to the
command, and keeps its own until the socket is connected, bound or listening. An address is read once and used by the
supervisor itself, so it can't be exchanged after it was looked at. Runs in the supervisor; standard library only.
"""

import errno
import fcntl
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from coretools.confinement import syscalls
from coretools.process.fork_server.listeners import ListenerTable
from coretools.process.fork_server.socket_paths import open_pinned

_RECEIVE, _ANSWER, _IS_VALID, _GIVE = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
"""Requests of ioctl(2), `linux/seccomp.h`: next call, answer, whether a call still waits, a descriptor for it."""
_NOTICE_BYTES = 80
_GO_ON = 1
"""Flag of an answer: the kernel carries the call out. Only for calls about which nothing was decided."""
_GIVE_AND_ANSWER = 2

MAX_SOCKET_COPIES = 256
"""Sockets of one command that are neither connected nor bound, of which the supervisor keeps a copy."""
_RETRY_SECONDS = 0.02
"""Where a queue is full: between two tries to connect to a Unix socket, and two looks who listens on a TCP port."""
_PATH_BYTES = 108
_SYN_SENT = 2
"""State of a socket, the first byte of TCP_INFO (tcp(7))."""


class SocketRules(NamedTuple):
    """What sockets of commands may reach; part of the orders."""

    loopback: bool
    """Only listeners of commands of this server, over TCP; otherwise the whole network."""
    places: Sequence[str]
    """Directories beneath which Unix sockets may be connected to."""


class _InterceptedCall(NamedTuple):
    """A system call that waits for its answer."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]


class _PendingConnection(NamedTuple):
    """A connection that a blocking socket waits for."""

    call: _InterceptedCall
    inode: int
    address: bytes
    handles: tuple[int, ...]
    """Kept open while the address names them."""


class SocketBroker:
    """Answers the calls of one command. `close` must be called."""

    def __init__(
        self, watch: SocketRules, listeners: ListenerTable, arrival: socket.socket, poll: "select.poll"
    ) -> None:
        """`arrival` is where the command sends the descriptor of its filter, once."""
        self._watch, self._listeners, self._arrival, self._poll = watch, listeners, arrival, poll
        self._notices = -1
        self._copies: dict[int, socket.socket] = {}
        """By inode, oldest first."""
        self._connected: dict[int, None] = {}
        self._pending: dict[int, _PendingConnection] = {}
        """By the descriptor of our copy."""
        self._retries: list[_PendingConnection] = []
        self._begun: dict[int, bytes] = {}
        """Addresses of TCP connections that are not established, by inode. The kernel repeats its first packet for two
        minutes, in which another process can come to listen there."""
        self._next_look = 0.0
        self._poll.register(arrival, select.POLLIN)

    @property
    def pause(self) -> float | None:
        """Seconds until something is to be tried again."""
        return _RETRY_SECONDS if self._retries or self._begun else None

    def handle_events(self, ready: Mapping[int, int]) -> None:
        """See to what has happened; does not block."""
        if self._arrival.fileno() in ready:
            self._take_filter()
        if self._begun and (time.monotonic() >= self._next_look or not self._pending.keys().isdisjoint(ready)):
            for inode, address in list(self._begun.items()):
                self._look_again(inode, address)
            self._next_look = time.monotonic() + _RETRY_SECONDS
        again, self._retries = self._retries, []
        for handle in self._pending.keys() & ready.keys():
            self._poll.unregister(handle)
            again.append(self._pending.pop(handle))
        for one in again:  # connect(2) a second time tells how the first one went
            self._connect(one)
        if self._notices in ready:
            if ready[self._notices] & select.POLLIN:
                self._answer_next()
            else:  # nobody is left whose calls it has
                self._poll.unregister(self._notices)
                os.close(self._notices)
                self._notices = -1

    def close(self) -> None:
        """Give up every copy and whatever still waits."""
        for one in (*self._pending.values(), *self._retries):
            _close_all(one.handles)
        for copy in self._copies.values():
            copy.close()
        self._arrival.close()
        if self._notices >= 0:
            os.close(self._notices)

    def _take_filter(self) -> None:
        handles: list[int] = []
        with suppress(OSError):
            _, handles, _, _ = socket.recv_fds(self._arrival, 1, 1)
        self._poll.unregister(self._arrival)
        self._arrival.close()
        self._arrival = socket.socket()  # has a number that is in no result of poll
        if handles:
            self._notices = handles[0]
            os.set_inheritable(self._notices, False)
            self._poll.register(self._notices, select.POLLIN)

    def _answer_next(self) -> None:
        notice = bytearray(_NOTICE_BYTES)
        try:
            fcntl.ioctl(self._notices, _RECEIVE, notice)
        except OSError:  # whoever called was ended meanwhile
            return
        number, thread, called = struct.unpack_from("QI4xi", notice)
        call = _InterceptedCall(number, thread, called, struct.unpack_from("6Q", notice, 32))
        try:
            if call.number == syscalls.NUMBERS["socket"]:
                self._make(call)
            elif call.number == syscalls.NUMBERS["connect"]:
                self._begin(call)
            else:
                self._let_go(call)
        except OSError as error:
            self._answer(call, error.errno or errno.EACCES)

    def _answer(self, call: _InterceptedCall, error: int = 0, *, flags: int = 0) -> None:
        with suppress(OSError):  # whoever called was ended meanwhile
            fcntl.ioctl(self._notices, _ANSWER, struct.pack("QqiI", call.id, 0, -error, flags))

    def _make(self, call: _InterceptedCall) -> None:
        family, kind, protocol = (word & 0xFFFFFFFF for word in call.arguments[:3])
        base = kind & 0xF
        kinds: tuple[int, ...]
        protocols: tuple[int, ...]
        if family == socket.AF_UNIX:
            # A datagram socket names its peer with each message, where nobody can look.
            kinds, protocols = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET), (0, socket.AF_UNIX)
        elif self._watch.loopback:
            # UDP can leave the device that it is bound to (ip(7), IP_PKTINFO), as can IPv6 (bind with a scope).
            if family != socket.AF_INET:
                raise OSError(errno.EAFNOSUPPORT, "")
            kinds, protocols = (socket.SOCK_STREAM,), (0, socket.IPPROTO_TCP)
        else:
            kinds, protocols = (socket.SOCK_STREAM, socket.SOCK_DGRAM), (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP)
        is_served = base in kinds and protocol in protocols
        if not is_served:
            # Without a granted network there are no others; with it the command's own rights decide.
            if self._watch.loopback or family == socket.AF_UNIX:
                raise OSError(errno.EPROTONOSUPPORT, "")
            self._answer(call, flags=_GO_ON)
            return
        self._give(call, socket.socket(family, base, protocol), kind)

    def _give(self, call: _InterceptedCall, made: socket.socket, kind: int) -> None:
        try:
            if self._watch.loopback and made.family != socket.AF_UNIX:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
            os.set_blocking(made.fileno(), not kind & socket.SOCK_NONBLOCK)
            flags = os.O_CLOEXEC if kind & socket.SOCK_CLOEXEC else 0
            fcntl.ioctl(self._notices, _GIVE, struct.pack("Q4I", call.id, _GIVE_AND_ANSWER, made.fileno(), 0, flags))
        except OSError:
            made.close()
            raise
        self._copies[os.fstat(made.fileno()).st_ino] = made
        if len(self._copies) > MAX_SOCKET_COPIES:
            oldest = next(inode for inode, copy in self._copies.items() if copy.fileno() not in self._pending)
            self._disconnect(oldest)
            self._copies.pop(oldest).close()

    def _let_go(self, call: _InterceptedCall) -> None:
        """Before `bind` and `listen`: the address or the queue is the command's from now on, until it closes it."""
        inode = _inode(call)
        self._require_valid(call)
        if inode in self._begun:
            raise OSError(errno.EINVAL, "")
        if call.number == syscalls.NUMBERS["listen"]:
            self._listeners.add(inode)
        copy = self._copies.pop(inode, None)
        if copy is not None:
            copy.close()
        self._answer(call, flags=_GO_ON)

    def _begin(self, call: _InterceptedCall) -> None:
        inode = _inode(call)
        copy = self._copies.get(inode)
        if copy is None:
            raise OSError(errno.EISCONN if inode in self._connected else errno.EOPNOTSUPP, "")
        if copy.fileno() in self._pending:
            raise OSError(errno.EALREADY, "")
        given = _read_memory(call.thread, call.arguments[1], min(call.arguments[2] & 0xFFFFFFFF, 128))
        if copy.family != socket.AF_UNIX:
            self._require_valid(call)
            if self._watch.loopback:
                self._listeners.require_own(given)
            self._connect(_PendingConnection(call, inode, given, ()))
            return
        handle = self._found(call.thread, given)
        if not _is_valid(self._notices, call):
            os.close(handle)
            return
        address = struct.pack("H", socket.AF_UNIX) + f"/proc/self/fd/{handle}\0".encode()
        self._connect(_PendingConnection(call, inode, address, (handle,)))

    def _require_valid(self, call: _InterceptedCall) -> None:
        """What was read of the caller was the caller's: its number did not come to mean another thread."""
        if not _is_valid(self._notices, call):
            raise OSError(errno.ESRCH, "")

    def _found(self, thread: int, address: bytes) -> int:
        """Handle of the Unix socket that an address names, if it lies where it may."""
        path = address[2:_PATH_BYTES].partition(b"\0")[0]
        if len(address) < 3 or not path:  # abstract ones are everybody's
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
            self._answer(one.call, errno.ECONNABORTED)
            _close_all(one.handles)
            return
        handle = copy.fileno()
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
        if is_blocking and error == errno.EAGAIN and _is_valid(self._notices, one.call):
            self._retries.append(one)
        elif is_blocking and error in (errno.EINPROGRESS, errno.EALREADY):
            self._pending[handle] = one
            self._poll.register(handle, select.POLLOUT)
        else:
            self._conclude(one, error)

    def _note_begun(self, one: _PendingConnection, copy: socket.socket) -> None:
        """Whatever the call answered: with TCP_FASTOPEN_CONNECT it says "connected" before anything was sent."""
        if self._watch.loopback and _is_connecting(copy):
            self._begun.setdefault(one.inode, one.address)
        else:
            self._begun.pop(one.inode, None)

    def _look_again(self, inode: int, address: bytes) -> None:
        """See to it that a connection that was begun comes about with a command only."""
        copy = self._copies[inode]
        is_begun = _is_connecting(copy)
        is_refused = False
        try:
            self._listeners.require_own(address)
        except OSError as error:  # nobody: a command that has taken it may have closed its listener
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
        """Give up the copy of a connected socket, so that a close by the command is one."""
        self._begun.pop(inode, None)
        self._copies.pop(inode).close()
        self._connected[inode] = None
        if len(self._connected) > MAX_SOCKET_COPIES:
            del self._connected[next(iter(self._connected))]

    def _conclude(self, one: _PendingConnection, error: int) -> None:
        """Give up the copy unless the socket may be connected again, or is not connected yet."""
        _close_all(one.handles)
        is_connected = error in (0, errno.EINPROGRESS) and one.inode not in self._begun
        if is_connected and self._copies[one.inode].type != socket.SOCK_DGRAM:
            self._settle(one.inode)
        self._answer(one.call, error)


def _inode(call: _InterceptedCall) -> int:
    """Of the socket that the first argument names. All of them are in one table, whoever holds them."""
    try:
        name = os.readlink(f"/proc/{call.thread}/fd/{call.arguments[0] & 0xFFFFFFFF}")
    except FileNotFoundError:
        raise OSError(errno.EBADF, "") from None
    if not name.startswith("socket:["):
        raise OSError(errno.ENOTSOCK, "")
    return int(name[8:-1])


def _read_memory(thread: int, where: int, size: int) -> bytes:
    """A piece of a thread's memory, read once."""
    try:
        with open(f"/proc/{thread}/mem", "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, where)
    except (OverflowError, OSError) as error:
        raise OSError(errno.EACCES if isinstance(error, PermissionError) else errno.EFAULT, "") from error


def _is_connecting(copy: socket.socket) -> bool:
    """Whether a connection was begun, and is neither established nor refused."""
    if copy.family != socket.AF_INET or copy.type != socket.SOCK_STREAM:
        return False
    return copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _SYN_SENT


def _is_valid(notices: int, call: _InterceptedCall) -> bool:
    try:
        fcntl.ioctl(notices, _IS_VALID, struct.pack("Q", call.id))
    except OSError:
        return False
    return True


def _close_all(handles: Sequence[int]) -> None:
    for handle in handles:
        os.close(handle)
