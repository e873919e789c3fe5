"""A child process of the server: its exit status, its process group, and our ends of its pipes."""

import os
import signal
import subprocess
import sys
import threading
import time

import anyio

from coretools.process.children import reaper

HAS_PIDFD = sys.platform == "linux" and hasattr(os, "pidfd_open")
"""Whether a pidfd reports the exit of a child (Linux 5.3); elsewhere a thread waits for each child."""

_STATUS_UNKNOWN = 256
"""Placeholder for an exit code that the kernel did not keep; real ones end at 255."""


def exit_handle(pid: int) -> int:
    """A descriptor that becomes readable when the child exits. It does not reap the child."""
    if HAS_PIDFD:
        try:
            return os.pidfd_open(pid)
        except OSError:  # blocked by a seccomp filter, or no descriptors left
            pass
    return exit_handle_by_thread(pid)


def exit_handle_by_thread(pid: int) -> int:
    """The same without a pidfd: a pipe whose other end a waiting thread closes."""
    reading, writing = os.pipe()

    def wait() -> None:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # reaped meanwhile
            pass
        finally:
            os.close(writing)

    threading.Thread(target=wait, name=f"exit of {pid}", daemon=True).start()
    return reading


class ChildProcess:
    """One child. Only `wait` and `kill` block. `close` must be called, on the event loop."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        exit_handle: int,
        pipes: tuple[int | None, int, int],
        started: float,
        peak_floor: int,
    ) -> None:
        self.pid = process.pid
        self.stdin, self.stdout, self.stderr = pipes
        self._process = process
        self._exit_handle = exit_handle
        self._started = started
        self._peak_floor = peak_floor
        self._has_exited = False
        self.duration_seconds = 0.0
        self.peak_memory_bytes = 0
        self.stopped_for = ""
        """Always empty: only supervised commands are stopped by somebody else than the runner."""

    @property
    def has_exited(self) -> bool:
        """Whether `wait` or `reap` has seen the exit of the program."""
        return self._has_exited

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while it runs, after a signal, or when the kernel kept no status."""
        code = self._process.returncode
        return code if code is not None and 0 <= code < _STATUS_UNKNOWN else None

    @property
    def signal_name(self) -> str | None:
        """Name of the signal that terminated the program ("SIGKILL"), or None."""
        code = self._process.returncode
        if code is None or code >= 0:
            return None
        try:
            return signal.Signals(-code).name
        except ValueError:  # real-time signals between SIGRTMIN and SIGRTMAX have no names
            return f"SIG{-code}"

    async def wait(self) -> None:
        """Wait until the program itself exits, whoever else holds its pipes."""
        if not self._has_exited:
            await anyio.wait_readable(self._exit_handle)
            self._record_exit()

    def reap(self) -> bool:
        """Collect the exit status if the program has exited; False while it runs."""
        if self._process.returncode is not None:
            return True
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:  # the server was started with SIGCHLD ignored: the kernel keeps no status
            self._record_exit()
            self._process.returncode = _STATUS_UNKNOWN
            return True
        if pid == 0:
            return False
        self._record_exit()
        # Popen must neither wait for it again nor warn about a child that was never waited for.
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if usage.ru_maxrss > self._peak_floor:
            self.peak_memory_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return True

    def group_exists(self) -> bool:
        """Whether the process group has members. Only valid after `reap`: until then the child itself is one.

        The kernel does not reuse the number while the group has a member.
        """
        try:
            # A server that is process 1 of a container inherits orphans; as zombies they would count as members.
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            pass
        return reaper.group_exists(self.pid)

    def signal_group(self, number: int) -> None:
        """Signal the whole process group."""
        reaper.signal_group(self.pid, number)

    def kill(self) -> None:
        """Kill and reap. Blocks: for a child that no task waits for any more."""
        self.signal_group(signal.SIGKILL)
        self._process.wait()
        self.close()

    def close_stdin(self) -> None:
        """Close the standard input of the child."""
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def close(self) -> None:
        """Close our descriptors."""
        self.close_stdin()
        for descriptor in (self._exit_handle, self.stdout, self.stderr):
            os.close(descriptor)

    def _record_exit(self) -> None:
        if not self._has_exited:
            self._has_exited = True
            self.duration_seconds = time.monotonic() - self._started
