"""What an answer shows of the output of a run: all of it, or its start, its end and the lines that look like failures.

The rest stays in the run. Lines are counted from 1; a line of the answer that stands out of order has its number.
"""

import time
from dataclasses import dataclass
from functools import partial

from anyio import CapacityLimiter

from coretools.errors import InvalidArguments
from coretools.process.jobs.job import Job
from coretools.redaction.redactor import Redactor
from coretools.tools.answer_budget import LINE_CHARACTERS, cut_line, cut_lines, fitting
from coretools.tools.commands.failure_lines import find_failures
from coretools.tools.commands.line_search import (
    LineFinder,
    find_lines,
    groups_of,
    pattern_finder,
)
from coretools.tools.output_text import plain, printed, streams, visible

HEAD_BYTES = 600
FAILURE_BYTES = 4_000
TAIL_BYTES = 1_800
"""Bytes shown of the start, the failures and the end of a long output of a command that failed."""

FAILURE_CONTEXT = 1
"""Lines shown above and below a line that looks like a failure."""

FAILURE_SECONDS = 20.0
"""Time limit for finding failures; an output of 64 MiB in which few lines name any takes a quarter of it."""

DIGEST_CHARACTERS = 500
"""Most characters of a line in the digest of a failure, so that no line takes the place of all others."""

CHARACTER_BYTES = 4
"""Most bytes of a character in UTF-8."""

SHOWN_BYTES = 3
"""Most bytes shown for one of the output: a control character made visible, or a byte that is not UTF-8."""

REMARK_BYTES = 100
"""Bytes of the remark on a line that is cut, and of its number."""

NEWLINE = b"\n"


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A part of an output, ready to be shown."""

    text: str
    note: str = ""
    """What is missing and how to get it."""
    is_cut: bool = False
    """Whether something was omitted because of its length."""
    stop: int = 0
    """Offset after the shown part."""


def resource_of(job: Job) -> str:
    """Return the URI of the resource with the complete output of a run."""
    return f"coretools://runs/{job.id}/output"


async def finished_output(job: Job, budget: int, limiter: CapacityLimiter, redactor: Redactor | None) -> OutputPart:
    """Return the output of a run that ended within its call: all of it with standard error marked, or a digest."""
    done = job.completed
    if done is None:
        return OutputPart("")
    if not done.stdout.dropped_bytes + done.stderr.dropped_bytes:
        text = streams(printed(done.stdout, redactor), printed(done.stderr, redactor))
        if len(text.encode("utf-8", "replace")) <= budget:
            cut = cut_lines(text)
            return OutputPart(cut, ways_to_read(job) if cut != text else "", is_cut=cut != text)
    return await digest(job, 0, budget, limiter)


async def new_output(job: Job, budget: int, limiter: CapacityLimiter) -> OutputPart:
    """Return the output that no call has reported yet, or a digest of it."""
    output = job.output
    start = max(job.reported_end, output.first)
    left = output.end - start
    data = b"" if left > budget else output.read(start, left)
    data = _whole_characters(data) if job.is_alive else data  # the rest of a character is still to come
    text = _shown(job, data.decode("utf-8", "replace"))
    if left > budget or len(text.encode()) > budget:
        return await digest(job, start, budget, limiter)
    notes = [f"{output.first} bytes before this are gone"] if 0 < start == output.first else []
    cut = cut_lines(text)
    notes += [_ways(job)] if cut != text else []
    return OutputPart(cut.rstrip("\n"), _bracketed(notes), cut != text, start + len(data))


def of_screen(job: Job, rows: list[str], stop: int) -> OutputPart:
    """Return the screen of a terminal. What has left it at the top can be read as lines."""
    is_cut = job.terminal is not None and job.output.lines > job.terminal.rows
    return OutputPart("\n".join(rows), _bracketed([_ways(job)]) if is_cut else "", is_cut, stop)


def screen_changes(job: Job, shown: list[str], rows: list[str], stop: int) -> OutputPart:
    """Return the rows of a screen that differ from those that were shown, or all of it if that is shorter.

    A screen that has scrolled is compared with the one that was shown, moved up by as many rows.
    """
    height = max(len(shown), len(rows))
    before, after = (lines + [""] * (height - len(lines)) for lines in (shown, rows))

    def same_rows(moved: int) -> int:
        return sum(row == old != "" for row, old in zip(after, before[moved:], strict=False))

    moved = max(range(height), key=same_rows, default=0)
    before = before[moved:] + [""] * moved
    changed = [f"row {number}: {row}" for number, row in enumerate(after, 1) if row != before[number - 1]]
    up = f", moved up by {moved}" if moved else ""
    same = "the other rows are" if changed or moved else "the screen is"
    note = _bracketed([f"{same} as shown before{up}; read_run shows the whole screen"])
    whole = of_screen(job, rows, stop)
    is_shorter = len("".join(changed)) + len(note) < len(whole.text) + len(whole.note)
    return OutputPart("\n".join(changed), note, stop=stop) if is_shorter else whole


async def digest(job: Job, start: int, budget: int, limiter: CapacityLimiter) -> OutputPart:
    """Return the start and the end of an output from an offset on, and of a failed run what looks like its failures.

    The output of a successful run is likely what its caller wants, so it fills the budget.
    """
    output = job.output
    end, last = output.end, output.lines
    first = output.line_number(max(start, output.first))
    has_failed = job.completed is not None and not job.completed.ok
    head_bytes, tail_bytes = (HEAD_BYTES, TAIL_BYTES) if has_failed else (budget // 4, budget // 2)
    longest = DIGEST_CHARACTERS if has_failed else LINE_CHARACTERS
    head = _lines(job, first, last, min(head_bytes, budget // 4), longest)
    tail = _last_that_fit(job, min(budget // 2, tail_bytes), last, longest, above=first + len(head))
    gap = (first + len(head), last - len(tail))
    failures, about = await _failures(job, gap, min(FAILURE_BYTES, budget // 2), limiter) if has_failed else ([], "")
    omitted = [f"[... lines {gap[0]} to {gap[1]} left out{about} ...]"] if gap[0] <= gap[1] else []
    text = [*head, *omitted, *failures, *(["[...]"] if failures else []), *tail]
    return OutputPart("\n".join(text), _bracketed([_ways(job)]), is_cut=True, stop=end)


async def _failures(job: Job, within: tuple[int, int], budget: int, limiter: CapacityLimiter) -> tuple[list[str], str]:
    """Return the lines between two lines that look like failures, with lines around them, and a remark on them."""
    output = job.output
    start, stop = output.line_start(within[0]), output.line_start(within[1] + 1)
    deadline = time.monotonic() + FAILURE_SECONDS
    finder = partial(find_failures, deadline=deadline)
    failures = await find_lines(output, finder, limiter, start=start, stop=stop)
    lines = _groups(job, failures.numbers, FAILURE_CONTEXT, budget, within, DIGEST_CHARACTERS)
    count = (
        f"{failures.total} in all"
        if time.monotonic() < deadline
        else f"{failures.total} found in {FAILURE_SECONDS:g} s"
    )
    return lines, f"; these of them look like failures ({count})" if lines else ""


async def matching_lines(job: Job, pattern: str, context: int, budget: int, limiter: CapacityLimiter) -> OutputPart:
    """Return the lines that match a pattern, each with its number, and lines around them.

    Raises:
        InvalidArguments: the pattern is invalid or takes too long.
    """
    finder: LineFinder = pattern_finder(pattern)
    matches = await find_lines(job.output, finder, limiter)
    if not matches.numbers:
        return OutputPart("", _bracketed([f"no line of {job.output.lines} matches"]))
    lines = _groups(job, matches.numbers, context, budget, (1, job.output.lines))
    if not _is_shown(matches.numbers[0], lines):  # the lines around it are too long
        lines = _groups(job, matches.numbers, 0, budget, (1, job.output.lines))
    shown = sum(_is_shown(number, lines) for number in matches.numbers)
    notes = [f"{matches.total} of {job.output.lines} lines match"]
    if shown < matches.total:
        onward = matches.numbers[shown] if shown < len(matches.numbers) else matches.numbers[-1] + 1
        notes.append(f"the first {shown} are shown; narrow the pattern, or read on at offset={onward}")
    return OutputPart("\n".join(lines), _bracketed(notes), is_cut=shown < matches.total)


def line_range(job: Job, first: int, limit: int | None, budget: int) -> OutputPart:
    """Return lines by number, as many as fit into the budget.

    Raises:
        InvalidArguments: the first line is beyond the end, or the lines are gone.
    """
    total, oldest = job.output.lines, job.output.line_number(job.output.first)
    stop = total if limit is None else min(first + limit - 1, total)
    if first > max(total, 1):
        raise InvalidArguments(f"offset {first}: the output has {total} lines")
    if total and stop < oldest:
        raise InvalidArguments(f"offset {first}, limit {limit}: the lines before {oldest} are gone")
    begin = max(first, oldest)
    lines = _lines(job, begin, stop, budget, LINE_CHARACTERS)
    reached = begin + len(lines) - 1
    gone = f"; the lines before {oldest} are gone" if first < oldest else ""
    more = f"; offset={reached + 1} reads on" if reached < total else ""
    return OutputPart("\n".join(lines), _bracketed([f"lines {begin} to {reached} of {total}{gone}{more}"]))


def last_lines(job: Job, count: int, budget: int) -> OutputPart:
    """Return the last lines, as many as fit into the budget."""
    total = job.output.lines
    wanted = max(1, total - count + 1)
    lines = _last_that_fit(job, budget, total, LINE_CHARACTERS, above=wanted)
    first = total - len(lines) + 1
    more = f"; offset={wanted} reads those before" if first > wanted else ""
    note = _bracketed([f"lines {first} to {total}{more}"]) if total else ""
    return OutputPart("\n".join(lines), note, stop=job.output.end)


def from_offset(job: Job, offset: int, most: int, *, with_line: bool = False) -> OutputPart:
    """Return the output from a byte on, as much as has `most` bytes when it is shown. Lines are not cut.

    A part ends with a line, or within one that is longer. The newline at its end is not in the text. `with_line`: the
    offset of the next part has its line, as `read_run` takes it; else it is a byte.
    """
    output = job.output
    start = max(offset, output.first)
    data = output.read(start, most)
    if start + len(data) < output.end:
        data = _whole_part(data)
    elif job.is_alive:
        data = _whole_characters(data)
    text = _shown(job, data.decode("utf-8", "replace"))
    while (size := len(text.encode())) > most:
        data = _whole_part(data[: max(1, len(data) * most // size)])
        text = _shown(job, data.decode("utf-8", "replace"))
    stop = start + len(data)
    notes = [f"bytes {start} to {stop} of {output.end}"]
    if start > offset:
        notes.append(f"{output.first} bytes before this are gone")
    if stop < output.end:
        onward = f"{output.line_number(stop)}@{stop}" if with_line else stop
        notes.append(f"{'' if data.endswith(NEWLINE) else 'this line '}goes on at offset={onward}")
    return OutputPart(text.removesuffix("\n"), _bracketed(notes), stop=stop)


def _whole_part(data: bytes) -> bytes:
    """Return the complete lines at the start, or the complete characters of a part of one line."""
    return data[: data.rfind(NEWLINE) + 1] or _whole_characters(data) or data


def _whole_characters(data: bytes) -> bytes:
    """Return the data without the start of a character at its end, of which more follows."""
    for length in range(1, min(CHARACTER_BYTES - 1, len(data)) + 1):
        lead = data[-length]
        if lead >= 0xC0:
            size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return data[:-length] if size > length else data
        if lead < 0x80:
            return data
    return data


def _lines(job: Job, first: int, last: int, budget: int, longest: int) -> list[str]:
    """Return lines by number, cut after `longest` characters, as many as fit into the budget."""
    longest = max(1, min(longest, (budget - REMARK_BYTES) // CHARACTER_BYTES))
    output = job.output
    kept: list[str] = []
    number, start, stop = first, output.line_start(first), output.line_start(last + 1)
    while number <= last:
        data = output.read(start, min(stop - start, max(budget, CHARACTER_BYTES * longest) + 1))
        complete = data if start + len(data) >= stop else data[: data.rfind(NEWLINE) + 1]
        if complete:
            lines, following = complete.removesuffix(NEWLINE).split(NEWLINE), 0
        else:  # the start of a long line
            end = output.line_start(number + 1)
            following = end - start - len(data) - (output.read(end - 1, 1) == NEWLINE)
            lines = [_whole_characters(data)]
        for line in lines:
            shown = _shown(job, line.removesuffix(b"\r").decode("utf-8", "replace"))
            cut = cut_line(shown, f"offset={number}@{start} reads it", following=following, longest=longest)
            budget -= len(cut.encode()) + 1
            if budget < 0:
                return kept
            kept.append(cut)
            start += len(line) + 1
            number += 1
        start = start if complete else end
    return kept


def _last_that_fit(job: Job, budget: int, last: int, longest: int, *, above: int) -> list[str]:
    """Return the last lines up to line `last`, none before line `above`."""
    output = job.output
    longest = max(1, min(longest, (budget - REMARK_BYTES) // CHARACTER_BYTES))
    first = max(above, output.line_number(max(output.first, output.line_start(last + 1) - budget)))
    # The first of them may be long.
    room = SHOWN_BYTES * budget + CHARACTER_BYTES * longest + REMARK_BYTES
    return fitting(reversed(_lines(job, first, last, room, longest)), budget)[::-1]


def _groups(
    job: Job,
    numbers: list[int],
    context: int,
    budget: int,
    within: tuple[int, int],
    longest: int = LINE_CHARACTERS,
) -> list[str]:
    """Return lines with their numbers, `context` lines around each; the groups that fit."""
    lines: list[str] = []
    first, last = within
    for start, end in groups_of(numbers, context=context, last=last):
        begin = max(start, first)
        group = _lines(job, begin, end, budget, longest)
        lines += ["[...]"] if lines and context else []
        lines += [f"{number}: {line}" for number, line in enumerate(group, begin)]
        if sum(map(len, lines)) > budget:
            break
    return fitting(lines, budget)


def _is_shown(number: int, lines: list[str]) -> bool:
    return any(line.startswith(f"{number}: ") for line in lines)


def _shown(job: Job, text: str) -> str:
    """Make escape sequences of a terminal visible, since its output is useless without them; else remove them."""
    return visible(text) if job.terminal else plain(text)


def ways_to_read(job: Job) -> str:
    """Return the note on how to read the rest of an output."""
    return _bracketed([_ways(job)])


def _ways(job: Job) -> str:
    gone = f"; {job.output.first} bytes at the start are gone" if job.output.first else ""
    return (
        f"{job.output.lines} lines, {job.output.end} bytes in all{gone}: read_run run={job.id} with offset, tail or"
        f" pattern, or {resource_of(job)}"
    )


def _bracketed(notes: list[str]) -> str:
    return f"[{'; '.join(notes)}]" if notes else ""
