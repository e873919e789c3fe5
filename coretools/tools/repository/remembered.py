"""Looks at repositories that still hold: nothing that they saw has changed since.

A look lists directories, which may wait for a disk, and so takes a worker thread. Thread and look are a fourth of what
a status costs beyond git's own time. Whether an earlier one still holds is told by the signatures of what decided it,
which the kernel gives without waiting where it has them in memory (docs/adr/0036).
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from time import time_ns
from typing import Generic, TypeVar

from coretools.sandbox.at_once import (
    Signatures,
    attempted,
    can_read_at_once,
    open_directory_at_once,
    opened_at_once,
    signatures,
    signatures_at_once,
)
from coretools.sandbox.inside import are_kinds
from coretools.sandbox.reading import Directory
from coretools.sandbox.roots import Place, Roots
from coretools.sandbox.signature import mount_of, stamp_from
from coretools.tools.repository.configuration import CONFIG, CONFIG_WORKTREE, REMEMBERED

GIT = ".git"

ENTRIES = 200
"""Most entries of a git directory that is remembered; a fresh one has 10."""
LISTED_BYTES = 16 * 1024
"""Largest such directory: one that was full once is slow to list for ever."""

_ALTERNATES = "objects/info/alternates"
_DECIDING = (CONFIG, CONFIG_WORKTREE, "info", "objects", "objects/info", _ALTERNATES, "objects/pack")
"""What a look at a git directory opens, in it. A directory's signature changes with every name in it that comes, goes
or means something else. Not its own: with every `git status` of anybody a lock comes and goes in it."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Sight:
    """What decides a look, as it was at one moment."""

    taken_ns: int
    signatures: Signatures
    """Of the git directory, and of what decides in it."""
    mount: bytes
    """Of the work tree."""

    @property
    def deciding(self) -> Signatures:
        """Without the git directory itself."""
        return self.signatures[1:]

    @property
    def is_lasting(self) -> bool:
        """Whether all lies on one mount, and whatever changes from then on will show."""
        return all(signed is None or mount_of(signed) == self.mount for signed in self.signatures) and all(
            signed is None or stamp_from(signed).is_settled(self.taken_ns) for signed in self.deciding
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

    def sight(self, work_tree: int, git_directory: int) -> Sight | None:
        """To be taken before a look: what changes underneath it shows afterwards. None where none is remembered."""
        if not can_read_at_once(self._roots):
            return None
        taken_ns = time_ns()
        top = signatures(self._roots, work_tree, (".",))
        found = signatures(self._roots, git_directory, (".", *_DECIDING))
        return None if top is None or found is None or top[0] is None else Sight(taken_ns, found, mount_of(top[0]))

    def keep(self, place: Place, sight: Sight | None, entries: Mapping[str, str], found: Found) -> None:
        """Remember what a look found that began after the sight was taken, in a git directory of these entries."""
        key = (place.root.path, place.relative)
        with self._lock:
            self._known.pop(key, None)
            if sight is not None and sight.is_lasting and len(entries) <= ENTRIES:
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
        if known is None:
            return None
        sight, entries, found = known
        opening = opened_at_once(directory.fd, GIT, mount=sight.mount, most_bytes=LISTED_BYTES)
        handle = stack.enter_context(opening)
        if handle is None or signatures_at_once(handle, _DECIDING) != sight.deciding:
            return None
        return Held(directory, handle, found) if are_kinds(handle, entries) else None
