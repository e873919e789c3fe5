"""Names for what lives longer than a call, such as runs: whose replica it is on stands in the name.

Runs and tasks live in the process that started them. Where a server has replicas, one that is asked for a handle of
another says so, rather than that there is no such thing. It knows nothing of the other's handles but the name.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

_REPLICA_ID = re.compile(r"[a-z]+-([a-z0-9-]{1,32})-[0-9a-f]+")


def _nobody(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ReplicaScopedIds:
    """Draws names, and tells from a name where its thing is."""

    replica: str = ""
    """Name of this replica; empty where there is one process only."""
    is_alive: Callable[[str], bool] = _nobody
    """Whether another replica said a moment ago that it is."""

    def new_id(self, kind: str, count: int) -> str:
        """A new name with so many random bytes."""
        return "-".join(part for part in (kind, self.replica, secrets.token_hex(count)) if part)

    def explain_foreign(self, handle: str) -> str:
        """What to say of a handle of another replica, as the end of a sentence; empty when it is none."""
        found = _REPLICA_ID.fullmatch(handle)
        if not self.replica or found is None or found[1] == self.replica:
            return ""
        if self.is_alive(found[1]):
            return (
                f"belongs to replica {found[1]}, which is alive, and this is {self.replica}; only that one can reach it"
            )
        return f"belonged to replica {found[1]}, which has ended, and everything that it ran with it; start it again"


LOCAL_IDS = ReplicaScopedIds()
"""Of a process that stands alone."""
