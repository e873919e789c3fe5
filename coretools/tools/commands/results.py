"""Results of the run tools: the state of a run, and a part of its output."""

import json
import re
from typing import Annotated

from pydantic import Field

from coretools.operations.content import Result
from coretools.process.jobs.job import Job
from coretools.shell_words import join
from coretools.tools.commands.run_output import OutputPart
from coretools.tools.commands.trial_report import TrialReport
from coretools.tools.execution_result import ExecutionSummary
from coretools.tools.failure_explanations import EXAMINED_CHARACTERS, Explanations, changed_files_text, lines_of
from coretools.tools.output_text import plain, without_escapes

ARGV_CHARACTERS = 80
"""Characters shown of a command line in a list."""


def state_of(job: Job) -> str:
    """Describe the state of a run: "running", "exit code 0", "stopped because ...: ended by SIGTERM", ..."""
    if job.is_alive:
        return "running"
    if job.completed is None:
        return f"failed ({job.error})" if job.error is not None else "stopped"
    done = job.completed
    ending = f"ended by {done.signal}" if done.signal else f"exit code {done.exit_code}"
    if done.stopped_for:
        return f"stopped: {done.stopped_for}"
    if job.stopped_because:
        return f"stopped because {job.stopped_because}: {ending}"
    return f"timed out and was stopped: {ending}" if done.timed_out else ending


_IN_BACKGROUND = re.compile(r"(?<![&>|<])&(?![&>])")
"""What starts a program in the background, in nearly every line; a false match costs a superfluous call in a note."""

MAX_REPEATED = 400
"""Longest line that a note repeats."""


def left_over_note(job: Job) -> str:
    """Say how many processes were stopped because they outlived their command, and how to keep them. Empty if none."""
    done = job.completed
    if done is None or not done.stragglers_stopped:
        return ""
    count = "1 left-over process" if done.stragglers_stopped == 1 else f"{done.stragglers_stopped} left-over processes"
    if job.stopped_because or done.timed_out or done.stopped_for:
        return f"{count} stopped"
    line = job.line.strip()
    if not _IN_BACKGROUND.search(line) or len(line) > MAX_REPEATED:
        return f"{count} stopped; to keep one, start it in the foreground with wait_seconds, which leaves a run"
    separator = "\n" if "\n" in line else " " if line.endswith("&") else "; "
    command = json.dumps(f"{line}{separator}wait", ensure_ascii=False)
    return f"{count} stopped; to keep it in a run: run_command command={command} wait_seconds=5"


def _headline(job: Job) -> list[str]:
    """Return the state, the duration and the stopped left-over processes, for a headline."""
    parts = [f"{job.id} {state_of(job)}", f"{job.seconds:.1f} s"]
    parts += [note] if (note := left_over_note(job)) else []
    if job.completed is not None and job.completed.changed_control_files:
        parts.append(changed_files_text(job.completed.changed_control_files))
    return parts


def facts_of(job: Job) -> dict[str, object]:
    """Return the machine-readable facts of a run."""
    facts: dict[str, object] = {
        "run": job.id,
        "running": job.is_alive,
        "bytes": job.output.end,
        "first": job.output.first,
        "offset": job.reported_end,
        "seconds": round(job.seconds, 3),
        "tier": job.tier if job.completed is None else job.completed.tier,
    }
    if job.completed is not None:
        done = job.completed
        facts |= {"exit_code": done.exit_code, "signal": done.signal, "timed_out": done.timed_out}
        facts |= {"peak_memory_bytes": done.peak_memory_bytes, "stragglers_stopped": done.stragglers_stopped}
        facts |= {"changes": [done.change]} if done.change else {}
    return facts


class RunReport(Result):
    """Result of a tool about one run."""

    headline: str
    """State, and the event that ended a wait."""
    output: str = ""
    note: str = ""
    run: dict[str, object]
    """Facts."""
    is_failure: bool = False
    notes: tuple[str, ...] = ()
    """Explanations of a failure."""

    @classmethod
    def of(
        cls,
        job: Job,
        *,
        excerpt: OutputPart,
        event: str = "",
        kind: str = "",
        notes: tuple[str, ...] = (),
    ) -> "RunReport":
        """Build the report and mark the excerpt as reported. `kind` is the event that ended a wait."""
        job.reported_end = max(job.reported_end, excerpt.stop)
        failed = kind == "exit" and not (job.completed is not None and job.completed.ok)
        return cls(
            headline=", ".join(part for part in (*_headline(job), event) if part),
            output=excerpt.text,
            note=excerpt.note,
            run=facts_of(job) | ({"kind": kind} if kind else {}) | ({"notes": list(notes)} if notes else {}),
            notes=notes,
            is_failure=failed and not job.stopped_because,
        )

    @property
    def failed(self) -> bool:
        """Whether the awaited program failed."""
        return self.is_failure

    def facts(self) -> dict[str, object]:
        """Run, whether it is running, exit code, offsets; `kind` of event that ended a wait."""
        return self.run

    def text(self) -> str:
        """State, output, and a note on what is missing."""
        return "\n".join(part for part in (f"[{self.headline}]", *lines_of(self.notes), self.output, self.note) if part)


def examined_text(job: Job) -> str:
    """Return the start and the end of an output, for the explanations."""
    output = job.output
    head = output.read(output.first, EXAMINED_CHARACTERS)
    stop = output.first + len(head)
    tail = output.read(max(stop, output.end - EXAMINED_CHARACTERS), EXAMINED_CHARACTERS)
    return without_escapes((head + b"\n" + tail).decode("utf-8", "replace"))


def notes_of(job: Job, explanations: Explanations) -> tuple[str, ...]:
    """Return the explanations for a failed run, or for what a running one has met so far."""
    text, done = examined_text(job), job.completed
    if done is None:
        return explanations.of(argv=job.argv, tier=job.tier, failed=True, output=text)
    notes = explanations.of(argv=job.argv, tier=done.tier, failed=not done.ok, output=text, timed_out=done.timed_out)
    return (*notes, *done.remarks)


class RunList(Result):
    """Result of `list_runs`."""

    lines: list[str]

    def text(self) -> str:
        """One line per run, oldest first."""
        return "\n".join(self.lines) or "[no runs; run_command with wait_seconds starts one]"

    def facts(self) -> dict[str, object]:
        """How many there are."""
        return {"runs": len(self.lines)}


def line_of(job: Job) -> str:
    """Format a run as one line."""
    command = plain(job.line or join(job.argv)).replace("\n", " ")
    shown = command if len(command) <= ARGV_CHARACTERS else command[: ARGV_CHARACTERS - 4] + " ..."
    terminal = f" {job.terminal.columns}x{job.terminal.rows}" if job.terminal else ""
    return f"{job.id} {state_of(job)}, {job.seconds:.0f} s, {job.output.end} bytes{terminal}: {shown}"


class CommandResult(Result):
    """Result of `run_command` for a command that has ended: how, and what it printed."""

    summary: Annotated[ExecutionSummary, Field(exclude=True)]
    run: str = ""
    """Id of the run with the complete output if it was cut."""
    note: str = ""
    """How to read what was cut."""
    left_over: Annotated[str, Field(exclude=True)] = ""
    """What outlived the command, and how to keep it."""
    trial: Annotated[TrialReport | None, Field(exclude=True)] = None
    """What it would change, if it ran on trial."""

    @property
    def failed(self) -> bool:
        """Whether the command failed."""
        return self.summary.failed

    def facts(self) -> dict[str, object]:
        """How it ended, and the id of the run if there is one."""
        return self.summary.facts(self.run) | ({} if self.trial is None else self.trial.facts())

    def text(self) -> str:
        """How the command ended (unless with exit code 0), its output, and a note on what was cut."""
        lines = [f"[{self.summary.verdict()}]"] if self.failed else []
        if not self.failed and not self.summary.output:
            lines.append("[exit code 0, no output]")
        if self.left_over:
            lines.append(f"[{self.left_over}]")
        lines += self.summary.remarks()
        if self.summary.output:
            lines.append(self.summary.output)
        if self.note:
            lines.append(self.note)
        if self.trial is not None:
            lines.append(self.trial.text())
        return "\n".join(lines)
