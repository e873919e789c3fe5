"""What a run printed, kept within bounds: the end in memory, what came before it in a file, the oldest dropped.

Every byte has an offset that never changes, counted from the first byte that was printed. Pieces come one after the
other, on the event loop; nothing here waits for anybody.
"""

import os
import tempfile

from coretools.errors import InputOutput

MEMORY_BYTES = 128 * 1024
"""Kept in memory of each output, at most twice that for a moment."""


class DiskQuota:
    """What all outputs together may have on disk. When it is used up, the disk is full to them."""

    def __init__(self, total_bytes: int) -> None:
        self._left = total_bytes

    def take(self, count: int) -> bool:
        """Take so many bytes, if they are there."""
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        """Give bytes back that were taken."""
        self._left += count


class OutputStore:
    """The output of one run. What is there reaches from `first` to `end`, without a gap. `close` must be called."""

    def __init__(
        self, disk: DiskQuota, *, file_bytes: int, memory_bytes: int = MEMORY_BYTES, folder: str | None = None
    ) -> None:
        """The file lies in `folder`, by default where the system keeps temporary files."""
        self._disk = disk
        self._folder = folder
        self._file_bytes = file_bytes
        self._memory_bytes = memory_bytes
        self._memory = bytearray()
        self._fd = -1
        self._taken = 0
        """Bytes of the disk that are ours: how long the file is."""
        self.first = 0
        """Offset of the oldest byte that is still there; as many bytes are dropped."""
        self.end = 0
        """Offset behind the last byte: how much was printed."""

    @property
    def kept_bytes(self) -> int:
        """What is there, in memory and in the file."""
        return self.end - self.first

    def append(self, data: bytes) -> None:
        """Take the next piece. A full disk loses the older part of the output, never the newest."""
        self._memory += data
        self.end += len(data)
        # Not at every piece: many small ones cost one copy in all.
        if len(self._memory) > 2 * self._memory_bytes:
            self._spill(len(self._memory) - self._memory_bytes)

    def read(self, offset: int, count: int) -> bytes:
        """At most `count` bytes from `offset` on; from the oldest on where that is dropped.

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

    def close(self) -> None:
        """Drop everything; again is harmless."""
        self.first = self.end
        self._memory.clear()
        self._disk.give_back(self._taken)
        self._taken = 0
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _spill(self, count: int) -> None:
        """Move the oldest part of the memory to the file, which is a ring: the newest overwrites the oldest."""
        start = self.end - len(self._memory)
        try:
            self._to_file(bytes(self._memory[:count]), start)
            self.first = max(self.first, start + count - self._file_bytes)
        except OSError:  # full, or no temporary directory: the file's part is given up, so that there is no gap
            self.first = start + count
        del self._memory[:count]

    def _to_file(self, data: bytes, offset: int) -> None:
        if self._fd < 0:
            # Without a name from its first moment (O_TMPFILE) or the second: nothing of it is left, however we end.
            with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
                self._fd = os.dup(file.fileno())
        if len(data) > self._file_bytes:
            offset += len(data) - self._file_bytes
            data = data[-self._file_bytes :]
        length = min(self._file_bytes, max(self._taken, offset % self._file_bytes + len(data)))
        if not self._disk.take(length - self._taken):
            raise OSError(f"{length - self._taken} bytes are more than all runs together may have left")
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
                raise InputOutput(f"what the run printed can't be read again: {error.strerror}") from error
            if not part:
                raise InputOutput("what the run printed can't be read again: the file became shorter")
            parts.append(part)
            start += len(part)
        return b"".join(parts)
