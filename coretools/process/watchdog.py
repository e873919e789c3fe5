"""Starts and replaces the watchdog, a second process that kills what a killed server left behind.

A server that gets SIGKILL can't clean up. The watchdog starts before the first child of the server and blocks on a pipe
whose other end only the server holds; the end of file wakes it. Both share a table of the live process groups in
memory, so that a run costs no system call for it and never wakes the watchdog. The program of the watchdog is `reaper`.
"""

import errno
import mmap
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path

from coretools.process.children import reaper

MAX_STARTS = 5
"""After so many unexpected exits the watchdog is not restarted; the protection is then reported as missing."""

_PASSING = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""Out of descriptors, processes or memory: a later attempt may succeed."""

_LIBRARY_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What an interpreter may need of the environment to start; `-I` ignores the rest. The marker of an outer server is
left out: that server must not kill our watchdog before it has seen the end of our server."""


class Watchdog:
    """Keeps the watchdog process running and its table current. Thread-safe."""

    def __init__(self, marker: str, *, slots: int, grace_seconds: float, scratch: str = "") -> None:
        """`scratch` is a directory of the server that is removed after its death; it need not exist yet."""
        self._marker = marker
        self._scratch = scratch
        self._slots = slots
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._pipe = -1
        self._table = -1
        self._groups: memoryview | None = None
        self._free: deque[int] = deque(range(slots))

    @property
    def is_possible(self) -> bool:
        """Whether a watchdog runs or will be started with the next child."""
        return bool(sys.executable) and self._starts <= MAX_STARTS

    def ensure_running(self) -> None:
        """Start the watchdog if it does not run; called before every child."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            if self.is_possible:
                self._start()

    def register(self, group: int) -> int | None:
        """Add a process group to the table; return its slot, or None without a table or a free slot."""
        if self._groups is None:
            return None
        try:
            slot = self._free.popleft()
        except IndexError:  # taken by groups that outlast SIGKILL; this one can still be found by its marker
            return None
        self._groups[slot] = group  # an aligned store is atomic: a reader sees the old number or the new one
        return slot

    def unregister(self, slot: int | None) -> None:
        """Remove a group that is empty from the table."""
        if slot is not None and self._groups is not None:
            self._groups[slot] = 0
            self._free.append(slot)

    def close(self) -> None:
        """End the watchdog, which first kills every process that still has the marker. Blocks, bounded."""
        with self._lock:
            self._starts = MAX_STARTS + 1
            self._announce_close()
            self._close_pipe()
            if self._process is not None:
                try:
                    self._process.wait(reaper.ORPHAN_GRACE_SECONDS + 2 * reaper.KILL_SECONDS)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            if self._groups is not None:
                self._groups = None
                os.close(self._table)

    def _start(self) -> None:
        self._process = None
        self._close_pipe()
        try:
            self._make_table()
            reading, self._pipe = os.pipe()
        except OSError:  # out of resources: does not count as a start
            return
        self._starts += 1
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(Path(reaper.__file__))),
                    *(str(self._table), str(self._slots), self._marker, str(self._grace_seconds), self._scratch),
                ],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _LIBRARY_VARIABLES if name in os.environ},
                cwd="/",
                pass_fds=(self._table,),
                start_new_session=True,
            )
        except OSError as error:  # tried again with the next child
            self._starts -= error.errno in _PASSING
        finally:
            os.close(reading)

    def _make_table(self) -> None:
        if self._groups is not None:
            return
        table = _memory_file()
        try:
            os.ftruncate(table, self._slots * 4)
            self._groups = memoryview(mmap.mmap(table, self._slots * 4)).cast("i")
        except OSError:
            os.close(table)
            raise
        self._table = table

    def _announce_close(self) -> None:
        """Announce an orderly shutdown, after which the watchdog need not scan twice (see `reaper.main`)."""
        if self._process is not None and self._process.poll() is None:
            with suppress(BrokenPipeError):
                os.write(self._pipe, b".")

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _memory_file() -> int:
    """Descriptor of an unnamed file."""
    if sys.platform == "linux":
        return os.memfd_create("coretools-watchdog")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
