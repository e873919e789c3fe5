"""What the running server reports to metrics and console: names and figures.

A root is known by its name only: its path on the host stays in the operator's own files.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coretools.services.interface import QueueTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSnapshot:
    """One session of the handshake era."""

    id: str
    principal: str
    role: str
    age_seconds: float
    idle_seconds: float
    """Seconds since its last request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSnapshot:
    """A root, without its path on the host."""

    name: str
    is_writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSnapshot:
    """Roots, protections and running children of a role."""

    role: str
    roots: tuple[RootSnapshot, ...]
    resolver: str
    tier: str
    """Confinement tier of commands; empty until it was determined."""
    missing: tuple[str, ...]
    """Names of inactive protections."""
    children: int
    runs: int
    """Background runs that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSnapshot:
    """The server as a whole."""

    replica: str
    stores: str
    """Kind of the stores: `memory` or `redis`."""
    are_stores_fine: bool = True
    is_draining: bool = False
    has_lease: bool = True
    """Whether this replica could renew its lease in Redis in time."""
    reload: "ReloadStatus | None" = None
    totals: QueueTotals | None = None
    """Items in all queues of the services; None if their store does not answer."""


@dataclass(slots=True)
class ReloadStatus:
    """The last reload, or the start, and the certificate in use."""

    at: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    has_succeeded: bool = True
    certificate_ends: float | None = None
    """Seconds since the epoch; None without TLS."""


class SnapshotSource(Protocol):
    """Provides snapshots of the server. Must be fast: it runs in the event loop."""

    def sessions(self) -> Sequence[SessionSnapshot]:
        """Return the open sessions, oldest first."""
        ...

    def tenants(self) -> Sequence[TenantSnapshot]:
        """Return a snapshot of each tenant."""
        ...

    def server(self) -> ServerSnapshot:
        """The server as a whole."""
        ...
