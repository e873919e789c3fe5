"""Names the hidden files that a command met, where its output only says that something was refused.

In the view of a command a hidden file is a closed, busy mount: programs report a permission that is missing, or a
device that is busy.
"""

import re
from collections.abc import Callable, Sequence

from coretools.confinement.hidden import Hidden
from coretools.tools.explanations import Ending

_SHOWN = 5
"""Files that are named; more are counted."""

_REFUSALS = (
    *("permission denied", "eacces", "errno 13", "device or resource busy", "resource busy", "ebusy", "errno 16"),
    "permissionerror",
)


class HiddenFiles:
    """Explains refusals on files that are hidden from commands now."""

    def __init__(self, hidden: Callable[[], Sequence[Hidden]]) -> None:
        self._hidden = hidden

    def explanation(self, ending: Ending) -> str | None:
        """Which hidden files are named beside a refusal, why they are hidden, and what a tool does with them."""
        if ending.tier != "full" or not ending.may_have_failed:
            return None
        refused = [line for line in ending.output.splitlines() if any(sign in line.lower() for sign in _REFUSALS)]
        if not refused:
            return None
        text = "\n".join(refused)
        met = [one for one in self._hidden() if _is_named(one.path.rpartition("/")[2], text)]
        if not met:
            return None
        named = ", ".join(f"{one.path} ({one.reason})" for one in met[:_SHOWN])
        more = f" and {len(met) - _SHOWN} more" if len(met) > _SHOWN else ""
        return (
            f"hidden from commands: {named}{more}; a command can't read, rename or delete a hidden file, "
            "delete_directory deletes the directory it lies in with all in it"
        )


def _is_named(name: str, text: str) -> bool:
    """Whether the text has this name of a file, not as a part of another name."""
    return name in text and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None
