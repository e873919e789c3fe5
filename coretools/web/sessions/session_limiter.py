"""The limits of open sessions: of all together, and of one principal."""

from collections import Counter
from dataclasses import dataclass

from coretools.web.common.config import LimitsSection

SHARE = 16
"""One principal gets a sixteenth of all sessions, unless the operator sets a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Limits of sessions. Times in seconds, sizes in bytes."""

    sessions: int = 64
    per_principal: int = 0
    """0 is a sixteenth of `sessions`, at least one."""
    idle_seconds: float = 300.0
    """0: no idle timeout."""
    resume_seconds: float = 60.0
    """Clients of the SDKs retry for some seconds; the rest is for a person whose network changes."""
    body_bytes: int = 4 * 1024 * 1024

    @property
    def share(self) -> int:
        """Largest number of sessions of one principal."""
        return self.per_principal or max(1, self.sessions // SHARE)


def session_limits(limits: LimitsSection) -> SessionLimits:
    """Return the configured limits."""
    return SessionLimits(
        sessions=limits.sessions,
        per_principal=limits.sessions_per_principal,
        idle_seconds=limits.session_idle_seconds,
        resume_seconds=limits.resume_seconds,
        body_bytes=limits.body_bytes,
    )


class SessionWatcher:
    """Notified about sessions. Must be fast and must not raise. A subclass overrides what it needs."""

    def session_opened(self, role: str) -> None:
        """A session was opened."""

    def session_ended(self, role: str, reason: str) -> None:
        """A session ended: `deleted`, `idle`, `evicted` for another of its principal, or `closed` by the server."""


class NoRoom(Exception):
    """No session can be opened: a limit is reached, and the principal has no idle session."""


class SessionLimiter:
    """Limits the open sessions, over all roles of a server."""

    def __init__(self, limits: SessionLimits, watcher: SessionWatcher | None = None) -> None:
        """`watcher` is notified about every session."""
        self.limits = limits
        self.watcher = watcher or SessionWatcher()
        self._by_principal: Counter[str] = Counter()
        self.opened = 0
        """Sessions opened since the start."""

    def use(self, limits: SessionLimits) -> None:
        """Use these limits for later sessions; open ones stay."""
        self.limits = limits

    @property
    def open(self) -> int:
        """Number of open sessions."""
        return self._by_principal.total()

    @property
    def is_full(self) -> bool:
        """Whether the limit of all sessions is reached."""
        return self.open >= self.limits.sessions

    def has_room(self, principal: str) -> bool:
        """Whether this principal may open a session."""
        return not self.is_full and self._by_principal[principal] < self.limits.share

    def enter(self, principal: str) -> bool:
        """Count a new session; False if there is no room."""
        if not self.has_room(principal):
            return False
        self._by_principal[principal] += 1
        self.opened += 1
        return True

    def leave(self, principal: str) -> None:
        """Count the end of a session."""
        self._by_principal[principal] -= 1
        if not self._by_principal[principal]:
            del self._by_principal[principal]
