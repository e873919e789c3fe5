"""Results of the run tools: the state of a run, and a part of its output."""

import json
import re
from typing import Annotated

from pydantic import Field

from coretools.operations.content import Result
from coretools.process.jobs.job import Job
from coretools.shell_words import join
from coretools.tools.commands.run_output import OutputPart
from coretools.tools.execution_result import ExecutionSummary, plain, without_escapes
from coretools.tools.failure_explanations import EXAMINED_CHARACTERS, Explanations, changed_files_text, lines_of

ARGV_CHARACTERS = 80
"""Characters shown of a command line in a list."""


def state_of(run: Job) -> str:
    """Describe the state of a run: "running", "exit code 0", "stopped because ...: ended by SIGTERM", ..."""
    if run.is_alive:
        return "running"
    if run.completed is None:
        return f"failed ({run.error})" if run.error is not None else "stopped"
    done = run.completed
    ending = f"ended by {done.signal}" if done.signal else f"exit code {done.exit_code}"
    if done.stopped_for:
        return f"stopped: {done.stopped_for}"
    if run.stopped_because:
        return f"stopped because {run.stopped_because}: {ending}"
    return f"timed out and was stopped: {ending}" if done.timed_out else ending


_IN_BACKGROUND = re.compile(r"(?<![&>|<])&(?![&>])")
"""What starts a program in the background, in nearly every line; a false match costs a superfluous call in a note."""

MAX_REPEATED = 400
"""Longest line that a note repeats."""


def left_over_note(run: Job) -> str:
    """Say how many processes were stopped because they outlived their command, and how to keep them. Empty if none."""
    done = run.completed
    if done is None or not done.stragglers_stopped:
        return ""
    count = "1 left-over process" if done.stragglers_stopped == 1 else f"{done.stragglers_stopped} left-over processes"
    if run.stopped_because or done.timed_out or done.stopped_for:
        return f"{count} stopped"
    line = run.line.strip()
    if not _IN_BACKGROUND.search(line) or len(line) > MAX_REPEATED:
        return f"{count} stopped; to keep one, start it in the foreground with wait_seconds, which leaves a run"
    separator = "\n" if "\n" in line else " " if line.endswith("&") else "; "
    command = json.dumps(f"{line}{separator}wait", ensure_ascii=False)
    return f"{count} stopped; to keep it in a run: run_command command={command} wait_seconds=5"


def _headline(run: Job) -> list[str]:
    """Return the state, the duration and the stopped left-over processes, for a headline."""
    parts = [f"{run.id} {state_of(run)}", f"{run.seconds:.1f} s"]
    parts += [note] if (note := left_over_note(run)) else []
    if run.completed is not None and run.completed.changed_control_files:
        parts.append(changed_files_text(run.completed.changed_control_files))
    return parts


def facts_of(run: Job) -> dict[str, object]:
    """Return the machine-readable facts of a run."""
    facts: dict[str, object] = {
        "run": run.id,
        "running": run.is_alive,
        "bytes": run.output.end,
        "first": run.output.first,
        "offset": run.reported_end,
        "seconds": round(run.seconds, 3),
        "tier": run.tier if run.completed is None else run.completed.tier,
    }
    if run.completed is not None:
        done = run.completed
        facts |= {"exit_code": done.exit_code, "signal": done.signal, "timed_out": done.timed_out}
        facts |= {"peak_memory_bytes": done.peak_memory_bytes, "stragglers_stopped": done.stragglers_stopped}
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
        run: Job,
        *,
        event: str = "",
        excerpt: OutputPart | None = None,
        kind: str = "",
        notes: tuple[str, ...] = (),
    ) -> "RunReport":
        """Build the report and mark the excerpt as reported. `kind` is the event that ended a wait."""
        excerpt = excerpt or OutputPart("")
        run.reported_end = max(run.reported_end, excerpt.stop)
        failed = kind == "exit" and not (run.completed is not None and run.completed.ok)
        return cls(
            headline=", ".join(part for part in (*_headline(run), event) if part),
            output=excerpt.text,
            note=excerpt.note,
            run=facts_of(run) | ({"kind": kind} if kind else {}) | ({"notes": list(notes)} if notes else {}),
            notes=notes,
            is_failure=failed and not run.stopped_because,
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


def examined_text(run: Job) -> str:
    """Return the start and the end of an output, for the explanations."""
    output = run.output
    head = output.read(output.first, EXAMINED_CHARACTERS)
    stop = output.first + len(head)
    tail = output.read(max(stop, output.end - EXAMINED_CHARACTERS), EXAMINED_CHARACTERS)
    return without_escapes((head + b"\n" + tail).decode("utf-8", "replace"))


def notes_of(run: Job, explanations: Explanations) -> tuple[str, ...]:
    """Return the explanations for a failed run, or for what a running one has met so far."""
    text = examined_text(run)
    is_well = run.completed is not None and run.completed.ok
    tier = run.tier if run.completed is None else run.completed.tier
    remarks = () if run.completed is None else run.completed.remarks
    timed_out = run.completed is not None and run.completed.timed_out
    notes = explanations.of(argv=run.argv, tier=tier, failed=not is_well, output=text, timed_out=timed_out)
    return (*notes, *remarks)


class RunList(Result):
    """Result of `list_runs`."""

    lines: list[str]

    def text(self) -> str:
        """One line per run, oldest first."""
        return "\n".join(self.lines) or "[no runs; run_command with wait_seconds starts one]"

    def facts(self) -> dict[str, object]:
        """How many there are."""
        return {"runs": len(self.lines)}


def line_of(run: Job) -> str:
    """Format a run as one line."""
    command = plain(run.line or join(run.argv)).replace("\n", " ")
    shown = command if len(command) <= ARGV_CHARACTERS else command[: ARGV_CHARACTERS - 4] + " ..."
    terminal = f" {run.terminal.columns}x{run.terminal.rows}" if run.terminal else ""
    return f"{run.id} {state_of(run)}, {run.seconds:.0f} s, {run.output.end} bytes{terminal}: {shown}"


class CommandResult(Result):
    """Result of `run_command` for a command that has ended: how, and what it printed."""

    summary: Annotated[ExecutionSummary, Field(exclude=True)]
    run: str = ""
    """Id of the run with the complete output if it was cut."""
    note: str = ""
    """How to read what was cut."""
    left_over: Annotated[str, Field(exclude=True)] = ""
    """What outlived the command, and how to keep it."""

    @property
    def failed(self) -> bool:
        """Whether the command failed."""
        return self.summary.failed

    def facts(self) -> dict[str, object]:
        """How it ended, and the id of the run if there is one."""
        return self.summary.facts() | ({"run": self.run, "running": False} if self.run else {})

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
        return "\n".join(lines)
