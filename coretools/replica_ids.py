"""Replica-scoped ids of objects that outlive a call, such as runs: the id contains the name of the replica.

Runs and tasks live in the process that started them. A replica that is asked for an id of another replica reports that,
instead of reporting an unknown id. It knows nothing else about the ids of other replicas.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

_REPLICA_ID = re.compile(r"[a-z]+-([a-z0-9-]{1,32})-[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class ReplicaScopedIds:
    """Generates ids, and recognises ids of other replicas."""

    replica: str = ""
    """Name of this replica; empty if there is only one process."""
    is_alive: Callable[[str], bool] = lambda _replica: False
    """Whether another replica recently reported that it is alive."""

    def new_id(self, kind: str, count: int) -> str:
        """A new id with this many random bytes."""
        return "-".join(part for part in (kind, self.replica, secrets.token_hex(count)) if part)

    def explain_foreign(self, scoped_id: str) -> str:
        """Explain an id of another replica, as the end of a sentence; empty for any other id."""
        match = _REPLICA_ID.fullmatch(scoped_id)
        if not self.replica or match is None or match[1] == self.replica:
            return ""
        if self.is_alive(match[1]):
            # A killed one seems alive until its lease expires.
            return (
                f"belongs to replica {match[1]}, which was alive a moment ago, and this is {self.replica}; "
                "only that one can reach it, and if it is gone, so is everything that it ran"
            )
        return f"belonged to replica {match[1]}, which has ended, and everything that it ran with it; start it again"


LOCAL_IDS = ReplicaScopedIds()
"""For a process without replicas."""
