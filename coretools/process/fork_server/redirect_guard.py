"""Undo what commands leave in git directories by which the user's own git would read or write elsewhere.

Nothing can keep a command from making a link in a directory that it may write to. So what is there while no command
runs is accepted, and what is new after one is removed.
"""

import os
from collections.abc import Sequence
from contextlib import suppress

from coretools.confinement.git_redirects import COMMON_DIRECTORY, CONFIGURATION, Redirect, Redirects
from coretools.confinement.protected_paths import ControlFiles
from coretools.errors import GitRefused
from coretools.roots.hidden_inodes import inode_of
from coretools.roots.path_text import printable
from coretools.roots.root_set import Roots
from coretools.truncation import and_more

MAX_NAMED = 10

UNDONE = (
    "removed from git directories, since the user's own git would write or read through them (no link may appear there"
    " while a command runs, nor a commondir)"
)
NOT_UNDONE = "could not be removed, and the user's own git will write or read through them"

_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RedirectGuard:
    """Knows the redirects that were there while no command ran. Used by one thread at a time."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._accepted: dict[tuple[tuple[int, ...], str], Redirect] = {}
        """By identity of the git directory, which a command may move, and path in it."""
        self._tops: frozenset[tuple[int, ...]] = frozenset()
        """Identities of the git directories that were there then, among those of other control files."""
        self.is_unchecked = False
        """Whether a command ran since everything was checked."""
        self._undone: list[str] = []
        self._failed: list[str] = []

    def command_started(self) -> None:
        """Accept nothing more until `check` has found everything that commands left."""
        self.is_unchecked = True

    def accept(self, redirects: Redirects, control: ControlFiles) -> None:
        """Accept what is there, unless a command may have made it."""
        if not self.is_unchecked:
            self._tops = frozenset(control.values())
            self._accepted = {
                (control.get(one.top, ()), path.removeprefix(one.top)): Redirect("", one.target)
                for path, one in redirects.items()
            }

    def check(self, redirects: Redirects, inaccessible: Sequence[str], *, are_running: bool) -> tuple[bool, list[str]]:
        """Undo what is new in the git directories that were there before.

        Returns whether anything was done, so that the directories have to be listed again, and the new files
        `config.worktree`, which have to be searched for settings that start programs.
        """
        new = {
            path: one
            for path, one in redirects.items()
            if tuple(inode_of(one.top) or ()) in self._tops and self._before(path, one) != Redirect("", one.target)
        }
        is_changed = False
        for path in inaccessible:
            is_changed = self._open_up(path) or is_changed
        for path, one in new.items():
            if one.target is not None or path.endswith(f"/{COMMON_DIRECTORY}"):
                is_changed = self._undo(path, one) or is_changed
        if not (is_changed or are_running):
            self.is_unchecked = False
        return is_changed, [path for path, one in new.items() if one.target is None and path.endswith(CONFIGURATION)]

    def notes(self) -> list[str]:
        """Return sentences about what was undone since the last call, for the result of a command."""
        undone, failed, self._undone, self._failed = self._undone, self._failed, [], []
        return [
            f"{sentence}: {and_more(names[:MAX_NAMED], len(names))}"
            for sentence, names in ((UNDONE, undone), (NOT_UNDONE, failed))
            if names
        ]

    def _before(self, path: str, redirect: Redirect) -> Redirect | None:
        """Return what was accepted in place of a redirect."""
        return self._accepted.get((tuple(inode_of(redirect.top) or ()), path.removeprefix(redirect.top)))

    def _undo(self, path: str, redirect: Redirect) -> bool:
        place = self._roots.split(path)
        shown = printable(path if place is None else self._roots.display_path(place))
        if redirect.target is not None:
            shown += f" (a link to {printable(redirect.target)})"
        try:
            self._replace(path, redirect)
        except FileNotFoundError:
            return True
        except (OSError, GitRefused):
            self._failed.append(shown)
            return False
        self._undone.append(shown)
        return True

    def _replace(self, path: str, redirect: Redirect) -> None:
        """Remove an entry, or give it the target back that it had."""
        directory = self._open(os.path.dirname(path))
        name = os.path.basename(path)
        try:
            if redirect.target is not None and os.readlink(name, dir_fd=directory) != redirect.target:
                raise FileNotFoundError  # another one by now, for the next look
            try:
                os.unlink(name, dir_fd=directory)
            except PermissionError:
                _make_accessible(directory)
                os.unlink(name, dir_fd=directory)
            before = self._before(path, redirect)
            if before is not None and before.target is not None:
                os.symlink(before.target, name, dir_fd=directory)
        finally:
            os.close(directory)

    def _open_up(self, path: str) -> bool:
        """Let the server list a directory that a command made unreadable."""
        with suppress(OSError, GitRefused):
            directory = self._open(path)
            try:
                return _make_accessible(directory)
            finally:
                os.close(directory)
        return False

    def _open(self, path: str) -> int:
        place = self._roots.split(path)
        if place is None:
            raise FileNotFoundError(path)
        return self._roots.resolver.open(place.root.fd, place.relative, _HANDLE)


def _make_accessible(directory: int) -> bool:
    """Give the owner all rights for a directory; return whether they lacked any."""
    mode = os.fstat(directory).st_mode & 0o7777
    if mode & 0o700 == 0o700:
        return False
    os.chmod(f"/proc/self/fd/{directory}", mode | 0o700)
    return True
