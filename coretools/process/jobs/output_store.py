"""Stores the output of a job within limits: the end in memory, the part before it in a file, the oldest dropped.

Every byte has an offset that never changes, counted from the first byte of the output, and every line a number, counted
from 1. Used on the event loop; nothing here waits.
"""

import os
import tempfile
from bisect import bisect_left
from typing import NamedTuple

from coretools.errors import InputOutput

MEMORY_BYTES = 128 * 1024
"""Part of each output in memory; up to twice as much before it is spilled."""


CHECKPOINT_BYTES = 64 * 1024
"""Distance of the offsets at which the number of the line is remembered."""


class _Checkpoint(NamedTuple):
    offset: int
    newlines: int
    """Newlines before the offset."""


class DiskQuota:
    """Disk space of all outputs together. When it is used up, stores behave as on a full disk."""

    def __init__(self, total_bytes: int) -> None:
        self._left = total_bytes

    def take(self, count: int) -> bool:
        """Reserve bytes; False if there are not enough."""
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        """Release reserved bytes."""
        self._left += count


class OutputStore:
    """The output of one job, from offset `first` to `end` without a gap. `close` must be called."""

    def __init__(
        self, disk: DiskQuota, *, file_bytes: int, memory_bytes: int = MEMORY_BYTES, folder: str | None = None
    ) -> None:
        """The file is created in `folder`, by default in the temporary directory of the system."""
        self._disk_quota = disk
        self._folder = folder
        self._file_bytes = file_bytes
        self._memory_bytes = memory_bytes
        self._memory = bytearray()
        self._fd = -1
        self._taken = 0
        """Bytes reserved on disk: the length of the file."""
        self.first = 0
        """Offset of the oldest byte that is kept, and so the number of dropped bytes."""
        self.end = 0
        """Offset after the last byte, and so the length of the output."""
        self._newlines = 0
        self._checkpoints = [_Checkpoint(0, 0)]

    @property
    def kept_bytes(self) -> int:
        """Bytes kept, in memory and in the file."""
        return self.end - self.first

    def append(self, data: bytes) -> None:
        """Append a chunk. On a full disk the older part of the output is lost, never the newest."""
        self._memory += data
        self.end += len(data)
        self._newlines += data.count(b"\n")
        if self.end - self._checkpoints[-1].offset >= CHECKPOINT_BYTES:
            self._checkpoints.append(_Checkpoint(self.end, self._newlines))
        # Not for every chunk: many small ones cost one copy in all.
        if len(self._memory) > 2 * self._memory_bytes:
            self._spill(len(self._memory) - self._memory_bytes)

    def read(self, offset: int, count: int) -> bytes:
        """At most `count` bytes from `offset` on, or from the oldest kept byte if that is dropped.

        Raises:
            InputOutput: the file can't be read.
        """
        start = max(offset, self.first)
        stop = min(start + count, self.end)
        if start >= stop:
            return b""
        border = self.end - len(self._memory)
        parts = []
        if start < border:
            parts.append(self._from_file(start, min(stop, border)))
        if stop > border:
            parts.append(bytes(self._memory[max(0, start - border) : stop - border]))
        return b"".join(parts)

    @property
    def lines(self) -> int:
        """Lines written so far, an incomplete last one included."""
        is_complete = self.end == 0 or self.read(self.end - 1, 1) == b"\n"
        return self._newlines + (not is_complete)

    def line_start(self, number: int) -> int:
        """The offset at which a line begins; `end` beyond the last line, and no less than `first`."""
        # The last checkpoint before the newline that ends the line above.
        at = max(0, bisect_left(self._checkpoints, number - 1, key=lambda one: one.newlines) - 1)
        offset, newlines = self._checkpoints[at]
        missing = number - 1 - newlines
        while missing > 0 and offset < self.end:
            block = self.read(offset, CHECKPOINT_BYTES)
            offset = max(offset, self.first)
            count = block.count(b"\n")
            if count >= missing:
                return offset + _after_newlines(block, missing)
            missing -= count
            offset += len(block)
        return max(offset, self.first)

    def line_number(self, offset: int) -> int:
        """The number of the line that contains an offset, and of dropped output that of the oldest kept byte."""
        at = max(0, bisect_left(self._checkpoints, offset + 1, key=lambda one: one.offset) - 1)
        start, newlines = self._checkpoints[at]
        while start < offset and (block := self.read(start, min(CHECKPOINT_BYTES, offset - start))):
            newlines += block.count(b"\n")
            start = max(start, self.first) + len(block)
        return newlines + 1

    def close(self) -> None:
        """Drop everything. Idempotent."""
        self.first = self.end
        self._memory.clear()
        self._disk_quota.give_back(self._taken)
        self._taken = 0
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _spill(self, count: int) -> None:
        """Move the oldest part of the memory to the file, a ring buffer: the newest overwrites the oldest."""
        start = self.end - len(self._memory)
        first = max(self.first, start + count - self._file_bytes)
        newlines = self._newlines_before(first)
        try:
            self._to_file(bytes(self._memory[:count]), start)
        except OSError:  # full, or no temporary directory: drop the part in the file, so that there is no gap
            first, newlines = start + count, self._newlines - self._memory.count(b"\n", count)
        del self._memory[:count]
        if first > self.first:
            dropped = bisect_left(self._checkpoints, first + 1, key=lambda one: one.offset)
            self._checkpoints[:dropped] = [_Checkpoint(first, newlines)]
            self.first = first

    def _newlines_before(self, offset: int) -> int:
        """Newlines before an offset that is about to be the oldest; the lines that are kept keep their numbers."""
        try:
            return self._checkpoints[0].newlines + self.read(self.first, offset - self.first).count(b"\n")
        except InputOutput:
            return self._checkpoints[0].newlines

    def _to_file(self, data: bytes, offset: int) -> None:
        if self._fd < 0:
            # Unnamed (O_TMPFILE, or unlinked at once), so that nothing is left of it, however the server ends.
            with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
                self._fd = os.dup(file.fileno())
        if len(data) > self._file_bytes:
            offset += len(data) - self._file_bytes
            data = data[-self._file_bytes :]
        length = min(self._file_bytes, max(self._taken, offset % self._file_bytes + len(data)))
        if not self._disk_quota.take(length - self._taken):
            raise OSError(f"{length - self._taken} bytes exceed the disk space of all runs together")
        self._taken = length
        while data:
            place = offset % self._file_bytes
            written = os.pwrite(self._fd, data[: self._file_bytes - place], place)
            data = data[written:]
            offset += written

    def _from_file(self, start: int, stop: int) -> bytes:
        parts = []
        while start < stop:
            place = start % self._file_bytes
            try:
                part = os.pread(self._fd, min(stop - start, self._file_bytes - place), place)
            except OSError as error:
                raise InputOutput(f"the stored output can't be read: {error.strerror}") from error
            if not part:
                raise InputOutput("the stored output can't be read: the file was truncated")
            parts.append(part)
            start += len(part)
        return b"".join(parts)


def _after_newlines(data: bytes, count: int) -> int:
    """Return the offset after `count` newlines; the data must contain that many."""
    end = 0
    for _ in range(count):
        end = data.index(b"\n", end) + 1
    return end
