"""Looks at repositories that still hold: nothing that they saw has changed since.

A look lists directories, which may wait for a disk, and so takes a worker thread. Thread and look are a fourth of what
a status costs beyond git's own time. Whether an earlier one still holds is told by the stamps of what decided it, which
the kernel gives without waiting where it has them in memory (docs/adr/0036).
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from time import time_ns
from typing import Generic, TypeVar

from coretools.sandbox.at_once import (
    Stamps,
    attempted,
    can_read_at_once,
    open_directory_at_once,
    opened_at_once,
    stamps,
    stamps_at_once,
)
from coretools.sandbox.inside import are_kinds
from coretools.sandbox.reading import Directory
from coretools.sandbox.roots import Place, Roots
from coretools.tools.repository.configuration import CONFIG, CONFIG_WORKTREE, REMEMBERED

GIT = ".git"

ENTRIES = 200
"""Most entries of a git directory that is remembered; a fresh one has 10."""
LISTED_BYTES = 16 * 1024
"""Largest such directory: one that was full once is slow to list for ever."""

ALTERNATES = "objects/info/alternates"

_DECIDING = (CONFIG, CONFIG_WORKTREE, "info", "objects", "objects/info", ALTERNATES, "objects/pack")
"""What a look at a git directory opens, in it. A directory's stamp changes with every name in it that comes, goes or
means something else. Not its own: with every `git status` of anybody a lock comes and goes in it."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Sight:
    """What decides a look, as it was at one moment."""

    taken_ns: int
    stamps: Stamps | None
    """None: not to be had."""

    @property
    def is_settled(self) -> bool:
        """Whether whatever changes from then on will show in the stamps."""
        return self.stamps is not None and all(
            stamp is None or stamp.is_settled(self.taken_ns) for stamp in self.stamps
        )


@dataclass(frozen=True, slots=True)
class Held(Generic[Found]):
    """An earlier look that still holds, and handles of what it was about. Open as long as the call runs."""

    directory: Directory
    git_directory: int
    found: Found


class Looks(Generic[Found]):
    """What looks found, by the place of the work tree. Only of those whose `.git` is a directory of their own."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._lock = Lock()
        self._known: dict[tuple[str, str], tuple[Sight, Mapping[str, str], Found]] = {}

    def sight(self, git_directory: int) -> Sight:
        """To be taken before a look: what changes underneath it shows afterwards."""
        taken_ns = time_ns()
        found = stamps(self._roots, git_directory, _DECIDING) if can_read_at_once(self._roots) else None
        return Sight(taken_ns, found)

    def keep(self, place: Place, sight: Sight, entries: Mapping[str, str], found: Found) -> None:
        """Remember what a look found that began after the sight was taken, in a git directory of these entries."""
        key = (place.root.path, place.relative)
        with self._lock:
            self._known.pop(key, None)
            if sight.is_settled and len(entries) <= ENTRIES:
                self._known[key] = (sight, entries, found)
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]

    @contextmanager
    def held(self, repository: str) -> Iterator[Held[Found] | None]:
        """The look at the work tree `repository`, if it still holds and that can be told without waiting."""
        with ExitStack() as stack:
            with attempted(self._roots) as may_try:
                held = self._held(repository, stack) if may_try and self._known else None
            yield held

    def _held(self, repository: str, stack: ExitStack) -> Held[Found] | None:
        directory = open_directory_at_once(self._roots, repository)
        if directory is None:
            return None
        place = stack.enter_context(directory).place
        known = self._known.get((place.root.path, place.relative))
        handle = (
            None if known is None else stack.enter_context(opened_at_once(directory.fd, GIT, most_bytes=LISTED_BYTES))
        )
        if known is None or handle is None:
            return None
        sight, entries, found = known
        holds = stamps_at_once(handle, _DECIDING) == sight.stamps and are_kinds(handle, entries)
        return Held(directory, handle, found) if holds else None
