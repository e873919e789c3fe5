"""What an answer shows of the output of a run: all of it, or its start, its end and the lines that look like failures.

The rest stays in the run. Lines are counted from 1; a line of the answer that stands out of order has its number.
"""

from dataclasses import dataclass

from anyio import CapacityLimiter

from coretools.errors import InvalidArguments
from coretools.process.jobs.job_table import Job
from coretools.redaction.redactor import Redactor
from coretools.tools.answer_budget import LINE_CHARACTERS, cut_line, cut_lines, fitting
from coretools.tools.commands.line_search import (
    LineFinder,
    find_failure,
    find_lines,
    groups_of,
    pattern_finder,
)
from coretools.tools.execution_result import plain, printed, streams, visible

HEAD_BYTES = 600
FAILURE_BYTES = 4_000
TAIL_BYTES = 1_800
"""Bytes shown of the start, the failures and the end of a long output of a command that failed."""

FAILURE_CONTEXT = 1
"""Lines shown above and below a line that looks like a failure."""


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


def resource_of(run: Job) -> str:
    """Return the URI of the resource with the complete output of a run."""
    return f"coretools://runs/{run.id}/output"


async def finished_output(run: Job, budget: int, limiter: CapacityLimiter, redactor: Redactor | None) -> OutputPart:
    """Return the output of a run that ended within its call: all of it with standard error marked, or a digest."""
    done = run.completed
    if done is None:
        return OutputPart("")
    if not done.stdout.dropped_bytes + done.stderr.dropped_bytes:
        text = streams(printed(done.stdout, redactor), printed(done.stderr, redactor))
        if len(text.encode("utf-8", "replace")) <= budget:
            cut = cut_lines(text)
            return OutputPart(cut, _bracketed([_ways(run)]) if cut != text else "", is_cut=cut != text)
    return await digest(run, 0, budget, limiter)


async def new_output(run: Job, budget: int, limiter: CapacityLimiter) -> OutputPart:
    """Return the output that no call has reported yet, or a digest of it."""
    output = run.output
    start = max(run.reported_end, output.first)
    left = output.end - start
    if left > budget:
        return await digest(run, start, budget, limiter)
    notes = [f"{output.first} bytes before this are gone"] if 0 < start == output.first else []
    text = _shown(run, output.read(start, left).decode("utf-8", "replace"))
    cut = cut_lines(text)
    notes += [_ways(run)] if cut != text else []
    return OutputPart(cut.rstrip("\n"), _bracketed(notes), cut != text, output.end)


async def digest(run: Job, start: int, budget: int, limiter: CapacityLimiter) -> OutputPart:
    """Return the start and the end of an output from an offset on, and of a failed run what looks like its failures.

    The output of a successful run is likely what its caller wants, so it fills the budget.
    """
    output = run.output
    end, last = output.end, output.lines
    first = output.line_number(max(start, output.first))
    has_failed = run.completed is not None and not run.completed.ok
    head_bytes, tail_bytes = (HEAD_BYTES, TAIL_BYTES) if has_failed else (budget // 4, budget - budget // 4)
    head = fitting(_lines(run, first, last, most=head_bytes), min(head_bytes, budget // 4))
    tail = _last_that_fit(run, min(budget // 2, tail_bytes), last, above=first + len(head))
    gap = (first + len(head), last - len(tail))
    found = await find_lines(output, find_failure, limiter, start=output.line_start(gap[0])) if has_failed else None
    numbers = [number for number in found.numbers if number <= gap[1]] if found is not None else []
    failures = _groups(run, numbers, FAILURE_CONTEXT, min(FAILURE_BYTES, budget // 2), gap)
    about = f"; these of them look like failures ({len(numbers)} in all)" if failures else ""
    text = [*head, f"[... lines {gap[0]} to {gap[1]} left out{about} ...]", *failures]
    text += ["[...]", *tail] if failures else tail
    notes = [f"{output.first} bytes at the start are gone"] if output.first and not start else []
    return OutputPart("\n".join(text), _bracketed([*notes, _ways(run)]), is_cut=True, stop=end)


async def matching_lines(run: Job, pattern: str, context: int, budget: int, limiter: CapacityLimiter) -> OutputPart:
    """Return the lines that match a pattern, each with its number, and lines around them.

    Raises:
        InvalidArguments: the pattern is invalid or takes too long.
    """
    finder: LineFinder = pattern_finder(pattern)
    found = await find_lines(run.output, finder, limiter)
    if not found.numbers:
        return OutputPart("", _bracketed([f"no line of {run.output.lines} matches"]))
    lines = _groups(run, found.numbers, context, budget, (1, run.output.lines))
    shown = sum(_is_shown(number, lines) for number in found.numbers)
    notes = [f"{found.total} of {run.output.lines} lines match"]
    if shown < found.total:
        onward = f", or read on at start_line={found.numbers[shown]}" if shown < len(found.numbers) else ""
        notes.append(f"the first {shown} are shown; narrow the pattern{onward}")
    return OutputPart("\n".join(lines), _bracketed(notes), is_cut=shown < found.total)


def line_range(run: Job, first: int, last: int | None, budget: int) -> OutputPart:
    """Return lines by number, as many as fit into the budget.

    Raises:
        InvalidArguments: the first line is beyond the end, or behind the last.
    """
    total = run.output.lines
    stop = total if last is None else min(last, total)
    if first > max(total, 1):
        raise InvalidArguments(f"start_line {first}: the output has {total} lines")
    if last is not None and last < first:
        raise InvalidArguments(f"end_line {last}: is before start_line {first}")
    lines = fitting(_lines(run, first, stop, most=budget), budget)
    reached = first + len(lines) - 1
    more = f"; start_line={reached + 1} reads on" if reached < total else ""
    return OutputPart("\n".join(lines), _bracketed([f"lines {first} to {reached} of {total}{more}"]))


def last_lines(run: Job, count: int, budget: int) -> OutputPart:
    """Return the last lines, as many as fit into the budget."""
    total = run.output.lines
    lines = _last_that_fit(run, budget, total, above=max(1, total - count + 1))
    note = _bracketed([f"lines {total - len(lines) + 1} to {total}"]) if total else ""
    return OutputPart("\n".join(lines), note, stop=run.output.end)


def from_offset(run: Job, offset: int, most: int) -> OutputPart:
    """Return at most `most` bytes from an offset on. Lines are not cut."""
    output = run.output
    start = max(offset, output.first)
    data = output.read(start, most)
    stop = start + len(data)
    notes = [f"bytes {start} to {stop} of {output.end}"]
    if start > offset:
        notes.append(f"{output.first} bytes before this are gone")
    if stop < output.end:
        notes.append(f"goes on at offset={stop}")
    return OutputPart(_shown(run, data.decode("utf-8", "replace")).rstrip("\n"), _bracketed(notes), stop=stop)


def _lines(run: Job, first: int, last: int, *, most: int) -> list[str]:
    """Return lines by number; of a long range as many as `most` bytes hold, and at least one."""
    if first > last:
        return []
    output = run.output
    start = output.line_start(first)
    stop = output.line_start(last + 1)
    data = output.read(start, min(stop - start, most + 1))
    lines = data.decode("utf-8", "replace").split("\n")
    if start + len(data) < stop and len(lines) == 1:  # one line, and not all of it
        end = output.line_start(first + 1)
        following = end - start - len(data) - (output.read(end - 1, 1) == b"\n")
        return [cut_line(_shown(run, lines[0]), f"offset={start}", following=following)]
    if start + len(data) < stop or data.endswith(b"\n"):
        lines.pop()
    return [_cut(run, line, number) for number, line in enumerate(lines, first)]


def _cut(run: Job, line: str, number: int) -> str:
    shown = _shown(run, line)
    rest = f"offset={run.output.line_start(number)}" if len(shown) > LINE_CHARACTERS else ""
    return cut_line(shown, rest)


def _last_that_fit(run: Job, budget: int, last: int, *, above: int) -> list[str]:
    """Return the last lines up to line `last`, none before line `above`."""
    output = run.output
    first = max(above, output.line_number(max(output.first, output.line_start(last + 1) - budget)))
    lines = _lines(run, first, last, most=2 * budget + LINE_CHARACTERS)
    return fitting(reversed(lines), budget)[::-1]


def _groups(run: Job, numbers: list[int], context: int, budget: int, within: tuple[int, int]) -> list[str]:
    """Return lines with their numbers, `context` lines around each; the groups that fit."""
    lines: list[str] = []
    first, last = within
    for start, end in groups_of(numbers, context=context, last=last):
        begin = max(start, first)
        group = _lines(run, begin, end, most=budget)
        lines += ["[...]"] if lines and context else []
        lines += [f"{number}: {line}" for number, line in enumerate(group, begin)]
        if sum(map(len, lines)) > budget:
            break
    return fitting(lines, budget)


def _is_shown(number: int, lines: list[str]) -> bool:
    return any(line.startswith(f"{number}: ") for line in lines)


def _shown(run: Job, text: str) -> str:
    """Make escape sequences of a terminal visible, since its output is useless without them; else remove them."""
    return visible(text) if run.terminal else plain(text)


def _ways(run: Job) -> str:
    """Say how to read the rest."""
    gone = f"; {run.output.first} bytes at the start are gone" if run.output.first else ""
    return (
        f"{run.output.lines} lines, {run.output.end} bytes in all{gone}: read_run run={run.id} with start_line, tail or"
        f" pattern, or {resource_of(run)}"
    )


def _bracketed(notes: list[str]) -> str:
    return f"[{'; '.join(notes)}]" if notes else ""
