"""Name what git in commands staged, unstaged or committed outside the roots that are folders of a repository.

A folder shares index and HEAD with the rest of the work tree, so `git commit -a` and `git reset` in a command act on
what somebody else staged there. git has no hook before all of these, so the result says what happened and how to take
it back. What changes while no command runs is somebody else's and not reported.
"""

import logging
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

from coretools.errors import CoreError
from coretools.roots import directory_access
from coretools.roots.file_version import Version
from coretools.roots.path_text import printable
from coretools.tools.git.changes.position import born
from coretools.tools.git.changes.stash_commits import staged_tree
from coretools.tools.git.changes.writable import changed_names
from coretools.tools.git.repository.checkout import Checkout, display_paths, is_beneath
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import as_text, read_records
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import listed

_FILES = ("index", "HEAD", "logs/HEAD")
"""What git writes when it changes the index or moves HEAD."""

_MAX_MOVES = 50
"""Moves of HEAD that are examined."""
_REFLOG = ("log", "--walk-reflogs", "-z", "--format=tformat:%H%x00%gs", f"--max-count={_MAX_MOVES}", "HEAD", "--")

logger = logging.getLogger(__name__)

_Names = frozenset[bytes]


@dataclass(frozen=True, slots=True)
class _State:
    """Index and HEAD of a repository."""

    versions: tuple[Version | None, ...]
    """Those of `_FILES`; equal if nothing has changed."""
    commit: str
    tree: str
    """The tree of the index."""


@dataclass(frozen=True, slots=True)
class _Changes:
    """What changed outside the folders."""

    committed: _Names
    unstaged: _Names
    """What was staged, and is not any more, or with another content."""
    staged: _Names
    start: str
    """The commit before the new ones; "" if HEAD is elsewhere."""
    is_index_changed: bool
    """Whether the index has to be restored too."""


class OutsideFolder:
    """Watches the repositories of roots that are folders while commands run."""

    def __init__(self, repositories: Repositories, trees_above: Mapping[str, str]) -> None:
        """`trees_above` has the work tree above a root, by the path of the root."""
        self._opened = repositories.opened
        writable = {root.path for root in repositories.roots if root.writable}
        self._folders: dict[str, list[str]] = {}
        for root, tree in trees_above.items():
            if root in writable:
                self._folders.setdefault(tree, []).append(root.removeprefix(f"{tree}/"))
        self._known: dict[str, _State] = {}
        """The state that was read last, which holds as long as the versions of the files do."""
        self._unreported: dict[str, _State | None] = {}
        """What was there before commands that were cancelled, so that nobody was told what they did."""

    @asynccontextmanager
    async def command(self) -> AsyncIterator[Callable[[], Awaitable[Sequence[str]]]]:
        """Record the state before a command; yield a function that returns the sentences for its result."""
        unreported, self._unreported = self._unreported, {}
        try:
            states = {tree: unreported.get(tree) or await self._state(tree) for tree in self._folders}
        except BaseException:
            self._unreported = unreported | self._unreported
            raise
        what = "this command, or one before it without a result," if unreported else "the command"
        was_checked = False

        async def check() -> list[str]:
            nonlocal was_checked
            notes: list[str] = []
            for tree, before in states.items():
                now = await self._state(tree)
                if before is not None and now is not None and before != now:
                    notes += [f"while {what} ran, {note}" for note in await self._note(tree, before, now)]
            was_checked = True
            return notes

        try:
            yield check
        finally:
            if not was_checked:
                self._unreported = states | self._unreported  # that of the command which was cancelled first

    async def _state(self, tree: str) -> _State | None:
        """Return the state of a repository; None if it has none, with conflicts for example."""
        root, known = f"{tree}/{self._folders[tree][0]}", self._known.get(tree)
        try:
            async with self._opened(root) as opened:
                if known is not None and known.versions == _versions(opened.checkout):
                    return known
            async with self._opened(root, access=Access.GIT_DIRECTORY, is_exclusive=False) as opened:
                versions = _versions(opened.checkout)
                here = await born(opened)
                self._known[tree] = _State(versions, here.commit, await staged_tree(opened))
                return self._known[tree]
        except CoreError as error:
            logger.debug("%s: what commands do outside the roots is not reported: %s", printable(tree), error)
            return None

    async def _note(self, tree: str, before: _State, now: _State) -> list[str]:
        folders = self._folders[tree]
        try:
            async with self._opened(f"{tree}/{folders[0]}") as opened:
                changes = await self._changes(opened, folders, before, now)
                return _described(opened.checkout, folders, before, changes)
        except CoreError as error:
            logger.warning("%s: what a command did outside the roots is not known: %s", printable(tree), error)
            return []

    async def _changes(
        self, repository: OpenRepository, folders: Sequence[str], before: _State, now: _State
    ) -> _Changes:
        async def differing(one: str, other: str) -> _Names:
            names = [] if one == other else await changed_names(repository, one, other)
            return frozenset(name for name in names if not any(is_beneath(name, folder) for folder in folders))

        commits, start = await _new_commits(repository, before.commit) if before.commit != now.commit else ([], "")
        committed = frozenset[bytes]().union(*[await differing(parent, commit) for parent, commit in commits])
        replaced = await differing(before.tree, now.tree)
        unstaged = replaced & await differing(before.commit, before.tree)
        staged = (replaced - unstaged) & await differing(now.commit, now.tree)
        return _Changes(committed, unstaged, staged, start, bool(replaced & (committed | unstaged | staged)))


async def _new_commits(repository: OpenRepository, start: str) -> tuple[list[tuple[str, str]], str]:
    """Return the commits made since HEAD was at `start`, each with the one before; and where HEAD was before them.

    The latter is "" if HEAD was moved since in another way.
    """
    output = await repository.output(*_REFLOG)
    entries = [(as_text(commit), as_text(text)) for commit, text in read_records(output, 2)]
    commits: list[tuple[str, str]] = []
    back = ""
    is_latest = True
    for (commit, text), (parent, _) in pairwise(entries):
        if commit == start:
            break
        is_latest = is_latest and text.startswith("commit")
        back = parent if is_latest else back
        commits += [(parent, commit)] if text.startswith("commit") else []
    return commits, back


def _versions(checkout: Checkout) -> tuple[Version | None, ...]:
    return tuple(directory_access.entry_version(checkout.git_handle, name) for name in _FILES)


def _described(checkout: Checkout, folders: Sequence[str], before: _State, changes: _Changes) -> list[str]:
    """Return the sentence about changes outside the folders, with the commands that take them back."""

    def part(what: str, names: Iterable[bytes]) -> list[str]:
        paths = sorted(names)
        return [f"{what} {listed(display_paths(checkout, paths))}"] if paths else []

    parts = part("committed", changes.committed) + part("unstaged, or replaced in the index,", changes.unstaged)
    parts += part("staged", changes.staged)
    back = [f"git reset --soft {changes.start}"] if changes.committed and changes.start else []
    if changes.is_index_changed:
        others = " ".join(shlex.quote(f":(exclude,top){folder}") for folder in folders)
        back.append(f"git restore --staged --source={before.tree} -- :/ {others}")
    if not parts:
        return []
    sentence = f"git changed what is outside the root in {printable(checkout.directory.path)}:"
    how = f". If the command did it, this takes it back: {' && '.join(back)}" if back else ""
    then = "; then git commit -m MESSAGE . commits files of the root alone" if changes.committed and back else ""
    return [f"{sentence} {'; '.join(parts)}{how}{then}"]
