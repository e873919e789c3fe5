"""How a command of the ci and command tools ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

from coretools.process.run import Completed
from coretools.tools.answer_budget import cut_line
from coretools.tools.failure_explanations import Explanations, changed_files_text, lines_of

COMMAND_CHARACTERS = 1_000
"""Characters shown of the command lines of a build or test run."""

SIGNAL_REASONS = {"SIGXFSZ": ": a file grew over the limit (file_bytes in the policy file)"}
"""Explanation of signals that our own limits cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSummary:
    """How one command, or a sequence of commands, ended. A failure is a result, not an error."""

    command: str
    exit_code: int | None
    """None if a signal ended it."""
    signal: str | None
    timed_out: bool
    duration_seconds: float
    peak_memory_bytes: int
    stragglers_stopped: int
    tier: str | None
    """Tier of confinement."""
    stopped_for: str
    """Why it was stopped before its deadline; empty if it was not."""
    changed_control_files: tuple[str, ...]
    """Settings of editors and agents that it created or changed."""
    output: str
    """Both streams, without terminal escapes."""
    dropped_bytes: int
    """Bytes of output that were not kept."""
    notes: tuple[str, ...] = ()
    """Explanations of a failure whose own message does not name the cause."""
    changes: tuple[int, ...] = ()
    """Ids of what it changed, by which undo takes it back."""

    @classmethod
    def of(
        cls,
        runs: Sequence[Completed],
        output: str,
        explanations: Explanations,
        *,
        examined: str,
    ) -> Self:
        """Summarise a sequence of runs; the last one decides. `examined`: more of the output, for the explanations."""
        last = runs[-1]
        notes = explanations.of(
            argv=last.argv, tier=last.tier, failed=not last.ok, output=examined, timed_out=last.timed_out
        )
        return cls(
            command=cut_line("; ".join(run.command_line for run in runs), longest=COMMAND_CHARACTERS),
            exit_code=None if last.signal else last.exit_code,
            signal=last.signal,
            timed_out=last.timed_out,
            duration_seconds=round(sum(run.duration_seconds for run in runs), 3),
            peak_memory_bytes=max(run.peak_memory_bytes for run in runs),
            stragglers_stopped=sum(run.stragglers_stopped for run in runs),
            tier=last.tier,
            stopped_for=last.stopped_for,
            changed_control_files=tuple(path for run in runs for path in run.changed_control_files),
            output=output,
            dropped_bytes=sum(run.stdout.dropped_bytes + run.stderr.dropped_bytes for run in runs),
            notes=(*notes, *chain.from_iterable(run.remarks for run in runs)),
            changes=tuple(run.change for run in runs if run.change),
        )

    @property
    def failed(self) -> bool:
        """Whether it ended in any way but on its own with exit code 0."""
        return self.exit_code != 0 or self.timed_out or bool(self.stopped_for)

    def verdict(self) -> str:
        """Describe how it ended."""
        if self.timed_out:
            remark = f"; {self.stopped_for}" if self.stopped_for else ""
            return f"timed out after {self.duration_seconds:.1f} s and was stopped{remark}"
        if self.stopped_for:
            return f"stopped: {self.stopped_for}"
        if self.signal is not None:
            return f"ended by {self.signal}{SIGNAL_REASONS.get(self.signal, '')}"
        return "ok" if self.exit_code == 0 else f"exit code {self.exit_code}"

    def facts(self, run: str = "") -> dict[str, object]:
        """Machine-readable facts besides the text; `run` is the id of the run that has the complete output."""
        facts: dict[str, object] = {
            "exit_code": self.exit_code,
            "signal": self.signal,
            "timed_out": self.timed_out,
            "duration_seconds": self.duration_seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "stragglers_stopped": self.stragglers_stopped,
            "tier": self.tier,
        }
        facts |= {"made": list(self.changed_control_files)} if self.changed_control_files else {}
        facts |= {"notes": list(self.notes)} if self.notes else {}
        facts |= {"changes": list(self.changes)} if self.changes else {}
        return facts | ({"run": run, "running": False} if run else {})

    def remarks(self) -> list[str]:
        """Lines between the first line and the output."""
        return lines_of(
            [*self.notes, *([changed_files_text(self.changed_control_files)] if self.changed_control_files else [])]
        )
