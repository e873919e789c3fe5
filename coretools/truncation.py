"""Bounded text: keep the head and the tail of an output and count what is missing.

Pure: bytes in, `Excerpt` out. The budget bounds the memory, however much is fed. Lists and short texts are cut at the
end, with the number of what is missing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

HEAD_SHARE = 0.25
"""Share of the budget for the start; the rest is for the end, where errors usually are."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is kept of an output: all of it, or its start and its end. `text()` is what is kept, as text."""

    head: bytes
    """All of the output if nothing is missing, otherwise its start: a quarter of what is kept."""
    tail: bytes
    """The end of the output; empty if nothing is missing."""
    dropped_bytes: int
    """Bytes that are missing between the two."""

    @property
    def total_bytes(self) -> int:
        """Bytes fed, kept or not."""
        return len(self.head) + self.dropped_bytes + len(self.tail)

    def text(self) -> str:
        """What is kept, as text: UTF-8, other bytes as U+FFFD, with a line that states how much is missing."""
        if not self.dropped_bytes:
            return (self.head + self.tail).decode("utf-8", "replace")
        # The cut may split a character: 'ignore' drops its parts on both sides of the gap.
        head = self.head.decode("utf-8", "ignore")
        tail = self.tail.decode("utf-8", "ignore")
        return f"{head}\n[... {self.dropped_bytes} bytes left out ...]\n{tail}"

    def __str__(self) -> str:
        """As `text()`."""
        return self.text()


class Excerpter:
    """Takes an output piece by piece and keeps at most `budget_bytes` of it."""

    def __init__(self, budget_bytes: int) -> None:
        self._head_budget = int(budget_bytes * HEAD_SHARE)
        self._tail_budget = budget_bytes - self._head_budget
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    @property
    def total_bytes(self) -> int:
        """Bytes fed so far."""
        return self._total

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._total += len(data)
        room = self._head_budget - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Trim only beyond twice the budget, so that many small pieces cost one copy in all.
        if len(self._tail) > 2 * self._tail_budget:
            del self._tail[: len(self._tail) - self._tail_budget]

    def excerpt(self) -> Excerpt:
        """What is kept now."""
        tail = bytes(self._tail[-self._tail_budget :]) if self._tail_budget else b""
        if self._total == len(self._head) + len(tail):
            return Excerpt(bytes(self._head) + tail, b"", 0)
        return Excerpt(bytes(self._head), tail, self._total - len(self._head) - len(tail))


def and_more(shown: Iterable[str], total: int, *, separator: str = ", ") -> str:
    """Join the items that are shown, and count the others of `total`: "a, b and 3 more"."""
    items = list(shown)
    text, rest = separator.join(items), total - len(items)
    return f"{text}{' ' if separator == ', ' else separator}and {rest} more" if rest > 0 else text


def cut_text(text: str, most: int, *, gap: str = " ") -> str:
    """Return the first characters of a text, and count the others."""
    return text if len(text) <= most else f"{text[:most]}{gap}[... {len(text) - most} more characters ...]"
