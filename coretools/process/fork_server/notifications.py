"""System calls of a command that wait for an answer of its supervisor (seccomp_unotify(2)).

The command sends the descriptor of its filter once; from then on the calls that the filter intercepts arrive here. The
memory that a call points to belongs to the command, which can change it at any time: it is read once. Runs in the
supervisor; standard library only.
"""

import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

_RECEIVE, _ANSWER, _IS_VALID, _GIVE = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
"""ioctl(2) requests of `linux/seccomp.h`: receive a call, respond, check that it is pending, add a descriptor."""
_NOTICE_BYTES = 80
_GO_ON = 1
"""Flag of a response: the kernel executes the call."""
_GIVE_AND_ANSWER = 2


class InterceptedCall(NamedTuple):
    """A system call that waits for its response."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]

    def memory(self, where: int, size: int) -> bytes:
        """Read memory of the thread, once; less than asked for at the end of its mapped memory.

        Raises:
            OSError: EACCES if it may not be read, else EFAULT.
        """
        try:
            handle = os.open(f"/proc/{self.thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise OSError(errno.EACCES if isinstance(error, PermissionError) else errno.EFAULT, "") from error
        try:
            return os.pread(handle, size, where)
        except (OverflowError, OSError) as error:
            raise OSError(errno.EFAULT, "") from error
        finally:
            os.close(handle)


class CallListener:
    """Receives and answers the intercepted calls of one command. `close` must be called."""

    def __init__(self, arrival: socket.socket, poll: "select.poll") -> None:
        """The command sends the descriptor of its filter over `arrival`, once."""
        self._arrival, self._poll = arrival, poll
        self._notices = -1
        self._poll.register(arrival, select.POLLIN)

    def receive(self, ready: Mapping[int, int]) -> InterceptedCall | None:
        """Handle poll events; return the next call, if one waits. Does not block."""
        if self._arrival.fileno() in ready:
            self._take_filter()
        if self._notices not in ready:
            return None
        if not ready[self._notices] & select.POLLIN:  # no process with this filter is left
            self._poll.unregister(self._notices)
            os.close(self._notices)
            self._notices = -1
            return None
        notice = bytearray(_NOTICE_BYTES)
        try:
            fcntl.ioctl(self._notices, _RECEIVE, notice)
        except OSError:  # the caller was killed meanwhile
            return None
        number, thread, called = struct.unpack_from("QI4xi", notice)
        return InterceptedCall(number, thread, called, struct.unpack_from("6Q", notice, 32))

    def answer(self, call: InterceptedCall, error: int = 0) -> None:
        """Have the call return 0 or an error."""
        self._send(call, error, 0)

    def let_pass(self, call: InterceptedCall) -> None:
        """Have the kernel execute the call, with whatever its arguments point to by then."""
        self._send(call, 0, _GO_ON)

    def give(self, call: InterceptedCall, descriptor: int, flags: int) -> None:
        """Have the call return a copy of a descriptor, with these flags.

        Raises:
            OSError: the caller was killed, or has no room for it.
        """
        fcntl.ioctl(self._notices, _GIVE, struct.pack("Q4I", call.id, _GIVE_AND_ANSWER, descriptor, 0, flags))

    def is_valid(self, call: InterceptedCall) -> bool:
        """Whether the call is pending: then the thread id was not reused when its memory was read."""
        try:
            fcntl.ioctl(self._notices, _IS_VALID, struct.pack("Q", call.id))
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the descriptor; calls that wait, and later ones, get ENOSYS."""
        self._arrival.close()
        if self._notices >= 0:
            os.close(self._notices)

    def _take_filter(self) -> None:
        handles: list[int] = []
        with suppress(OSError):
            _, handles, _, _ = socket.recv_fds(self._arrival, 1, 1)
        self._poll.unregister(self._arrival)
        self._arrival.close()
        self._arrival = socket.socket()  # a descriptor that poll never reports
        if handles:
            self._notices = handles[0]
            os.set_inheritable(self._notices, False)
            self._poll.register(self._notices, select.POLLIN)

    def _send(self, call: InterceptedCall, error: int, flags: int) -> None:
        with suppress(OSError):  # the caller was killed meanwhile
            fcntl.ioctl(self._notices, _ANSWER, struct.pack("QqiI", call.id, 0, -error, flags))
