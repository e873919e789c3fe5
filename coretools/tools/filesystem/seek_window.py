"""Select the lines that an answer shows of a large UTF-8 file by seeking: nothing else is read or decoded.

`line_window` does the same for a text in memory. A position in the file is a `Cursor`: a byte offset with the number of
the line there. An answer contains the cursor at which to read on. The number of lines in the file is reported only if
its end was reached by counting.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from coretools.cancellation import check_cancelled
from coretools.errors import Conflict, InvalidArguments, TooLarge
from coretools.tools.filesystem.line_window import LineRange, Window, lines_text

BLOCK_BYTES = 64 * 1024
"""Block size while searching for a few lines."""

COUNT_BYTES = 1024 * 1024
"""Block size while counting lines."""

MOST_COUNTED_BYTES = 1024 * 1024 * 1024
"""Most bytes counted for one `offset`, which takes about half a second. A cursor has no such limit."""

_CURSOR = re.compile(r"([0-9]{1,18})@([0-9]{1,18})", re.ASCII)


class SeekableFile(Protocol):
    """A file whose bytes can be read at any position."""

    @property
    def size(self) -> int:
        """Size in bytes when it was opened."""
        ...

    @property
    def display_path(self) -> str:
        """Its path, for messages."""
        ...

    def read_at(self, position: int, count: int) -> bytes:
        """Read `count` bytes at a position; fewer only at the end of the file."""
        ...


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in a file: the number of the line there, from 1, and the byte offset."""

    line: int
    position: int

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Parse a cursor of an answer.

        Raises:
            InvalidArguments: not a cursor.
        """
        match = _CURSOR.fullmatch(text)
        if match is None or int(match[1]) < 1:
            raise InvalidArguments(f"offset {text[:80]!r}: must be a line, or LINE@BYTE as an answer gave it")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.line}@{self.position}"


@dataclass(frozen=True, slots=True)
class CountedWindow:
    """A window, and the number of lines in the file if known."""

    window: Window
    lines: int | None = None


def seek_window(source: SeekableFile, lines: LineRange, *, first_byte: int, budget_bytes: int) -> CountedWindow:
    """Return the requested lines, at most `budget_bytes`. `first_byte` is the start of the text, after a BOM.

    Raises:
        UnicodeDecodeError: the selected part is not UTF-8.
        InvalidArguments: `offset` or `cursor` is past the end, or the cursor is inside a character.
        TooLarge: the line of `offset` is too far from the start. Conflict: the file shrinks while it is read.
    """
    file = _FileWindow(source, first_byte)
    if lines.tail is not None:
        return file.last(lines.tail, budget_bytes)
    if lines.cursor is not None:
        return file.lines_from(file.checked(Cursor.parse(lines.cursor)), lines.limit, budget_bytes)
    if lines.offset is None and lines.limit is None and lines.head is None:
        return file.ends(budget_bytes)
    limit = lines.head if lines.head is not None else lines.limit
    return file.lines_from(file.line(lines.offset or 1), limit, budget_bytes)


@dataclass(frozen=True, slots=True)
class _FileWindow:
    """One reading of a file. All offsets are bytes of the file."""

    source: SeekableFile
    first: int

    def lines_from(self, start: Cursor, limit: int | None, budget: int) -> CountedWindow:
        data, is_end = self._forward(start.position, limit, budget)
        is_part = limit == 1 or self._is_within_line(start.position)
        if data and not data.endswith(b"\n") and not is_end:
            return self._part(start, data, is_part=is_part)
        last = start.line + data.count(b"\n") - data.endswith(b"\n")
        total = last if is_end else None
        if start.position == self.first and is_end:
            return CountedWindow(Window(data.decode(), is_part=is_part), total if data else 0)
        where = lines_text(start.line, last)
        stop = start.position + len(data)
        more = f" of {last}" if is_end else f", to byte {stop} of {self.source.size}; offset={last + 1}@{stop} reads on"
        return CountedWindow(Window(data.decode(), note=where + more, first=start.line, is_part=is_part), total)

    def _is_within_line(self, position: int) -> bool:
        return position > self.first and self._byte(position - 1) != b"\n"

    def _part(self, start: Cursor, data: bytes, *, is_part: bool) -> CountedWindow:
        """Return a part of a line that exceeds the budget. The rest of it can be read or skipped."""
        stop = start.position + len(data)
        remark = f"part of line {start.line}, to byte {stop} of {self.source.size}; offset={start.line}@{stop} reads on"
        block = self.source.read_at(stop, COUNT_BYTES)
        end = block.find(b"\n") + 1
        if end and stop + end < self.source.size:
            remark += f", offset={start.line + 1}@{stop + end} after {end} bytes that are left of it"
        elif len(block) == COUNT_BYTES:
            remark += f", offset={start.line + 1} after it"
        return CountedWindow(Window(data.decode(), note=remark, first=start.line, is_part=is_part))

    def last(self, count: int, budget: int) -> CountedWindow:
        data, start = self._backward(count, budget)
        is_cut = False
        if self._is_within_line(start):
            # Over the budget: whole lines, unless there is only a part of one.
            whole = data.find(b"\n", 0, len(data) - 1) + 1
            is_cut = not whole
            data = data[whole or _first_character(data) :]
        if start == self.first and not is_cut and len(data) == self.source.size - self.first:
            return CountedWindow(Window(data.decode()), _count(data))
        lines = _count(data)
        where = "end of the last line" if is_cut else "last line" if lines == 1 else f"last {lines} lines"
        return CountedWindow(Window(data.decode(), note=f"{where}, of {self.source.size} bytes", is_part=is_cut))

    def ends(self, budget: int) -> CountedWindow:
        """Return the start and the end of the file, or all of it."""
        if self.source.size - self.first <= budget:
            return self.lines_from(Cursor(1, self.first), None, budget)
        head, _ = self._forward(self.first, None, budget // 2)
        tail, start = self._backward(None, budget - budget // 2)
        start += len(tail)
        tail = tail[tail.find(b"\n", 0, len(tail) - 1) + 1 or _first_character(tail) :]
        start -= len(tail)
        stop = self.first + len(head)
        following = 1 + head.count(b"\n")
        gap = f"... {start - stop} bytes left out, from line {following}; offset={following}@{stop} reads on ..."
        return CountedWindow(Window(head.decode(), gap, tail.decode()))

    def line(self, number: int) -> Cursor:
        """Return the start of a line, by counting newlines from the start of the file."""
        position, ahead = self.first, number - 1
        ends_line = True
        while ahead:
            self._require_counted(position - self.first)
            block = self.source.read_at(position, COUNT_BYTES)
            newlines = block.count(b"\n")
            if newlines >= ahead:
                position += after_lines(block, ahead)
                if position >= self.source.size:
                    raise self._behind(number, number - 1)
                return Cursor(number, position)
            ends_line = block.endswith(b"\n") if block else ends_line
            position += len(block)
            ahead -= newlines
            if len(block) < COUNT_BYTES:
                raise self._behind(number, number - 1 - ahead + (not ends_line))
            check_cancelled()
        return Cursor(number, position)

    def checked(self, cursor: Cursor) -> Cursor:
        """Return a cursor of an earlier answer if it is still valid."""
        position = cursor.position
        if not self.first <= position < self.source.size:
            raise InvalidArguments(
                f"{self.source.display_path}: offset {cursor} lies behind the end or before the text; give a"
                " line instead"
            )
        # A cursor within a line, over which an answer was cut, stands at least between two characters.
        if _is_inside(self._byte(position)):
            raise InvalidArguments(
                f"{self.source.display_path}: the file was changed since offset {cursor} was given; give a line instead"
            )
        return cursor

    def _behind(self, number: int, total: int) -> InvalidArguments:
        return InvalidArguments(
            f"{self.source.display_path}: offset {number} lies behind the end; it has {total} lines", lines=total
        )

    def _require_counted(self, count: int) -> None:
        if count >= MOST_COUNTED_BYTES:
            raise TooLarge(
                f"{self.source.display_path}: looked through {count} bytes for that line; "
                "the most is 1 GiB: read from the end with tail, or on from an offset LINE@BYTE",
                size=self.source.size,
                limit=MOST_COUNTED_BYTES,
            )

    def _forward(self, start: int, limit: int | None, budget: int) -> tuple[bytes, bool]:
        """Whole lines from there, or the part of one that the budget holds; whether the file ends with them."""
        data = b""
        ahead = limit
        is_end = False
        while len(data) <= budget and not is_end:
            at = start + len(data)
            # Not beyond the size that it had: what is added meanwhile may not be whole.
            block = self.source.read_at(at, max(0, min(BLOCK_BYTES, budget + 1 - len(data), self.source.size - at)))
            newlines = block.count(b"\n") if ahead is not None else 0
            if ahead is not None and newlines >= ahead:
                data += block[: after_lines(block, ahead)]
                is_end = start + len(data) >= self.source.size
                break
            ahead = None if ahead is None else ahead - newlines
            data += block
            is_end = not block or at + len(block) >= self.source.size
        if len(data) <= budget:
            return data, is_end
        cut = data[:budget]
        whole = cut.rfind(b"\n") + 1
        return cut[: whole or last_character(data, budget)], False

    def _backward(self, count: int | None, budget: int) -> tuple[bytes, int]:
        """Return the last lines, at most `budget` bytes, and their offset, which is within a line over the budget."""
        end = position = self.source.size
        blocks: list[bytes] = []
        # The newline at the very end closes the last line, it starts no further one.
        ahead = None if count is None else count + (end > self.first and self._byte(end - 1) == b"\n")
        while position > self.first and end - position < budget:
            size = min(BLOCK_BYTES, position - self.first, budget - (end - position))
            block = self.source.read_at(position - size, size)
            if len(block) < size:
                raise Conflict(
                    f"{self.source.display_path}: shrinks while it is read; try again", path=self.source.display_path
                )
            if ahead is not None:
                newlines = block.count(b"\n")
                if newlines >= ahead:
                    keep = after_lines(block, newlines - ahead + 1)
                    return b"".join([block[keep:], *reversed(blocks)]), position - size + keep
                ahead -= newlines
            blocks.append(block)
            position -= size
            check_cancelled()
        return b"".join(reversed(blocks)), position

    def _byte(self, position: int) -> bytes:
        return self.source.read_at(position, 1)


def after_lines(data: bytes, count: int) -> int:
    """Return the offset after `count` newlines; the data must contain that many."""
    low, high = 0, len(data)
    # Bisection: a block of nothing but newlines takes no longer than one long line.
    while count and high - low > 256:
        middle = (low + high) // 2
        newlines = data.count(b"\n", low, middle)
        if newlines >= count:
            high = middle
        else:
            low, count = middle, count - newlines
    for _ in range(count):
        low = data.index(b"\n", low) + 1
    return low


def last_character(data: bytes, end: int) -> int:
    """Return the largest offset up to `end` that is not within a character."""
    for back in range(min(4, end)):
        if not _is_inside(data[end - back : end - back + 1]):
            return end - back
    return end


def _first_character(data: bytes) -> int:
    return next((at for at in range(min(4, len(data))) if not _is_inside(data[at : at + 1])), 0)


def _is_inside(byte: bytes) -> bool:
    """Whether this is a continuation byte of UTF-8."""
    return byte != b"" and byte[0] & 0xC0 == 0x80


def _count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
