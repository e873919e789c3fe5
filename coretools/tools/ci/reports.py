"""Build the answers of the ci tools from what the programs printed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import anyio
import anyio.to_thread

from coretools.config.limits import Limits
from coretools.process.jobs.job import Job
from coretools.process.run import Completed
from coretools.redaction.redactor import Redactor, drop_partial_lines
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import content_bytes, cut_lines
from coretools.tools.ci.gradle_results import gradle_results
from coretools.tools.ci.parse import parse
from coretools.tools.ci.parsed_report import ParsedReport
from coretools.tools.ci.project import ProjectView
from coretools.tools.ci.read_go import displayed as go_displayed
from coretools.tools.ci.read_go import go_text
from coretools.tools.ci.results import (
    SHOWN_IF_FAILED,
    SHOWN_IF_OK,
    SHOWN_WITH_REPORT,
    StepsResult,
    SuiteReport,
)
from coretools.tools.commands.results import RunReport, examined_text, notes_of
from coretools.tools.commands.run_output import OutputPart, digest, new_output, ways_to_read
from coretools.tools.execution_result import ExecutionSummary
from coretools.tools.failure_explanations import Explanations
from coretools.tools.output_text import plain, printed, shortened, streams, without_escapes
from coretools.truncation import Excerpt


class Execution(NamedTuple):
    """A build, test run or restore that has ended."""

    job: Job
    path: str
    """Directory of the project, absolute."""
    completed: Sequence[Completed]
    chosen: str
    """How its programs were chosen."""


class ReportBuilder:
    """Builds answers. Reading megabytes of output runs in a worker thread."""

    def __init__(
        self,
        roots: Roots,
        limits: Limits,
        limiter: anyio.CapacityLimiter,
        *,
        redactor: Redactor | None,
        explanations: Explanations,
    ) -> None:
        self._roots = roots
        self._limits = limits
        self._limiter = limiter
        self._redactor = redactor
        self._explanations = explanations

    async def steps_result(self, execution: Execution) -> StepsResult:
        """Report on a build or a restore."""
        text = await anyio.to_thread.run_sync(self._printed_by_all, execution.completed, limiter=self._limiter)
        part = await self._part(execution, text, SHOWN_IF_OK if execution.completed[-1].ok else SHOWN_IF_FAILED)
        return StepsResult(
            summary=self._summary(execution, part),
            chosen=execution.chosen,
            run=execution.job.id if part.is_cut else "",
            note=part.note,
        )

    async def suite_report(self, execution: Execution) -> SuiteReport:
        """Report on a test run: the counts and failures of the last step."""
        report, text, is_events = await anyio.to_thread.run_sync(self._parsed, execution, limiter=self._limiter)
        has_failures = report is not None and bool(report.failures)
        budget = SHOWN_WITH_REPORT if has_failures else SHOWN_IF_FAILED
        part = await self._part(execution, text, budget, is_raw=not is_events)
        return SuiteReport.of(
            self._summary(execution, part), report, chosen=execution.chosen, part=part, run=execution.job.id
        )

    async def unfinished(self, job: Job) -> RunReport:
        """Report on a run that goes on."""
        part = await new_output(job, content_bytes(self._limits), self._limiter)
        event = "still running: wait_run, read_run, stop_run"
        return RunReport.of(job, event=event, excerpt=part, kind="time", notes=notes_of(job, self._explanations))

    async def _part(self, execution: Execution, text: str, budget: int, *, is_raw: bool = True) -> OutputPart:
        """Return the whole text, or a digest of the output. `is_raw`: the text is the output itself."""
        cut, job = cut_lines(text), execution.job
        dropped = sum(run.stdout.dropped_bytes + run.stderr.dropped_bytes for run in execution.completed)
        if not dropped and len(text.encode("utf-8", "replace")) <= budget:
            return OutputPart(cut, ways_to_read(job) if cut != text else "", is_cut=cut != text)
        if is_raw:
            return await digest(job, 0, budget, self._limiter)
        return OutputPart(shortened(cut, budget), ways_to_read(job), is_cut=True)

    def _summary(self, execution: Execution, part: OutputPart) -> ExecutionSummary:
        examined = examined_text(execution.job)
        return ExecutionSummary.of(execution.completed, part.text, self._explanations, examined=examined)

    def _printed_by_all(self, runs: Sequence[Completed]) -> str:
        parts = (streams(printed(run.stdout, self._redactor), printed(run.stderr, self._redactor)) for run in runs)
        return "\n".join(filter(None, parts))

    def _parsed(self, execution: Execution) -> tuple[ParsedReport | None, str, bool]:
        """Return the report, the output as text, and whether it was made from the events of `go test -json`."""
        last = execution.completed[-1]
        stdout, stderr = (self._kept(excerpt) for excerpt in (last.stdout, last.stderr))
        events = go_text(stdout)
        shown, stderr = self._redacted(events), self._redacted(stderr)
        view = ProjectView(self._roots, execution.path)
        report = parse(f"{shown}\n{stderr}")
        if report is None and last.ok and _is_gradle(last):
            report = gradle_results(view)
        if report is not None:
            report = replace(report, failures=tuple(view.resolved(failure) for failure in report.failures))
        is_events = events is not stdout
        return report, streams(plain(go_displayed(shown) if is_events else shown), plain(stderr)), is_events

    def _kept(self, excerpt: Excerpt) -> str:
        return excerpt.text() if self._redactor is None else without_escapes(drop_partial_lines(excerpt).text())

    def _redacted(self, text: str) -> str:
        return text if self._redactor is None else self._redactor.text(text)


def _is_gradle(run: Completed) -> bool:
    """Whether Gradle or its wrapper was run."""
    return any(word.rpartition("/")[2] in ("gradle", "gradlew") for word in run.argv[:2])
