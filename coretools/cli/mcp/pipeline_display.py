"""What a line with calls prints: results and events, messages, and reports to files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mcp.shared.dispatcher import ProgressFnT

from coretools.cli.common.terminal import print_text
from coretools.cli.mcp.line import Line
from coretools.cli.mcp.output import as_json, event_line, visible
from coretools.errors import CoreError
from coretools.pipelines.outcome import Outcome, Step, difference_of, error_document, exit_code_of, outcome_document
from coretools.pipelines.whole_file import write_whole


class Display:
    """An `Observer` that prints what happens, in the form that the line wants."""

    def __init__(self, line: Line, *, is_script: bool = False) -> None:
        """`is_script` shows each step, with more than one of them to come."""
        self._line = line
        self._is_script = is_script
        self._output = line.options.pipeline.output
        self._show: ProgressFnT | None = None

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show the progress of calls in the body, if somebody sees it."""
        with self._line.screen.progress() as self._show:
            yield

    async def on_start(self, step: Step, attempt: int) -> None:
        """Print an event."""
        self._event("start", step, attempt=attempt)

    async def on_progress(self, step: Step, progress: float, total: float | None, message: str | None) -> None:
        """Print an event, and move the bar."""
        self._event("progress", step, progress=progress, total=total, message=message)
        if self._show is not None:
            await self._show(progress, total, message)

    async def on_retry(self, step: Step, error: CoreError, pause: float) -> None:
        """Print an event and a message."""
        self._event("retry", step, error=error_document(error), pause=pause)
        self._line.screen.say(f"{error}; trying again in {pause:g} s")

    async def on_end(self, outcome: Outcome) -> None:
        """Print an event; of a step of a script a line."""
        document = outcome_document(outcome)
        self._event("result", outcome.step, **{key: document[key] for key in document if key not in _OF_STEP})
        if self._is_script:
            self._line.screen.say(_summary(outcome))
            self._line.screen.say_lines(difference_of(outcome))

    def finish(self, name: str, outcomes: Sequence[Outcome]) -> int:
        """Print and write the reports; return the exit code of the run.

        Raises:
            InputOutput: a report can't be written.
        """
        code = exit_code_of(outcomes)
        if self._output == "ndjson":
            counts = {
                status: sum(one.status == status for one in outcomes) for status in ("passed", "failed", "skipped")
            }
            print_text(event_line("end", {"ok": not code, **counts, "exitCode": code}))
        elif self._output in ("junit", "sarif", "github"):
            text = rendered(self._output, name, outcomes)
            printed = print_text(visible(text) if self._output == "github" else text)
            code = code or printed
        for form, file in self._line.options.pipeline.reports:
            write_whole(file, rendered(form, name, outcomes))
        if self._output == "github":
            from coretools.pipelines.github import (
                append_summary,
                summary_of,  # imported late, as in `rendered`
            )

            append_summary(self._line.environment, summary_of(name, outcomes))
        return code

    def _event(self, event: str, step: Step, **facts: Any) -> None:
        if self._output == "ndjson":
            print_text(event_line(event, {"step": step.id, "server": step.server, "tool": step.tool, **facts}))


_OF_STEP = frozenset({"step", "server", "tool"})


def rendered(form: str, name: str, outcomes: Sequence[Outcome]) -> str:
    """Return a report."""
    # Imported late: most lines print text, and the reports take 20 ms.
    if form == "junit":
        from coretools.pipelines.junit import junit_report

        return junit_report(name, outcomes)
    if form == "sarif":
        from coretools.pipelines.sarif import sarif_report

        return sarif_report(outcomes)
    if form == "github":
        from coretools.pipelines.github import github_report

        return github_report(outcomes)
    code = exit_code_of(outcomes)
    return as_json({"name": name, "ok": not code, "exitCode": code, "steps": list(map(outcome_document, outcomes))})


def print_events(event: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """Print one line of JSON for each row."""
    lines = [event_line(event, row) for row in rows]
    return print_text("\n".join(lines)) if lines else 0


def print_checks(line: Line, name: str, checks: Sequence[Outcome]) -> int:
    """Print and write the reports about checks of servers; return the exit code of the first that failed."""
    output = line.options.pipeline.output
    if output == "ndjson":
        print_events("check", [outcome_document(one) for one in checks])
    if output == "json" and name == "doctor":
        print_text(rendered("json", name, checks))
    return Display(line).finish(name, checks)


def _summary(outcome: Outcome) -> str:
    """Return the line about a step of a script."""
    step = outcome.step
    if outcome.status == "skipped":
        return f"skipped {step.title}: {outcome.reason}"
    took = f"{outcome.seconds:.1f} s" + (f", {outcome.attempts} attempts" if outcome.attempts > 1 else "")
    if outcome.error is None:
        return f"ok      {step.title} ({took})"
    mark = "failed " if step.is_optional else "FAILED "
    return f"{mark} {step.title} ({took}): {step.place}step {step.id!r}: {outcome.error}"
