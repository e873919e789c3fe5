"""From settings to the recorder of changes: where the journal for undo is, and what it holds."""

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from coretools.config.settings import Settings
from coretools.errors import BadSetting
from coretools.own_state import state_path
from coretools.roots.root_set import Roots
from coretools.undo.change import Bounds
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
        return Journal(directory, bounds, most_copied=limits.file_bytes)

    recorder = ChangeRecorder(open_journal, role=settings.role, most_bytes=limits.undo_bytes)
    exit_stack.callback(recorder.close)
    roots.changes = recorder
    return recorder


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
