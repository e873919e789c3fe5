"""What a test run came to: counts, and each failure with its place. What every reader of output produces.

Plain data and the few rules all readers share (how long a message may be, how many failures are kept), no formats.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

MOST_FAILURES = 50
"""Failures kept; the counts go on. More than a model can use in one turn, and they would be cut by clients anyway."""

MOST_LOOKED_AT = 1_000
"""Failures that are looked at to find those; an output that repeats one without end costs no more than this."""

MESSAGE_LENGTH = 300
"""Characters kept of one message: the assertion and the start of a comparison."""

LINE_LENGTH = 2_000
"""Characters of a line that are looked at. Bounds every regular expression, whatever is printed."""

MOST_LINES = 200_000
"""Lines that are looked at: the first quarter and the end. Larger suites print their counts at the end."""


MOST_COUNTED = 10**9
"""Tests of one kind; the sum of all still is a number that every JSON reader takes."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One test that failed. `line` is 0 and `file` is empty when the output does not tell."""

    name: str
    file: str = ""
    line: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one or several test runners said of themselves."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    errors: int = 0
    """What could not run at all: a broken fixture, a file that can't be imported, a package that does not build."""
    failures: tuple[Failure, ...] = ()

    def __post_init__(self) -> None:
        """Keep the counts within what programs can read: 2,000 digits are printed as easily as two."""
        for name in ("passed", "failed", "skipped", "errors"):
            object.__setattr__(self, name, min(max(0, getattr(self, name)), MOST_COUNTED))

    @property
    def total(self) -> int:
        """Everything counted."""
        return self.passed + self.failed + self.skipped + self.errors

    def __add__(self, other: "Report") -> "Report":
        """Both runs as one."""
        return Report(
            passed=self.passed + other.passed,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
            errors=self.errors + other.errors,
            failures=kept((*self.failures, *other.failures)),
        )


def kept(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """The first failures, each once: several runners list theirs again at the end."""
    unique: dict[tuple[str, str], Failure] = {}
    for failure in islice(failures, MOST_LOOKED_AT):
        unique.setdefault((failure.name, failure.file), failure)
        if len(unique) == MOST_FAILURES:
            break
    return tuple(unique.values())


def message(lines: Iterable[str]) -> str:
    """A message of several lines as one bounded line."""
    text = " ".join(word for line in lines for word in line.split())
    return text if len(text) <= MESSAGE_LENGTH else f"{text[: MESSAGE_LENGTH - 1]}…"


def lines_of(text: str) -> Sequence[str]:
    """The lines of an output that are looked at, each bounded."""
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        lines = lines[: MOST_LINES // 4] + lines[-(MOST_LINES - MOST_LINES // 4) :]
    return [line[:LINE_LENGTH].rstrip() for line in lines]


def block(lines: Sequence[str], start: int, *, most: int = 200) -> Sequence[str]:
    """The lines of one failure from `start` on, bounded: no reader looks further for its message and place."""
    return lines[start : start + most]


_PLACE = re.compile(r":(\d+)(?::\d+)?\)?'?$")


def place(text: str) -> tuple[str, int]:
    """File and line at the end of a stack line: `at f (dir/a.js:3:28)`, `file:///dir/a.mjs:3`, `'a.js:3:1'`."""
    found = _PLACE.search(text)
    if not found:
        return "", 0
    head = text[: found.start()].strip().removeprefix("at ").removeprefix("async ")
    file = head[head.rfind("(") + 1 :].lstrip("'").removeprefix("file://")
    return file, int(found[1][:9])
