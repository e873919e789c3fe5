"""Find lines in the stored output of a run: those that match a pattern, and those that look like failures.

The output is searched in blocks in a worker thread, so that neither its size nor a pattern delays another call.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio.to_thread
from anyio import CapacityLimiter

from coretools.errors import InvalidArguments
from coretools.process.jobs.output_store import OutputStore
from coretools.tools.output_text import plain
from coretools.tools.search.pattern import parse_pattern

BLOCK_BYTES = 1024 * 1024
"""Bytes searched in one step."""

LINE_BYTES = 64 * 1024
"""Bytes of a line that are searched."""

MAX_FOUND = 1_000
"""Most lines whose numbers are kept; further ones are counted."""

MATCH_SECONDS = 10.0
"""Time limit for one search; an ordinary pattern takes a tenth of it for the largest output that is kept."""

LEAST_SECONDS = 0.001

LineFinder = Callable[[str], Iterator[int]]
"""Yield a position in each matching line of a text, in order."""


@dataclass(slots=True)
class FoundLines:
    """The numbers of the lines found, from 1, and how many there are in all."""

    numbers: list[int] = field(default_factory=list)
    total: int = 0


def pattern_finder(pattern: str, *, seconds: float = MATCH_SECONDS) -> LineFinder:
    """Return a finder for a regular expression of `search_text`, with a limit of time for all its calls together.

    Raises:
        InvalidArguments: the pattern is invalid; the finder: it takes too long.
    """
    compiled = parse_pattern(pattern, literal=False, ignore_case=False).compiled
    left = seconds

    def find(text: str) -> Iterator[int]:
        nonlocal left
        start = 0
        while start >= 0:
            began = time.monotonic()
            try:
                match = compiled.search(text, start, timeout=max(left, LEAST_SECONDS))
            except TimeoutError:
                raise InvalidArguments("pattern: takes too long on this output; make it simpler") from None
            left -= time.monotonic() - began
            if match is None:
                return
            yield match.start()
            start = text.find("\n", match.start()) + 1 or -1

    return find


async def find_lines(
    output: OutputStore,
    finder: LineFinder,
    limiter: CapacityLimiter,
    *,
    start: int = 0,
    stop: int | None = None,
) -> FoundLines:
    """Search a stored output between two offsets, as far as it was written at the call.

    Raises:
        InvalidArguments: the pattern takes too long. InputOutput: the stored output can't be read.
    """
    lines = FoundLines()
    at, stop = max(start, output.first), output.end if stop is None else stop
    number = output.line_number(at)
    carry = b""
    while at < stop:
        if at < output.first:  # dropped during the search of the block before
            at, number, carry = output.first, output.line_number(output.first), b""
        block = output.read(at, min(BLOCK_BYTES, stop - at))
        if not block:
            break
        at += len(block)
        data = carry + block
        cut = len(data) if at >= stop else data.rfind(b"\n") + 1
        carry = data[cut:][:LINE_BYTES]
        if cut:
            search = partial(_search, data[:cut].decode("utf-8", "replace"), finder, number, lines)
            await anyio.to_thread.run_sync(search, limiter=limiter)
            number += data.count(b"\n", 0, cut)
    return lines


def _search(text: str, finder: LineFinder, number: int, lines: FoundLines) -> None:
    """Add the lines of one block; `number` is that of its first line."""
    text = plain(text).removesuffix("\n")  # no line follows it
    counted = 0
    for match in finder(text):
        number += text.count("\n", counted, match)
        counted = match
        lines.total += 1
        if len(lines.numbers) < MAX_FOUND:
            lines.numbers.append(number)


def groups_of(numbers: Sequence[int], *, context: int, last: int) -> list[tuple[int, int]]:
    """Return ranges of lines with `context` lines around each; ranges that touch are one."""
    groups: list[tuple[int, int]] = []
    for number in numbers:
        begin, end = max(1, number - context), min(last, number + context)
        if groups and begin <= groups[-1][1] + 1:
            groups[-1] = (groups[-1][0], max(end, groups[-1][1]))
        else:
            groups.append((begin, end))
    return groups
