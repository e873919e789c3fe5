"""The state that the console shows: calls and refusals are recorded as they come, the rest is read for each snapshot.

Everything is bounded. Texts of tools and clients are cut, and credentials are redacted when they are shown.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from coretools.distribution import VERSION
from coretools.errors import InputNeeded
from coretools.operations.dispatch import ActiveCall, Outcome
from coretools.redaction.redactor import Redactor
from coretools.web.common.events import Exchange, RequestWatcher, outcome_label
from coretools.web.observability.snapshots import SessionSnapshot, SnapshotSource, TenantSnapshot

WINDOW_SECONDS = 300
"""Time that rates cover."""

POINT_SECONDS = 5
"""Time of one point of a graph."""

RATE_SECONDS = 10
"""Time that the number above the graph averages."""

MOST_SHOWN = 50
"""Largest number of calls, sessions and errors shown; the total is always shown."""

LONGEST_TEXT = 300
LONGEST_NAME = 100
ID_SHOWN = 8
"""Characters of a session id shown: enough to distinguish two, too few to use one."""


class RateWindow:
    """Counts events in each of the last seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts = [0] * WINDOW_SECONDS
        self._seconds = [-1] * WINDOW_SECONDS
        """The second of each count."""

    def add(self) -> None:
        """Count an event."""
        second = int(self._clock())
        place = second % WINDOW_SECONDS
        if self._seconds[place] != second:
            self._seconds[place], self._counts[place] = second, 0
        self._counts[place] += 1

    def points(self) -> list[int]:
        """Return the counts of each part of the window, oldest first, without the current second."""
        now = int(self._clock())
        return [
            sum(self._at(second) for second in range(start, start + POINT_SECONDS))
            for start in range(now - WINDOW_SECONDS, now, POINT_SECONDS)
        ]

    def per_second(self) -> float:
        """Return the mean of the last full seconds."""
        now = int(self._clock())
        return sum(self._at(second) for second in range(now - RATE_SECONDS, now)) / RATE_SECONDS

    def _at(self, second: int) -> int:
        place = second % WINDOW_SECONDS
        return self._counts[place] if self._seconds[place] == second else 0


class ConsoleState(RequestWatcher):
    """The state of a server for the console. Observes requests; `calls` creates the observer of a role's calls."""

    def __init__(self, source: SnapshotSource, redactor: Redactor, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._redactor = redactor
        self._clock = clock
        self._began = clock()
        self._under_way: dict[str, tuple[ActiveCall, str]] = {}
        self._errors: deque[_FailedCall] = deque(maxlen=MOST_SHOWN)
        self._failures = 0
        self._calls, self._failed, self._refused = RateWindow(clock), RateWindow(clock), RateWindow(clock)

    def calls(self, role: str) -> "ConsoleCallWatcher":
        """Create the observer of a role's calls."""
        return ConsoleCallWatcher(self, role)

    def call_began(self, call: ActiveCall, role: str) -> None:
        """Show the call until it ends."""
        self._under_way[call.id] = call, role

    def call_ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Count the call and keep it if it failed. A question to the client or a cancelled call is not a failure."""
        self._under_way.pop(call.id, None)
        self._calls.add()
        if outcome is None or outcome.error is None or isinstance(outcome.error, InputNeeded):
            return
        self._failed.add()
        self._failures += 1
        self._errors.append(_FailedCall(self._failures, call, outcome_label(outcome), outcome.text))

    def request_ended(self, exchange: Exchange) -> None:
        """Count a refusal; answered requests are counted as calls."""
        if exchange.refused:
            self._refused.add()

    def snapshot(self) -> dict[str, Any]:
        """Return everything that the console shows, for JSON."""
        server, sessions = self._source.server(), self._source.sessions()
        return {
            "server": {
                "version": VERSION,
                "replica": server.replica[:LONGEST_NAME],
                "stores": server.stores,
                "are_stores_fine": server.are_stores_fine,
                "is_draining": server.is_draining,
                "up_seconds": round(self._clock() - self._began),
            },
            "rates": {
                "seconds": WINDOW_SECONDS,
                "calls": _line(self._calls),
                "errors": _line(self._failed),
                "refusals": _line(self._refused),
            },
            "calls": self._calls_shown(),
            "sessions": _sessions_shown(sessions),
            "tenants": [_tenant_shown(tenant) for tenant in self._source.tenants()],
            "errors": {"count": self._failures, "shown": [self._error_shown(one) for one in reversed(self._errors)]},
        }

    def _calls_shown(self) -> dict[str, Any]:
        shown = [
            {
                "id": call.id,
                "tool": call.command[:LONGEST_NAME],
                "principal": call.principal[:LONGEST_NAME],
                "role": role,
                "seconds": round(call.seconds, 1),
            }
            for call, role in list(self._under_way.values())[:MOST_SHOWN]
        ]
        return {"count": len(self._under_way), "shown": shown}

    def _error_shown(self, failed: "_FailedCall") -> dict[str, Any]:
        if failed.shown is None:
            failed.shown = {
                "number": failed.number,
                "id": failed.call.id,
                "tool": failed.call.command[:LONGEST_NAME],
                "principal": failed.call.principal[:LONGEST_NAME],
                "kind": failed.kind,
                "text": self._redactor.text(failed.text),
                "at": round(failed.at),
            }
        return failed.shown


class ConsoleCallWatcher:
    """Observes the calls of one role."""

    def __init__(self, console_state: ConsoleState, role: str) -> None:
        self._console_state = console_state
        self._role = role

    def began(self, call: ActiveCall) -> None:
        """Show the call."""
        self._console_state.call_began(call, self._role)

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Count the call, and keep it if it failed."""
        self._console_state.call_ended(call, outcome)


class _FailedCall:
    """A failed call. Its text is redacted when it is shown, not when the call fails."""

    __slots__ = ("at", "call", "kind", "number", "shown", "text")

    def __init__(self, number: int, call: ActiveCall, kind: str, text: str) -> None:
        self.number = number
        self.call = call
        self.kind = kind
        # Cut between words: half a credential would not be recognized and would be shown.
        self.text = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT].rpartition(' ')[0]} ..."
        self.at = time.time()
        self.shown: dict[str, Any] | None = None


def _line(rate: RateWindow) -> dict[str, Any]:
    return {"per_second": round(rate.per_second(), 1), "points": rate.points()}


def _sessions_shown(sessions: Sequence[SessionSnapshot]) -> dict[str, Any]:
    shown = [
        {
            "id": session.id[:ID_SHOWN],
            "principal": session.principal[:LONGEST_NAME],
            "role": session.role,
            "age_seconds": round(session.age_seconds),
            "idle_seconds": round(session.idle_seconds),
        }
        for session in sessions[:MOST_SHOWN]
    ]
    return {"count": len(sessions), "shown": shown}


def _tenant_shown(tenant: TenantSnapshot) -> dict[str, Any]:
    return {
        "role": tenant.role,
        "roots": [{"name": root.name[:LONGEST_NAME], "is_writable": root.is_writable} for root in tenant.roots],
        "resolver": tenant.resolver,
        "tier": tenant.tier,
        "missing": list(tenant.missing),
        "children": tenant.children,
        "runs": tenant.runs,
    }
