"""Explain failures of commands that tried to change a toolchain of the user, which they can only read."""

import re
from collections.abc import Callable, Sequence

from coretools.confinement.toolchains import FoundToolchain
from coretools.tools.failure_explanations import CommandOutcome

_REFUSAL = re.compile(
    # npm reports its attempt to make a directory on a read-only file system as ENOENT.
    r"read-only file system|\bEROFS\b|permission denied|\bEACCES\b|\bEPERM\b|n.t writable|\bENOENT\b.{0,80}mkdir",
    re.IGNORECASE,
)

_REHASH = re.compile(r"^pyenv: cannot rehash: ", re.MULTILINE)


class ToolchainExplanations:
    """Explains failures by the toolchains that commands can read."""

    def __init__(self, toolchains: Callable[[], Sequence[FoundToolchain]]) -> None:
        """`toolchains` returns those that were found; none before the first command."""
        self._toolchains = toolchains

    def explanation(self, ending: CommandOutcome) -> str | None:
        """Name the toolchain that a command tried to change, judging by its output."""
        toolchains = self._toolchains() if ending.may_have_failed and ending.tier not in (None, "none") else ()
        refusals = "\n".join(line for line in ending.output.splitlines() if _REFUSAL.search(line)) if toolchains else ""
        met = next(
            (toolchain for toolchain in toolchains if any(_names(part, refusals) for part in toolchain.granted)), None
        )
        if met is None:
            return None
        if _REHASH.search(refusals):
            return (
                "pyenv updates its shims when pip has succeeded, and only that failed, since commands can't change"
                " them: what pip installed is there; the pip of a virtual environment avoids this error"
            )
        return (
            f"commands can use the user's toolchains and change nothing there ({met.name}: {met.place}): install into"
            " the project, such as into a virtual environment, or with npm without -g"
        )


def _names(path: str, text: str) -> bool:
    """Whether the text names this path or one beneath it."""
    return bool(re.search(rf"{re.escape(path)}(?![\w.-])", text))
