"""What every output reader returns: counts, and each failure with its location.

Plain data and the rules that all readers share (longest message, most failures), but no formats.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

MOST_FAILURES = 50
"""Failures kept; the counts include all. A model can't use more in one turn, and clients would truncate them."""

MOST_EXAMINED = 1_000
"""Failures examined to find those; bounds the cost of an output that repeats one without end."""

MESSAGE_LENGTH = 300
"""Characters kept of one message: the assertion and the start of a comparison."""

LINE_LENGTH = 2_000
"""Characters of a line that are read. Bounds every regular expression, whatever is printed."""

MOST_LINES = 200_000
"""Lines that are read: the first quarter and the end. Large suites print their counts at the end."""


MOST_COUNTED = 10**9
"""Largest count of one kind; the sum of all is still a number that every JSON reader accepts."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed test. `line` is 0 and `file` is empty if the output does not contain them."""

    name: str
    file: str = ""
    line: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReport:
    """Counts and failures parsed from the output of one or several test runners."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    errors: int = 0
    """Tests that could not run: a broken fixture, a file that can't be imported, a package that does not build."""
    failures: tuple[Failure, ...] = ()

    def __post_init__(self) -> None:
        """Clamp the counts: a program may print a number of 2,000 digits, or ones of which a difference is negative."""
        for name in ("passed", "failed", "skipped", "errors"):
            object.__setattr__(self, name, min(max(0, getattr(self, name)), MOST_COUNTED))

    @property
    def total(self) -> int:
        """Sum of all counts."""
        return self.passed + self.failed + self.skipped + self.errors

    def __add__(self, other: "ParsedReport") -> "ParsedReport":
        """Add up two reports."""
        return ParsedReport(
            passed=self.passed + other.passed,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
            errors=self.errors + other.errors,
            failures=first_unique((*self.failures, *other.failures)),
        )


def summed(reports: Sequence[ParsedReport]) -> ParsedReport | None:
    """Add up reports; None if there are none."""
    return sum(reports[1:], start=reports[0]) if reports else None


def first_unique(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Return the first failures without duplicates: several runners repeat theirs at the end."""
    unique: dict[tuple[str, str], Failure] = {}
    for failure in islice(failures, MOST_EXAMINED):
        unique.setdefault((failure.name, failure.file), failure)
        if len(unique) == MOST_FAILURES:
            break
    return tuple(unique.values())


def message(lines: Iterable[str]) -> str:
    """Join the lines of a message into one bounded line."""
    text = " ".join(word for line in lines for word in line.split())
    return text if len(text) <= MESSAGE_LENGTH else f"{text[: MESSAGE_LENGTH - 1]}…"


def split_lines(text: str) -> Sequence[str]:
    """Return the lines of an output that are read, each bounded."""
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        lines = lines[: MOST_LINES // 4] + lines[-(MOST_LINES - MOST_LINES // 4) :]
    return [line[:LINE_LENGTH].rstrip() for line in lines]


def block(lines: Sequence[str], start: int, *, most: int = 200) -> Sequence[str]:
    """Return the lines of one failure from `start` on; readers search no further for its message and location."""
    return lines[start : start + most]


def matches(pattern: re.Pattern[str], lines: Iterable[str]) -> list[re.Match[str]]:
    """Match each line from its start; return the matches."""
    return [match for line in lines if (match := pattern.match(line))]


_PLACE = re.compile(r":(\d+)(?::\d+)?\)?'?$")


def place(text: str) -> tuple[str, int]:
    """Parse file and line at the end of a stack line: `at f (dir/a.js:3:28)`, `file:///dir/a.mjs:3`, `'a.js:3:1'`."""
    match = _PLACE.search(text)
    if not match:
        return "", 0
    head = text[: match.start()].strip().removeprefix("at ").removeprefix("async ")
    file = head[head.rfind("(") + 1 :].lstrip("'").removeprefix("file://")
    return file, int(match[1][:9])
