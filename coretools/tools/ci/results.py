"""Results of the ci tools: how a command ended, what it printed, and the report of a test run."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from coretools.operations.content import Result
from coretools.tools.answer_budget import fitting_values
from coretools.tools.commands.results import RunReport
from coretools.tools.commands.run_output import OutputPart
from coretools.tools.execution_result import ExecutionSummary, plain

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
"""Bytes shown of the output of a successful build."""

SHOWN_IF_FAILED = 12_000
"""Bytes shown of the output of a failure without a report: about 3,000 tokens."""

SHOWN_WITH_REPORT = 4_000
"""Bytes shown of the output besides a list of failures."""


FAILURES_BYTES = 8_000
"""Bytes of the failures listed."""


class StepsResult(Result):
    """Result of `ci_build` and `ci_restore`."""

    summary: Annotated[ExecutionSummary, Field(exclude=True)]
    chosen: str
    """Which build systems were found and which was taken."""
    run: str = ""
    """Id of the run with the complete output if it was cut."""
    note: str = ""
    """How to read what was cut."""

    @property
    def failed(self) -> bool:
        """Whether the command failed."""
        return self.summary.failed

    def facts(self) -> dict[str, object]:
        """How it ended, and the id of the run if there is one."""
        return self.summary.facts() | ({"run": self.run, "running": False} if self.run else {})

    def text(self) -> str:
        """Verdict and command, what was detected, the output or a digest of it, and a note on what was cut."""
        head = f"{self.summary.verdict()} in {self.summary.duration_seconds:.1f} s ({self.summary.command})"
        parts = (head, self.chosen, *self.summary.remarks(), self.summary.output, self.note)
        return "\n".join(part for part in parts if part)


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
    """What `ci_test` answers. Without `counts` no test runner was recognised in the output, or it is still running."""

    model_config = _SHORT_SCHEMA

    summary: Annotated[ExecutionSummary | None, Field(exclude=True)]
    """None while it is running."""
    state: Annotated[RunReport | None, Field(exclude=True)] = None
    """Of a run that goes on."""
    command: str
    exit_code: int
    """-1 when a signal ended the command."""
    timed_out: bool
    seconds: float
    counts: dict[str, int]
    """passed, failed, skipped, errors, total."""
    failures: list[FailedTest]
    run: str = ""
    """Id of the run that goes on, or that has the complete output."""
    running: bool = False
    chosen: Annotated[str, Field(exclude=True)] = ""
    note: Annotated[str, Field(exclude=True)] = ""
    """How to read what was cut."""

    @property
    def failed(self) -> bool:
        """Whether the command failed."""
        return self.summary is not None and self.summary.failed

    def facts(self) -> dict[str, object]:
        """How it ended, or the facts of a run that goes on."""
        if self.summary is None:
            return {} if self.state is None else self.state.facts()
        return self.summary.facts() | ({"run": self.run, "running": False} if self.run else {})

    @classmethod
    def unfinished(cls, state: RunReport) -> Self:
        """Report that it goes on as a run."""
        seconds = float(str(state.run["seconds"]))
        return cls(
            summary=None,
            state=state,
            command=state.headline,
            exit_code=-1,
            timed_out=False,
            seconds=seconds,
            counts={},
            failures=[],
            run=str(state.run["run"]),
            running=True,
        )

    @classmethod
    def of(
        cls, summary: ExecutionSummary, report: ParsedReport | None, *, chosen: str, part: OutputPart, run: str
    ) -> Self:
        """Combine the report with how the command ended. The exit code decides, not the counts.

        `run` is named if the output is shown and was cut.
        """
        is_shown = summary.failed or report is None
        return cls(
            summary=summary,
            chosen=chosen,
            command=summary.command,
            exit_code=-1 if summary.exit_code is None else summary.exit_code,
            timed_out=summary.timed_out,
            seconds=summary.duration_seconds,
            counts=_counts(report) if report else {},
            failures=_that_fit([FailedTest.of(failure) for failure in report.failures]) if report else [],
            run=run if part.is_cut and is_shown else "",
            note=part.note if is_shown else "",
        )

    def text(self) -> str:
        """Counts, one failure per line, and the output if something failed or no counts were found."""
        if self.summary is None:
            return self.state.text() if self.state is not None else ""
        lines = [self._headline(), self.chosen, *self.summary.remarks()]
        if self.summary.dropped_bytes:
            lines.append(f"[{self.summary.dropped_bytes} bytes of output not read; counts in them are missing]")
        lines += [failure.sentence() for failure in self.failures]
        unlisted = self.counts.get("failed", 0) + self.counts.get("errors", 0) - len(self.failures)
        if unlisted > 0 and self.failures:
            lines.append(f"[... {unlisted} more failures not listed ...]")
        if self.failed or not self.counts:
            lines += ["[output]", self.summary.output]
        return "\n".join(filter(None, [*lines, self.note]))

    def _headline(self) -> str:
        verdict = f": {self.summary.verdict()}" if self.summary is not None and self.failed else ""
        seconds = f"in {self.seconds:.1f} s ({self.command})"
        if not self.counts:
            return f"no test counts found in the output, {seconds}{verdict}"
        errors = f", {self.counts['errors']} errors" if self.counts["errors"] else ""
        counts = ", ".join(f"{self.counts[name]} {name}" for name in ("passed", "failed", "skipped"))
        return f"{counts}{errors} {seconds}{verdict}"


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


CiResult = TypeVar("CiResult", StepsResult, SuiteReport)
