"""Names for what lives longer than a call, such as runs: whose replica it is on stands in the name.

Runs and tasks live in the process that started them. Where a server has replicas, one that is asked for a handle of
another says so, rather than that there is no such thing. It knows nothing of the other's handles but the name.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

_PLACED = re.compile(r"[a-z]+-([a-z0-9-]{1,32})-[0-9a-f]+")


def _nobody(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Handles:
    """Draws names, and tells from a name where its thing is."""

    place: str = ""
    """Name of this replica; empty where there is one process only."""
    is_alive: Callable[[str], bool] = _nobody
    """Whether another replica said a moment ago that it is."""

    def draw(self, kind: str, count: int) -> str:
        """A new name with so many random bytes."""
        return "-".join(part for part in (kind, self.place, secrets.token_hex(count)) if part)

    def elsewhere(self, handle: str) -> str:
        """What to say of a handle of another replica, as the end of a sentence; empty when it is none."""
        found = _PLACED.fullmatch(handle)
        if not self.place or found is None or found[1] == self.place:
            return ""
        if self.is_alive(found[1]):
            return (
                f"belongs to replica {found[1]}, which is alive, and this is {self.place}; only that one can reach it"
            )
        return f"belonged to replica {found[1]}, which has ended, and everything that it ran with it; start it again"


HERE = Handles()
"""Of a process that stands alone."""
