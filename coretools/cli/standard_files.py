"""Standard streams for a confined program: as they are, or copied through pipes where one is a file.

A process that has a file open can change its mode, times and attributes, whatever the sandbox says about its path, and
truncate one that was opened for appending (fchmod(2), ftruncate(2)). So a file stays with this process. What has no
name in a file system (a pipe, a socket) is handed over as it is, so that nothing is copied between a client and its
server, and so is a terminal.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from coretools.errors import InputOutput

COPY_BYTES = 64 * 1024

DRAIN_SECONDS = 10.0
"""Longest wait for the rest of an output after the program has ended: a process that can't be killed may hold it."""

_NAMELESS = ("pipe:", "socket:", "anon_inode:")
"""What a link in /proc/self/fd to something without a name begins with (proc(5))."""


@contextmanager
def handed_over_streams() -> Iterator[tuple[int, int, int]]:
    """Yield the descriptors for a program; at the end wait until all of its output is copied.

    Raises:
        InputOutput: an output can't be written, when the context ends without another error.
    """
    copies = _Copies()
    try:
        yield copies.of_input(0), copies.of_output(1), copies.of_output(2)
    finally:
        copies.end()
    if copies.failures:
        raise copies.failures[0]


class _Copies:
    """Threads that copy between files of this process and pipes."""

    def __init__(self) -> None:
        self.failures: list[InputOutput] = []
        self._ends: list[int] = []
        """The ends of pipes that the program has."""
        self._outputs: dict[int, int] = {}
        self._threads: list[threading.Thread] = []

    def of_input(self, number: int) -> int:
        if _is_handed_over(number):
            return number
        end, ours = os.pipe()
        self._ends.append(end)
        threading.Thread(target=self._feed, args=(number, ours), daemon=True).start()
        return end

    def of_output(self, number: int) -> int:
        if _is_handed_over(number):
            return number
        for other, end in self._outputs.items():
            if os.path.sameopenfile(number, other):  # 2>&1: in the order in which the program writes
                return end
        ours, end = os.pipe()
        self._ends.append(end)
        self._outputs[number] = end
        thread = threading.Thread(target=self._drain, args=(ours, number), daemon=True)
        thread.start()
        self._threads.append(thread)
        return end

    def end(self) -> None:
        for end in self._ends:
            os.close(end)
        for thread in self._threads:
            thread.join(DRAIN_SECONDS)

    def _feed(self, file: int, pipe: int) -> None:
        with suppress(OSError):  # the program reads no more, or a directory: it sees the end of its input
            while data := os.read(file, COPY_BYTES):
                _write(pipe, data)
        os.close(pipe)

    def _drain(self, pipe: int, file: int) -> None:
        try:
            while data := os.read(pipe, COPY_BYTES):
                _write(file, data)
        except OSError as error:
            name = "standard error" if file == 2 else "standard output"
            self.failures.append(InputOutput(f"{name} can't be written: {error.strerror}"))
        os.close(pipe)


def _is_handed_over(number: int) -> bool:
    try:
        return os.isatty(number) or os.readlink(f"/proc/self/fd/{number}").startswith(_NAMELESS)
    except OSError:
        return True  # closed, or no /proc: the program gets what there is


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
