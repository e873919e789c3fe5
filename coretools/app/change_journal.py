"""From settings to the recorder of changes: where the journal for undo is, and what it holds."""

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from coretools.config.settings import Settings
from coretools.errors import BadSetting
from coretools.own_state import state_path
from coretools.process.fork_server.command_recording import CommandRecording
from coretools.process.runner import Runner
from coretools.roots.root_set import Roots
from coretools.undo.change import SPOOL, Bounds
from coretools.undo.command_changes import take_left, take_record
from coretools.undo.recorder import ChangeRecorder

if TYPE_CHECKING:
    from coretools.undo.journal import Journal

logger = logging.getLogger(__name__)


def open_recorder(
    settings: Settings, environment: Mapping[str, str], roots: Roots, exit_stack: ExitStack
) -> ChangeRecorder | None:
    """Let the roots record changes; None where nothing can be changed, or undo is off or not possible.

    The journal itself is opened by the first change. `exit_stack` closes it.
    """
    limits = settings.limits
    if not settings.has_undo or settings.read_only or not any(root.writable for root in roots):
        return None
    directory = _directory(environment)
    if directory is None:
        return None

    def open_journal() -> "Journal":
        from coretools.undo.journal import Journal  # imported late: needs sqlite3

        bounds = Bounds(size=limits.undo_bytes, days=limits.undo_days, changes=limits.undo_changes)
        journal = Journal(directory, bounds, most_copied=limits.file_bytes)
        with suppress(OSError):  # no command was recorded yet
            take_left(journal, spare=recorder.pending)
        return journal

    recorder = ChangeRecorder(open_journal, directory, role=settings.role, most_bytes=limits.undo_bytes)
    exit_stack.callback(recorder.close)
    roots.changes = recorder
    return recorder


def command_recording(recorder: ChangeRecorder | None, settings: Settings) -> CommandRecording | None:
    """How changes of commands are recorded; None for not at all."""
    if recorder is None:
        return None
    limits = settings.limits
    spool = os.path.join(recorder.directory, SPOOL)
    return CommandRecording(spool, role=recorder.role, file_bytes=limits.file_bytes, total_bytes=limits.undo_bytes)


def record_commands(runner: Runner, recorder: ChangeRecorder | None, roots: Roots, settings: Settings) -> None:
    """Have the runner take the records of commands into the journal, and say what undo does not cover."""
    if recorder is None:
        return

    def record_command(name: str, line: str) -> tuple[int, list[str]]:
        if not name:
            take_left(recorder.journal, spare=recorder.pending)
            return 0, ["what it changed until then is in list_changes, unless its processes went on"]
        recorder.pending.add(name)  # it is not left over: opening the journal takes what is
        taken = take_record(recorder.journal, name, line)
        recorder.pending.discard(name)
        if taken is None:
            return 0, ["what it changed is in list_changes: another server took its record"]
        return taken.change, taken.remarks()

    def uncovered() -> list[str]:
        reason = runner.unrecorded
        elsewhere = roots_elsewhere(roots, recorder.directory)
        what = f"files of more than {settings.limits.file_bytes} bytes that commands delete in"
        return [
            *([f"what commands change: {reason}"] if reason else []),
            *(f"{what} {root}: it is not on the file system of the journal" for root in elsewhere if not reason),
        ]

    runner.record_command, recorder.uncovered = record_command, uncovered


def roots_elsewhere(roots: Roots, directory: str) -> list[str]:
    """The writable roots that are not on the file system of the journal, so that what is deleted has to be copied."""
    while not os.path.lexists(directory):  # the first change makes it
        directory = os.path.dirname(directory)
    device = os.stat(directory).st_dev
    return [root.path for root in roots if root.writable and os.fstat(root.fd).st_dev != device]


def _directory(environment: Mapping[str, str]) -> str | None:
    """The directory of the journal, which the first change creates; None with a warning if it could not."""
    try:
        directory = state_path(environment, "changes")
    except BadSetting as error:
        directory, reason = None, str(error)
    else:
        reason = "there is no home directory; set HOME or XDG_STATE_HOME"
    if directory is not None:
        above = directory
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        if os.access(above, os.W_OK | os.X_OK, effective_ids=True):
            return directory
        reason = f"{above} can't be written; set XDG_STATE_HOME to a directory that can"
    logger.warning("changes of file tools can't be taken back: %s; --no-undo accepts that", reason)
    return None
