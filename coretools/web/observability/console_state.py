"""What the operator's page shows, gathered from those who know: calls and refusals as they come, the rest at each look.

Bounded in every direction. What tools and clients said is cut, and looked through for credentials when it is shown.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol

from coretools import __version__
from coretools.app.assembly import Assembly
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.errors import CoreError, InputNeeded
from coretools.operations.dispatch import ActiveCall, Outcome
from coretools.redaction.redactor import Redactor
from coretools.roots.root_set import Root
from coretools.web.common.events import Exchange, outcome_label

# What the running server reports to metrics and console: names and figures. `ServerState` implements
# `SnapshotSource`. A root is known by its name only: its path on the host stays in the operator's own files.


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSnapshot:
    """One session of the handshake era."""

    id: str
    principal: str
    role: str
    age_seconds: float
    idle_seconds: float
    """Since its last request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSnapshot:
    """A root, without its place on the host."""

    name: str
    is_writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSnapshot:
    """What a role has: roots, protections, and what runs for it."""

    role: str
    roots: tuple[RootSnapshot, ...]
    resolver: str
    tier: str
    """In which commands are held; empty until the first one was started or made ready."""
    missing: tuple[str, ...]
    """Names of protections that are not in force."""
    children: int
    runs: int
    """That outlive their call and have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSnapshot:
    """The server as a whole."""

    replica: str
    stores: str
    """What holds what replicas share: `memory` or `redis`."""
    are_stores_fine: bool = True
    is_draining: bool = False


class SnapshotSource(Protocol):
    """Tells how things stand now. Is quick: asked at each look, in the event loop."""

    def sessions(self) -> Sequence[SessionSnapshot]:
        """Those that are open, oldest first."""
        ...

    def tenants(self) -> Sequence[TenantSnapshot]:
        """One for each role."""
        ...

    def server(self) -> ServerSnapshot:
        """The server as a whole."""
        ...


def tenant_snapshot(role: str, assembly: Assembly) -> TenantSnapshot:
    """A role's tenant as it stands now."""
    protections = {**assembly.runner.protections, "git-confinement": _is_git_confined(assembly.confined_threads)}
    return TenantSnapshot(
        role=role,
        roots=tuple(_roots(assembly.roots)),
        resolver=assembly.roots.resolver_name,
        tier=assembly.runner.tier or "",
        missing=tuple(name for name, holds in protections.items() if not holds),
        children=assembly.runner.running,
        runs=assembly.runs.alive,
    )


def _roots(roots: Iterable[Root]) -> Iterator[RootSnapshot]:
    """By the last part of their paths; of several with the same one the later ones have a number."""
    taken: Counter[str] = Counter()
    for root in roots:
        name = PurePath(root.path).name
        taken[name] += 1
        number = taken[name]
        yield RootSnapshot(name=name if number == 1 else f"{name} ({number})", is_writable=root.writable)


def _is_git_confined(confined_threads: ConfinedThreadPool) -> bool:
    try:
        return confined_threads.is_possible
    except CoreError:  # it can't be told now
        return False


WINDOW_SECONDS = 300
"""That rates look back."""

POINT_SECONDS = 5
"""One point of a line."""

RATE_SECONDS = 10
"""That the figure above the line is the mean of."""

MOST_SHOWN = 50
"""Calls, sessions and errors; of more it is said how many there are."""

LONGEST_TEXT = 300
LONGEST_NAME = 100
ID_SHOWN = 8
"""Characters of a session's id: enough to tell two apart, too few to use one."""


class RateWindow:
    """How often something happened in each of the last seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts = [0] * WINDOW_SECONDS
        self._seconds = [-1] * WINDOW_SECONDS
        """Which second each count is of."""

    def add(self) -> None:
        """It happened."""
        second = int(self._clock())
        place = second % WINDOW_SECONDS
        if self._seconds[place] != second:
            self._seconds[place], self._counts[place] = second, 0
        self._counts[place] += 1

    def points(self) -> list[int]:
        """How often in each part of the window, the oldest first; the second that has not ended is left out."""
        now = int(self._clock())
        return [
            sum(self._at(second) for second in range(start, start + POINT_SECONDS))
            for start in range(now - WINDOW_SECONDS, now, POINT_SECONDS)
        ]

    def per_second(self) -> float:
        """The mean of the last full seconds."""
        now = int(self._clock())
        return sum(self._at(second) for second in range(now - RATE_SECONDS, now)) / RATE_SECONDS

    def _at(self, second: int) -> int:
        place = second % WINDOW_SECONDS
        return self._counts[place] if self._seconds[place] == second else 0


class ConsoleState:
    """The state of a server for a person. Watches requests itself; `calls` gives what watches those of a role."""

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
        """What watches the calls of a role."""
        return ConsoleCallWatcher(self, role)

    def call_began(self, call: ActiveCall, role: str) -> None:
        """Shown until it ends."""
        self._under_way[call.id] = call, role

    def call_ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Counted; kept if it failed. A question to the client is no failure, and no more is a call that was left."""
        self._under_way.pop(call.id, None)
        self._calls.add()
        if outcome is None or outcome.error is None or isinstance(outcome.error, InputNeeded):
            return
        self._failed.add()
        self._failures += 1
        self._errors.append(_FailedCall(self._failures, call, outcome_label(outcome), outcome.text))

    def request_began(self, exchange: Exchange) -> None:
        """Nothing to show yet."""

    def answer_began(self, exchange: Exchange) -> None:
        """Nothing to show yet."""

    def request_ended(self, exchange: Exchange) -> None:
        """Refusals are counted; what was answered is counted as a call."""
        if exchange.refused:
            self._refused.add()

    def snapshot(self) -> dict[str, Any]:
        """Everything there is to show now, for JSON."""
        server, sessions = self._source.server(), self._source.sessions()
        return {
            "server": {
                "version": __version__,
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
    """The watcher for the calls of one role."""

    def __init__(self, console_state: ConsoleState, role: str) -> None:
        self._console_state = console_state
        self._role = role

    def began(self, call: ActiveCall) -> None:
        """Show it."""
        self._console_state.call_began(call, self._role)

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Count it, and keep it if it failed."""
        self._console_state.call_ended(call, outcome)


class _FailedCall:
    """A call that failed. What it said is made ready when somebody looks, not when it fails."""

    __slots__ = ("at", "call", "kind", "number", "shown", "text")

    def __init__(self, number: int, call: ActiveCall, kind: str, text: str) -> None:
        self.number = number
        self.call = call
        self.kind = kind
        # Cut between words: half a token can't be told from a word, and would be shown.
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
