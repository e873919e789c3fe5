"""Find lines in the stored output of a run: those that match a pattern, and those that look like failures.

The output is searched in blocks in a worker thread, so that neither its size nor a pattern delays another call.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio.to_thread
from anyio import CapacityLimiter

from coretools.errors import InvalidArguments
from coretools.process.jobs.output_store import OutputStore
from coretools.tools.execution_result import plain
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

LineFinder = Callable[[str, int], int]
"""Return the position of the first match in a text from a position on, or -1."""


@dataclass(slots=True)
class FoundLines:
    """The numbers of the lines found, from 1, and how many there are in all."""

    numbers: list[int] = field(default_factory=list)
    total: int = 0


def pattern_finder(pattern: str) -> LineFinder:
    """Return a finder for a regular expression of `search_text`.

    Raises:
        InvalidArguments: the pattern is invalid; the finder: it takes too long.
    """
    compiled = parse_pattern(pattern, literal=False, ignore_case=False).compiled
    left = MATCH_SECONDS

    def find(text: str, start: int) -> int:
        nonlocal left
        began = time.monotonic()
        try:
            found = compiled.search(text, start, timeout=max(left, LEAST_SECONDS))
        except TimeoutError:
            raise InvalidArguments("pattern: takes too long on this output; make it simpler") from None
        left -= time.monotonic() - began
        return -1 if found is None else found.start()

    return find


_SIGNS = re.compile(
    r"\berror\b|\bfail(?:ed|ure|ures|ing)?\b|\bfatal\b|\bpanic(?:ked)?\b|exception\b|\btraceback\b|\bassert"
    r"|undefined (?:reference|symbol)|\bunresolved\b|cannot find|not found\b|no such file|permission denied|\bdenied\b"
    r"|segmentation fault|core dumped|out of memory|\bkilled\b|\bnot ok\b|\berr!|[\u2717\u2718\u2715\u274c]|^E  ",
    re.IGNORECASE | re.MULTILINE,
)
"""What the lines of a failure contain, in the output of compilers, test runners, package managers and shells."""

_HARMLESS = re.compile(
    r"\b(?:0|no) (?:errors?|fail(?:ed|ures?)|exceptions?)\b|\b(?:errors?|fail(?:ed|ures?))\s*[:=]\s*0\b"
    r"|-W(?:no-)?error|\b(?:errors?|exceptions?|failures?)[-_./]\w|[-_./](?:errors?|exceptions?|failures?)\b(?!:)"
    r"|\bfail[-_]?fast\b|\bon[-_]?error\b",
    re.IGNORECASE,
)
"""What names failures without being one: counts of none, names of files and options."""


def find_failure(text: str, start: int) -> int:
    """Return the position of the first line from `start` on that looks like a failure, or -1."""
    while found := _SIGNS.search(text, start):
        begin = text.rfind("\n", 0, found.start()) + 1
        end = text.find("\n", found.end())
        line = text[begin : end if end >= 0 else len(text)]
        if _SIGNS.search(_HARMLESS.sub(" ", line)):
            return found.start()
        if end < 0:
            return -1
        start = end + 1
    return -1


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
    found = FoundLines()
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
            search = partial(_search, data[:cut].decode("utf-8", "replace"), finder, number, found)
            await anyio.to_thread.run_sync(search, limiter=limiter)
            number += data.count(b"\n", 0, cut)
    return found


def _search(text: str, finder: LineFinder, number: int, found: FoundLines) -> None:
    """Add the lines of one block; `number` is that of its first line."""
    text = plain(text)
    position = counted = 0
    while (match := finder(text, position)) >= 0:
        number += text.count("\n", counted, match)
        counted = match
        found.total += 1
        if len(found.numbers) < MAX_FOUND:
            found.numbers.append(number)
        end = text.find("\n", match)
        if end < 0:
            return
        position = end + 1


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
