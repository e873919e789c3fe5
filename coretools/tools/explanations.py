"""Sentences that explain why a command failed, where its own message does not name the cause.

The sandbox makes ordinary programs fail in ways that look like faults of the machine. Each explanation looks at how a
command ended and may add one sentence to its result. To add a cause, write an `Explanation` and name it where the
server is assembled.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coretools.redact_argv import one_line
from coretools.sandbox.names import printable

logger = logging.getLogger(__name__)

LOOKED_AT = 64 * 1024
"""Characters at each end of an output that explanations look at."""

MOST_NAMED = 5
"""Paths that are named; the rest is counted."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ended, or how it stands, and what it printed."""

    argv: tuple[str, ...]
    tier: str | None
    """Tier of confinement; None where nothing confines commands."""
    failed: bool
    """It ended otherwise than with exit code 0, or it still runs."""
    output: str
    """Both streams, without terminal escapes; at most `LOOKED_AT` characters of each end."""

    @property
    def may_have_failed(self) -> bool:
        """Whether something in it may have failed. A shell's exit code is that of its last command: `curl x | tail`."""
        return self.failed or (bool(self.argv) and self.argv[0].rpartition("/")[2] in _SHELLS)


Explanation = Callable[[Ending], str | None]
"""One sentence without a final stop, or None when it has nothing to say."""


class Explanations:
    """All explanations of a server, in the order in which they are shown."""

    def __init__(self, *explanations: Explanation) -> None:
        self._explanations = explanations

    def of(self, *, argv: Sequence[str], tier: str | None, failed: bool, output: str) -> tuple[str, ...]:
        """What is to be said beside the result of one command."""
        shown = output if len(output) <= 2 * LOOKED_AT else f"{output[:LOOKED_AT]}\n{output[-LOOKED_AT:]}"
        ending = Ending(argv=tuple(argv), tier=tier, failed=failed, output=shown)
        found = (explanation(ending) for explanation in self._explanations)
        said = tuple(sentence for sentence in found if sentence)
        for sentence in said:
            logger.info("refused: %s: %s", ending.argv[0] if ending.argv else "a command", sentence)
        return said


NONE = Explanations()
"""For tools that run where nothing is denied."""


def lines_of(notes: Sequence[str]) -> list[str]:
    """The explanations as lines of a result."""
    return [f"[{one_line(note)}]" for note in notes]


def made_text(made: Sequence[str]) -> str:
    """What a command made or changed that git, an editor or an agent acts on: nothing can keep it from that."""
    more = f" and {len(made) - MOST_NAMED} more" if len(made) > MOST_NAMED else ""
    shown = ", ".join(one_line(printable(path)) for path in made[:MOST_NAMED])
    return f"made or changed while it ran, and git, editors or agents act on it: {shown}{more}"
