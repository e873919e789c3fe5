"""What the running server tells of itself to metrics and console: sessions, workplaces, replica. Names and figures.

The service implements `Supplier`; nothing here reaches into it. A root is known by its name: where it lies on the host
is nobody's business but the operator's own file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

from coretools.confinement.domain import Domains
from coretools.errors import CoreError
from coretools.sandbox.roots import Root
from coretools.serving.assembly import Assembly


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSeen:
    """One session of the handshake era."""

    id: str
    principal: str
    role: str
    age_seconds: float
    idle_seconds: float
    """Since its last request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSeen:
    """A root, without its place on the host."""

    name: str
    is_writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkplaceSeen:
    """What a role has: roots, protections, and what runs for it."""

    role: str
    roots: tuple[RootSeen, ...]
    resolver: str
    tier: str
    """In which commands are held; empty until the first one was started or made ready."""
    missing: tuple[str, ...]
    """Names of protections that are not in force."""
    children: int
    runs: int
    """That outlive their call and have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSeen:
    """The server as a whole."""

    replica: str
    stores: str
    """What holds what replicas share: `memory` or `redis`."""
    are_stores_fine: bool = True
    is_draining: bool = False


class Supplier(Protocol):
    """Tells how things stand now. Is quick: asked at each look, in the event loop."""

    def sessions(self) -> Sequence[SessionSeen]:
        """Those that are open, oldest first."""
        ...

    def workplaces(self) -> Sequence[WorkplaceSeen]:
        """One for each role."""
        ...

    def server(self) -> ServerSeen:
        """The server as a whole."""
        ...


def workplace_seen(role: str, assembly: Assembly) -> WorkplaceSeen:
    """A role's workplace as it stands now."""
    protections = {**assembly.runner.protections, "git-confinement": _is_git_held(assembly.domains)}
    return WorkplaceSeen(
        role=role,
        roots=tuple(_roots(assembly.roots)),
        resolver=assembly.roots.resolver,
        tier=assembly.runner.tier or "",
        missing=tuple(name for name, holds in protections.items() if not holds),
        children=assembly.runner.running,
        runs=assembly.runs.alive,
    )


def _roots(roots: Iterable[Root]) -> Iterator[RootSeen]:
    """By the last part of their paths; of several with the same one the later ones have a number."""
    taken: Counter[str] = Counter()
    for root in roots:
        name = PurePath(root.path).name
        taken[name] += 1
        number = taken[name]
        yield RootSeen(name=name if number == 1 else f"{name} ({number})", is_writable=root.writable)


def _is_git_held(domains: Domains) -> bool:
    try:
        return domains.is_possible
    except CoreError:  # it can't be told now
        return False
