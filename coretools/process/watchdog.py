"""A second process that ends what a killed server left behind.

A server that gets SIGKILL can clean up nothing itself. The guard is started before the server's first child, holds one
pipe whose other end only the server has, and does nothing until that pipe ends. Which groups are alive stands in a
table that both share in memory: a run costs no system call for it and never wakes the guard.
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
"""A guard that ends by itself this often can't live here; the protection is then named as missing."""

_PASSING = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""No descriptor, no process, no memory: it may be otherwise a moment later."""

_LIBRARY_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""All that an interpreter may need of the environment to start; `-I` ignores the rest. No marker of an outer server:
its sweep must not end our guard before the guard has seen the end of our server."""


class Watchdog:
    """Keeps the guard process alive and its table right. Methods may be called from several threads."""

    def __init__(self, marker: str, *, slots: int, grace_seconds: float, scratch: str = "") -> None:
        """`scratch` is a directory of the server's that is removed after its death; it need not be there yet."""
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
        """Whether a guard runs or will run with the next child."""
        return bool(sys.executable) and self._starts <= MAX_STARTS

    def ensure_running(self) -> None:
        """Have a guard running, if that is possible here; called before every child."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            if self.is_possible:
                self._start()

    def register(self, group: int) -> int | None:
        """Put a process group under guard; its slot, or None when there is no guard."""
        if self._groups is None:
            return None
        try:
            slot = self._free.popleft()
        except IndexError:  # taken by children that even KILL did not end; the marker finds this one
            return None
        self._groups[slot] = group  # one aligned store: a reader sees the old number or the new one
        return slot

    def unregister(self, slot: int | None) -> None:
        """Take a group off: nothing of it is left."""
        if slot is not None and self._groups is not None:
            self._groups[slot] = 0
            self._free.append(slot)

    def close(self) -> None:
        """End the guard, which ends everything that still carries the marker first. Bounded, blocks."""
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
        except OSError:  # no descriptor, no memory: the machine's fault, so it does not count as a start
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
        """Tell the guard that this end is no crash, so that it need not look twice (see `survivors.main`)."""
        if self._process is not None and self._process.poll() is None:
            with suppress(BrokenPipeError):
                os.write(self._pipe, b".")

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _memory_file() -> int:
    """Descriptor of a file that has no name."""
    if sys.platform == "linux":
        return os.memfd_create("coretools-guard")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
