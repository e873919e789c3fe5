"""The limits of open sessions: of all together, and of one principal."""

from collections import Counter

from coretools.web.common.config import LimitsSection


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

    def __init__(self, limits: LimitsSection, watcher: SessionWatcher | None = None) -> None:
        """`watcher` is notified about every session."""
        self.limits = limits
        """Of later sessions; a reload replaces them."""
        self.watcher = watcher or SessionWatcher()
        self._by_principal: Counter[str] = Counter()

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
        return not self.is_full and self._by_principal[principal] < self.limits.session_share

    def enter(self, principal: str) -> bool:
        """Count a new session; False if there is no room."""
        if not self.has_room(principal):
            return False
        self._by_principal[principal] += 1
        return True

    def leave(self, principal: str) -> None:
        """Count the end of a session."""
        self._by_principal[principal] -= 1
        if not self._by_principal[principal]:
            del self._by_principal[principal]
