"""Results of the ci tools: how a command ended, what it printed, and the report of a test run."""

from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from coretools.operations.content import Result
from coretools.tools.answer_budget import fitting_values
from coretools.tools.ci.parsed_report import Failure, ParsedReport
from coretools.tools.commands.results import RunReport
from coretools.tools.commands.run_output import OutputPart
from coretools.tools.execution_result import ExecutionSummary
from coretools.tools.output_text import plain

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
        return self.summary.facts(self.run)

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
        return self.summary.facts(self.run)

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
        failures = [FailedTest.of(failure) for failure in report.failures] if report else []
        fitting = fitting_values((failure.model_dump() for failure in failures), FAILURES_BYTES)
        return cls(
            summary=summary,
            chosen=chosen,
            command=summary.command,
            exit_code=-1 if summary.exit_code is None else summary.exit_code,
            timed_out=summary.timed_out,
            seconds=summary.duration_seconds,
            counts=_counts(report) if report else {},
            failures=failures[: len(fitting)],
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


def _counts(report: ParsedReport) -> dict[str, int]:
    return {
        "passed": report.passed,
        "failed": report.failed,
        "skipped": report.skipped,
        "errors": report.errors,
        "total": report.total,
    }


CiResult = TypeVar("CiResult", StepsResult, SuiteReport)
