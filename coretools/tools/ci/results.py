"""What the ci tools answer: how a command ended, what it printed, and for tests a report."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from coretools.tools.execution import ExecutionResult, ExecutionSummary, plain, shortened

# What a test run came to: counts, and each failure with its place. What every reader of output produces.
#
# Plain data and the few rules all readers share (how long a message may be, how many failures are kept), no formats.


MOST_FAILURES = 50
"""Failures kept; the counts go on. More than a model can use in one turn, and they would be cut by clients anyway."""

MOST_EXAMINED = 1_000
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
class ParsedReport:
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

    def __add__(self, other: "ParsedReport") -> "ParsedReport":
        """Both runs as one."""
        return ParsedReport(
            passed=self.passed + other.passed,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
            errors=self.errors + other.errors,
            failures=first_unique((*self.failures, *other.failures)),
        )


def first_unique(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """The first failures, each once: several runners list theirs again at the end."""
    unique: dict[tuple[str, str], Failure] = {}
    for failure in islice(failures, MOST_EXAMINED):
        unique.setdefault((failure.name, failure.file), failure)
        if len(unique) == MOST_FAILURES:
            break
    return tuple(unique.values())


def message(lines: Iterable[str]) -> str:
    """A message of several lines as one bounded line."""
    text = " ".join(word for line in lines for word in line.split())
    return text if len(text) <= MESSAGE_LENGTH else f"{text[: MESSAGE_LENGTH - 1]}…"


def split_lines(text: str) -> Sequence[str]:
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


SHOWN_IF_OK = 2_000
"""Characters of a build's output that are worth showing when it succeeded."""

SHOWN_IF_FAILED = 12_000
"""Characters of output when nothing else tells why: about 3,000 tokens, head and tail."""

SHOWN_WITH_REPORT = 4_000
"""Characters of output beside a list of failures that was read from it."""


class StepsResult(ExecutionResult):
    """What `ci_build` and `ci_restore` answer."""

    chosen: str
    """Which build systems were found and which was taken."""

    def text(self) -> str:
        """Verdict and command; what was detected; the output, most of it only when something failed."""
        shown = shortened(self.summary.output, SHOWN_IF_FAILED if self.failed else SHOWN_IF_OK)
        head = f"{self.summary.verdict()} in {self.summary.duration_seconds:.1f} s ({self.summary.command})"
        dropped = f"[{self.summary.dropped_bytes} bytes of output not kept]" if self.summary.dropped_bytes else ""
        return "\n".join(part for part in (head, self.chosen, dropped, *self.remarks(), shown) if part)


_SHORT_SCHEMA = ConfigDict(frozen=True, extra="ignore")
"""Without `additionalProperties: false`: the schema goes to every client, and we alone fill these models."""


class FailedTest(BaseModel):
    """One failure as a program reads it. `line` is 0 and `file` empty when the output does not tell."""

    model_config = _SHORT_SCHEMA

    name: str
    file: str
    line: int
    message: str

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """A failure with its control characters made visible."""
        said = (plain(text).replace("\n", " ") for text in (failure.name, failure.file, failure.message))
        name, file, message = said
        return cls(name=name, file=file, line=failure.line, message=message)

    def sentence(self) -> str:
        """`file:line: name: message`, without what is not known."""
        where = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (where, self.name, self.message) if part)


class SuiteReport(ExecutionResult):
    """What `ci_test` answers. Without `counts` no test runner was recognised in the output."""

    model_config = _SHORT_SCHEMA

    command: str
    exit_code: int
    """-1 when a signal ended the command."""
    timed_out: bool
    seconds: float
    counts: dict[str, int]
    """passed, failed, skipped, errors, total."""
    failures: list[FailedTest]
    chosen: Annotated[str, Field(exclude=True)]

    @classmethod
    def of(cls, summary: ExecutionSummary, report: ParsedReport | None, *, chosen: str) -> Self:
        """The report beside how the command ended. Its counts prove nothing against the exit code."""
        return cls(
            summary=summary,
            chosen=chosen,
            command=summary.command,
            exit_code=-1 if summary.exit_code is None else summary.exit_code,
            timed_out=summary.timed_out,
            seconds=summary.duration_seconds,
            counts=_counts(report) if report else {},
            failures=[FailedTest.of(failure) for failure in report.failures] if report else [],
        )

    def text(self) -> str:
        """Counts, failures one per line, and the end of the output when something failed or nothing was read."""
        lines = [self._headline()]
        if self.failed:
            lines[0] += f": {self.summary.verdict()}"
        lines += [self.chosen] if self.chosen else []
        lines += self.remarks()
        if self.summary.dropped_bytes:
            lines.append(f"[{self.summary.dropped_bytes} bytes of output not kept; counts in them are missing]")
        lines += [failure.sentence() for failure in self.failures]
        unlisted = self.counts.get("failed", 0) + self.counts.get("errors", 0) - len(self.failures)
        if unlisted > 0 and self.failures:
            lines.append(f"[... {unlisted} more failures not listed ...]")
        if self.failed or not self.counts:
            most = SHOWN_WITH_REPORT if self.failures else SHOWN_IF_FAILED
            lines += ["[output]", shortened(self.summary.output, most)]
        return "\n".join(lines)

    def _headline(self) -> str:
        seconds = f"in {self.seconds:.1f} s ({self.command})"
        if not self.counts:
            return f"no test counts found in the output, {seconds}"
        errors = f", {self.counts['errors']} errors" if self.counts["errors"] else ""
        said = ", ".join(f"{self.counts[name]} {name}" for name in ("passed", "failed", "skipped"))
        return f"{said}{errors} {seconds}"


def _counts(report: ParsedReport) -> dict[str, int]:
    return {
        "passed": report.passed,
        "failed": report.failed,
        "skipped": report.skipped,
        "errors": report.errors,
        "total": report.total,
    }
