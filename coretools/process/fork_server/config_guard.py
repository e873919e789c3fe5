"""Take back what a command may have put into a git configuration while a process outside replaced the file.

git writes `config.lock` and renames it. A command that polls can open the new file before its cover is mounted, under
either name, and keep it open (docs/adr/0045). So while commands run, a file that was replaced is compared with what it
was before: settings by which git starts programs or connects elsewhere become comments. When they come back again and
again, the commands are ended.
"""

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial

from coretools.confinement.git_copies import MAX_CONFIG_BYTES
from coretools.errors import GitRefused
from coretools.process.fork_server import git_lock
from coretools.regular_file import read_regular
from coretools.roots.file_version import Version, version_of
from coretools.roots.git_config import NotWritable, Setting, Values, edit, parse, serialize, values_of
from coretools.roots.git_programs import RUNS_OR_REDIRECTS, kind_of
from coretools.roots.hidden_inodes import Inode, inode_of
from coretools.roots.path_text import printable
from coretools.roots.root_set import Roots
from coretools.truncation import and_more

CHECK_SECONDS = 0.25
"""Between two checks while commands run. Each costs a stat for every configuration."""
RETRY_SECONDS = 0.02
"""Until the next check while somebody holds git's lock on a file that must be repaired or was open to commands."""
LOCKED_SECONDS = 2.0
"""Such a lock is respected so long. git holds it for some milliseconds, a command for ever."""
MAX_REPAIRS = 3
REPAIR_SECONDS = 10.0
"""Repairs of one file in this time while commands run. One that needs another one is being attacked."""
MAX_NAMED = 10
_NEVER_READ = Version(0, 0, 0, 0, 0)

REMOVED = (
    "settings by which git starts programs or connects elsewhere appeared in git's configuration while commands ran and"
    " the file was replaced; they are comments there now, to be restored by hand while no command runs"
)
COMMENT = (
    "# coretools: these settings appeared while a command of an agent ran, and git starts programs or connects\n"
    "# elsewhere by them. If they are yours, remove the marks while no command runs.\n"
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Accepted:
    """A configuration as it was when no command could have changed it."""

    identity: Inode | None
    version: Version
    """At the last check."""
    settings: Values
    """The values of the keys by which git starts programs or connects elsewhere."""
    is_replaced: bool = False
    """Whether the file was replaced since: from then on a command may have it open."""
    repairs: list[float] = field(default_factory=list)
    """When it was repaired lately, in monotonic time."""
    locked_since: float | None = None
    """When somebody else was first found to hold the lock, in monotonic time."""
    has_lock: bool = False
    """Whether git's lock was there at the last check."""


class ConfigGuard:
    """Checks the configurations of repositories while commands run, and shortly after."""

    def __init__(self, roots: Roots, end_commands: Callable[[], object]) -> None:
        self._roots = roots
        self._end_commands = end_commands
        self._accepted: dict[str, _Accepted] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._are_running = False
        self._ended = 0.0
        """When the last command ended, in monotonic time."""
        self._notes: list[str] = []

    def see(self, paths: Iterable[str]) -> None:
        """Accept configurations that were not known."""
        for path in paths:
            if path not in self._accepted:
                self._accept(path)

    def repair_new(self, paths: Iterable[str], *, is_last: bool = False) -> None:
        """Take back what starts programs in configurations that did not exist before commands ran.

        `is_last`: `close` follows, in whatever thread, and checks.
        """
        new = {path: _Accepted(None, _NEVER_READ, {}, is_replaced=True) for path in paths if path not in self._accepted}
        self._accepted |= new
        if new and not is_last:
            self.check()
            if not self._are_running:
                self._stop_unless_locked()

    def commands_start(self) -> None:
        """Accept what was not replaced while commands ran before, and check everything from now on."""
        self._are_running = True
        for path, known in tuple(self._accepted.items()):
            if not known.is_replaced:
                self._accept(path)
        if self._timer is None:
            self._schedule()

    def commands_ended(self) -> None:
        """Check once more, and until each lock that is there now is released: git took it while a command ran.

        What git replaces under a later lock, no command has had open.
        """
        self._are_running = False
        self._ended = time.monotonic()
        self.check()
        self._stop_unless_locked()

    def close(self) -> None:
        """Check a last time, when nothing runs any more; may be called from any thread."""
        self._ended = 0.0
        self.check(ignores_locks=True)

    def check(self, *, ignores_locks: bool = False) -> None:
        """Compare every configuration with what was accepted, and repair it."""
        for path, known in tuple(self._accepted.items()):
            with suppress(OSError, GitRefused, NotWritable):
                self._check(path, known, ignores_locks=ignores_locks)

    def notes(self) -> list[str]:
        """Return a sentence about what was repaired since the last call, for the result of a command."""
        repaired, self._notes = self._notes, []
        return [f"{REMOVED}: {and_more(repaired[:MAX_NAMED], len(repaired))}"] if repaired else []

    @property
    def _is_locked(self) -> bool:
        """Whether a file waits for a repair, or may yet be replaced by one that a command had open."""
        waits = not self._are_running and time.monotonic() < self._ended + LOCKED_SECONDS
        return any(known.locked_since is not None or (waits and known.has_lock) for known in self._accepted.values())

    def _schedule(self) -> None:
        seconds = CHECK_SECONDS if self._are_running and not self._is_locked else RETRY_SECONDS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.check()
        if self._are_running:
            self._schedule()
        else:
            self._stop_unless_locked()

    def _stop_unless_locked(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_locked:
            self._schedule()
            return
        for known in self._accepted.values():
            known.is_replaced = False

    def _directory(self, path: str) -> AbstractContextManager[tuple[int, str]]:
        """Open the directory of a file; yield it with the file's name."""
        place = self._roots.split(path)
        if place is None or not place.root.writable:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._roots.open_parent(place)

    def _accept(self, path: str) -> None:
        with suppress(OSError, GitRefused), self._directory(path) as (directory, name):
            known = self._accepted.get(path)
            if (
                known is not None
                and version_of(os.stat(name, dir_fd=directory, follow_symlinks=False)) == known.version
            ):
                return
            identity = inode_of(name, directory)
            data, status = read_regular(name, MAX_CONFIG_BYTES, directory=directory)
            accepted = _Accepted(identity, version_of(status), _values(data))
            if known is None or inode_of(name, directory) == identity:
                self._accepted[path] = accepted
            else:  # the user's git is replacing it just now
                known.is_replaced = True

    def _check(self, path: str, known: _Accepted, *, ignores_locks: bool) -> None:
        with self._directory(path) as (directory, name):
            # The lock first: one that is released meanwhile has changed the version.
            known.has_lock = _is_there(f"{name}.lock", directory)
            if version_of(os.stat(name, dir_fd=directory, follow_symlinks=False)) == known.version:
                return
            before = inode_of(name, directory)
            data, status = read_regular(name, MAX_CONFIG_BYTES, directory=directory)
            # The inode number alone is no identity: git's next file often has that of the last one.
            is_same = before is not None and before == inode_of(name, directory) == known.identity
            known.is_replaced = known.is_replaced or not is_same
            values = _values(data)
            if not known.is_replaced:  # written in place, by an editor: commands can't reach that file
                known.settings = values
            elif added := _added(values, known.settings):
                self._repair(directory, name, known, ignores_locks=ignores_locks)
                self._report(path, added)
            # That of the file which was read: what is there by now, after a repair too, is read by the next check.
            known.version, known.locked_since = version_of(status), None
        if self._are_running and len(known.repairs) > MAX_REPAIRS:
            logger.warning("%s: these settings come back again and again; commands are ended", printable(path))
            self._end_commands()

    def _repair(self, directory: int, name: str, known: _Accepted, *, ignores_locks: bool) -> None:
        change = partial(_without_added, accepted=known.settings)
        try:
            git_lock.replace(directory, name, change)
        except FileExistsError:
            known.locked_since = known.locked_since or time.monotonic()
            if time.monotonic() < known.locked_since + LOCKED_SECONDS and not ignores_locks:
                raise
            git_lock.replace_without_lock(directory, name, change)
        now = time.monotonic()
        known.repairs = [*(one for one in known.repairs if now - one < REPAIR_SECONDS), now]

    def _report(self, path: str, added: Values) -> None:
        place = self._roots.split(path)
        shown = path if place is None else self._roots.display_path(place)
        for key in added:
            self._notes.append(f"{printable(key)[:120]} ({shown})")
            logger.warning("%s: %s: %s", printable(path), REMOVED, printable(key)[:120])


def _is_there(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _values(data: bytes) -> Values:
    """Return the values of the keys by which git starts programs or connects elsewhere."""
    dangerous = [one for one in parse(data, "config") if (kind := kind_of(one)) and kind[0] in RUNS_OR_REDIRECTS]
    return values_of(dangerous)


def _added(current: Values, accepted: Values) -> dict[str, tuple[str | None, ...]]:
    """Return the keys with a value that they did not have before, and these values."""
    new = {key: tuple(one for one in values if one not in accepted.get(key, ())) for key, values in current.items()}
    return {key: values for key, values in new.items() if values}


def _without_added(data: bytes, *, accepted: Values) -> bytes:
    """Give the keys of `_added` their accepted values, and append the others as comments."""
    added = _added(_values(data), accepted)
    text = edit(data, {key: accepted.get(key, ()) for key in added})
    lines = serialize([Setting(key, value) for key, values in added.items() for value in values])
    note = COMMENT.encode() + b"".join(b"# " + line for line in lines.splitlines(keepends=True))
    # Once is enough: a command may bring them back any number of times.
    return text if note in text else text + (b"" if text.endswith(b"\n") else b"\n") + note
