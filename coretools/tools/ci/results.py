"""Results of the ci tools: how a command ended, what it printed, and the report of a test run."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from coretools.operations.content import Result
from coretools.tools.answer_budget import cut_lines, fitting_values
from coretools.tools.execution_result import ExecutionSummary, plain, shortened

# The report that every output reader produces: counts, and each failure with its location.
#
# Plain data and the rules that all readers share (longest message, most failures), but no formats.


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
        """Clamp the counts to what programs can read: a program may print a number of 2,000 digits."""
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


_PLACE = re.compile(r":(\d+)(?::\d+)?\)?'?$")


def place(text: str) -> tuple[str, int]:
    """Parse file and line at the end of a stack line: `at f (dir/a.js:3:28)`, `file:///dir/a.mjs:3`, `'a.js:3:1'`."""
    found = _PLACE.search(text)
    if not found:
        return "", 0
    head = text[: found.start()].strip().removeprefix("at ").removeprefix("async ")
    file = head[head.rfind("(") + 1 :].lstrip("'").removeprefix("file://")
    return file, int(found[1][:9])


SHOWN_IF_OK = 2_000
"""Characters shown of the output of a successful build."""

SHOWN_IF_FAILED = 12_000
"""Characters shown of the output of a failure without a report: about 3,000 tokens, head and tail."""

SHOWN_WITH_REPORT = 4_000
"""Characters shown of the output besides a list of failures."""


FAILURES_BYTES = 8_000
"""Bytes of the failures listed."""


class StepsResult(Result):
    """Result of `ci_build` and `ci_restore`."""

    summary: Annotated[ExecutionSummary, Field(exclude=True)]
    chosen: str
    """Which build systems were found and which was taken."""

    @property
    def failed(self) -> bool:
        """Whether the command failed."""
        return self.summary.failed

    def facts(self) -> dict[str, object]:
        """How it ended."""
        return self.summary.facts()

    def text(self) -> str:
        """Verdict and command, what was detected, and the output, which is shortened after success."""
        shown = shortened(cut_lines(self.summary.output), SHOWN_IF_FAILED if self.failed else SHOWN_IF_OK)
        head = f"{self.summary.verdict()} in {self.summary.duration_seconds:.1f} s ({self.summary.command})"
        dropped = f"[{self.summary.dropped_bytes} bytes of output not kept]" if self.summary.dropped_bytes else ""
        return "\n".join(part for part in (head, self.chosen, dropped, *self.summary.remarks(), shown) if part)


_SHORT_SCHEMA = ConfigDict(frozen=True, extra="ignore")
"""Without `additionalProperties: false`: the schema is sent to every client, and only we fill these models."""


class FailedTest(BaseModel):
    """One failure as a program reads it. `line` is 0 and `file` empty when the output does not tell."""

    model_config = _SHORT_SCHEMA

    name: str
    file: str
    line: int
    message: str

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """Convert a failure, making control characters visible."""
        texts = (plain(text).replace("\n", " ") for text in (failure.name, failure.file, failure.message))
        name, file, message = texts
        return cls(name=name, file=file, line=failure.line, message=message)

    def sentence(self) -> str:
        """Format as `file:line: name: message`, without unknown parts."""
        where = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (where, self.name, self.message) if part)


class SuiteReport(Result):
    """What `ci_test` answers. Without `counts` no test runner was recognised in the output."""

    model_config = _SHORT_SCHEMA

    summary: Annotated[ExecutionSummary, Field(exclude=True)]
    command: str
    exit_code: int
    """-1 when a signal ended the command."""
    timed_out: bool
    seconds: float
    counts: dict[str, int]
    """passed, failed, skipped, errors, total."""
    failures: list[FailedTest]
    chosen: Annotated[str, Field(exclude=True)]

    @property
    def failed(self) -> bool:
        """Whether the command failed."""
        return self.summary.failed

    def facts(self) -> dict[str, object]:
        """How it ended."""
        return self.summary.facts()

    @classmethod
    def of(cls, summary: ExecutionSummary, report: ParsedReport | None, *, chosen: str) -> Self:
        """Combine the report with how the command ended. The exit code decides, not the counts."""
        return cls(
            summary=summary,
            chosen=chosen,
            command=summary.command,
            exit_code=-1 if summary.exit_code is None else summary.exit_code,
            timed_out=summary.timed_out,
            seconds=summary.duration_seconds,
            counts=_counts(report) if report else {},
            failures=_that_fit([FailedTest.of(failure) for failure in report.failures]) if report else [],
        )

    def text(self) -> str:
        """Counts, one failure per line, and the output if something failed or no counts were found."""
        lines = [self._headline()]
        if self.failed:
            lines[0] += f": {self.summary.verdict()}"
        lines += [self.chosen] if self.chosen else []
        lines += self.summary.remarks()
        if self.summary.dropped_bytes:
            lines.append(f"[{self.summary.dropped_bytes} bytes of output not kept; counts in them are missing]")
        lines += [failure.sentence() for failure in self.failures]
        unlisted = self.counts.get("failed", 0) + self.counts.get("errors", 0) - len(self.failures)
        if unlisted > 0 and self.failures:
            lines.append(f"[... {unlisted} more failures not listed ...]")
        if self.failed or not self.counts:
            most = SHOWN_WITH_REPORT if self.failures else SHOWN_IF_FAILED
            lines += ["[output]", shortened(cut_lines(self.summary.output), most)]
        return "\n".join(lines)

    def _headline(self) -> str:
        seconds = f"in {self.seconds:.1f} s ({self.command})"
        if not self.counts:
            return f"no test counts found in the output, {seconds}"
        errors = f", {self.counts['errors']} errors" if self.counts["errors"] else ""
        summary = ", ".join(f"{self.counts[name]} {name}" for name in ("passed", "failed", "skipped"))
        return f"{summary}{errors} {seconds}"


def _that_fit(failures: Sequence[FailedTest]) -> list[FailedTest]:
    fields = fitting_values([failure.model_dump() for failure in failures], FAILURES_BYTES)
    return [*failures[: len(fields)]]


def _counts(report: ParsedReport) -> dict[str, int]:
    return {
        "passed": report.passed,
        "failed": report.failed,
        "skipped": report.skipped,
        "errors": report.errors,
        "total": report.total,
    }
