"""Run a command on trial, and keep or discard what it would change."""

from collections.abc import Awaitable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Annotated, Protocol

import anyio.to_thread
from pydantic import Field

from coretools.config.limits import Limits
from coretools.errors import TooLarge, Unsupported
from coretools.operations.call import Call, SilentCall
from coretools.operations.content import Result
from coretools.operations.declare import Aliases, Effect, same_policy_as, tool
from coretools.process.trials.description import described
from coretools.process.trials.keep import Kept
from coretools.process.trials.trial_table import Trial, TrialTable
from coretools.redaction.argv import redacted_command_line
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import content_bytes, cut_line
from coretools.tools.commands.prepare import StartedCommand
from coretools.tools.commands.results import CommandResult
from coretools.tools.commands.trial_report import TrialReport
from coretools.tools.failure_explanations import changed_files_text

_NO_CALL = SilentCall()

_SUMMARY_CHARACTERS = 200
"""Characters of a command line in the journal."""


class RunToEnd(Protocol):
    """Runs a command to its end."""

    def __call__(self, started: StartedCommand, call: Call, most: int) -> Awaitable[CommandResult]:
        """`most` bytes of its output are shown."""


async def run_on_trial(
    trials: TrialTable | None, started: StartedCommand, run: RunToEnd, roots: Roots, limits: Limits, call: Call
) -> CommandResult:
    """Run a command in overlays over the roots, and add to its result what it would change there.

    Raises:
        Unsupported, ReadOnly, Busy, InputOutput: no trial is possible; nothing was run. What `run` raises.
    """
    try:
        summary = cut_line(redacted_command_line(started.argv), longest=_SUMMARY_CHARACTERS)
        trials = _required(trials)
        trial = await trials.begin(started.directory, principal=call.principal, summary=summary)
    except BaseException:
        started.directory.close()
        raise
    size = content_bytes(limits) // 2
    try:
        result = await run(started._replace(options=replace(started.options, trial=trial.view)), call, size)
        report = await _report(trials, trial, roots, limits, size=size)
    except BaseException:
        await trials.discard(trial)
        raise
    if report.trial:
        trials.hold(trial)
    else:
        await trials.discard(trial)
    return result.model_copy(update={"trial": report})


def _required(trials: TrialTable | None) -> TrialTable:
    if trials is None:
        raise Unsupported("no trials here: run it without trial")
    return trials


async def _report(trials: TrialTable, trial: Trial, roots: Roots, limits: Limits, *, size: int) -> TrialReport:
    """What it would change; without an id if there is nothing to keep."""
    if not await trial.view.wait_gone():
        return TrialReport(message="the trial is discarded: it is not certain that its processes have ended")
    try:
        with closing(described(roots.for_git, trial.view, trials.budget)) as every:
            report = await anyio.to_thread.run_sync(partial(TrialReport.of, every, size=size))
    except TooLarge as error:
        most = f"at most {limits.trial_entries} entries and {limits.trial_bytes} bytes"
        return TrialReport(message=f"the trial is discarded: {error} ({most}); nothing is changed")
    settings = trial.view.changed_git_configurations()
    report.lines += [f"changed {path}: git's configuration" for path in settings]
    if not report.counts and not settings:
        report.message = "the command would change nothing in the roots; the trial is over"
        return report
    report.trial = trial.id
    minutes = limits.trial_seconds / 60
    report.message = (
        f"{trial.id} would {report.counted or 'change settings of git'}; nothing is changed yet: end_trial"
        f" trial={trial.id!r} keep=true does it, keep=false or {minutes:g} minutes discard it"
    )
    return report


class TrialResult(Result):
    """What became of a trial."""

    message: str
    kept: dict[str, int] = Field(default_factory=dict)
    change: int = 0

    def text(self) -> str:
        """The sentence."""
        return self.message

    def facts(self) -> dict[str, object]:
        """How many entries were changed, and the id of the change in the journal."""
        return {"kept": self.kept, "change": self.change}


class TrialTools:
    """Tools for commands that ran on trial."""

    def __init__(self, trials: TrialTable) -> None:
        self._trials = trials

    @same_policy_as("run_command")
    @tool(Effect.CHANGE, title="End trial", profiles=("all",))
    async def end_trial(
        self,
        trial: Annotated[
            str, Field(description="Id of the trial, as the answer of run_command gives it"), Aliases("id")
        ],
        keep: Annotated[
            bool, Field(description="True does what the command would change; False discards it with the trial")
        ],
        *,
        call: Call = _NO_CALL,
    ) -> TrialResult:
        """End a trial of run_command: keep what the command would change, or discard it. Returns what was done.

        Keeping changes the roots as the command would have done, without running it again, and is one change for
        list_changes and undo. Nothing newer is overwritten: if anything that the trial touched was changed since it
        began, nothing is kept and the answer names it; discard the trial then and run the command again. Discarding
        leaves the roots as they are. A trial that nobody ends is discarded after an hour, and with the server.
        """
        found = self._trials.get(trial, call.principal)
        if not keep:
            await self._trials.discard(found)
            return TrialResult(message=f"{found.id} is discarded; the roots are as they were")
        return _of(found, await self._trials.keep(found))


def _of(trial: Trial, kept: Kept) -> TrialResult:
    parts = [f"kept {trial.id}: {_done(kept)}"]
    if kept.change:
        parts.append(f"this is change {kept.change}: undo change={kept.change} takes it back")
    parts += kept.remarks
    if kept.changed_control_files:
        parts.append(changed_files_text(kept.changed_control_files))
    return TrialResult(message="; ".join(parts), kept=dict(kept.counts), change=kept.change)


def _done(kept: Kept) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(kept.counts.items())) or "no files"
