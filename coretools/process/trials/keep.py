"""Apply to the roots what a command on trial changed: each entry by a rename, observed by what records it for undo.

Nothing newer is overwritten: if anything that the trial touched was changed in the roots since it began, nothing is
applied. The overlay has kept the command from everything that is closed to it, so what is applied is what the command
could have done itself; only set-user-ID and set-group-ID bits are left out.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field

from coretools.confinement.trial_view import TrialView
from coretools.errors import Conflict, CoreError, InputOutput
from coretools.process.trials.differences import OWN, Budget, Difference, differences, statuses_beneath
from coretools.roots.change_observer import ChangeObserver, Entry, NoObserver
from coretools.roots.delete import delete_tree
from coretools.roots.directory_access import translate_errors
from coretools.roots.path_locks import LOCKS
from coretools.roots.replace import rename_no_replace
from coretools.roots.root import RootedPath, identity_of
from coretools.roots.root_set import Roots
from coretools.roots.write import NOT_RECORDED
from coretools.truncation import and_more
from coretools.undo.entry_state import READ

_NAMED = 10
"""Paths that an error names."""

TOOL = "end_trial"
"""Name of the change in the journal."""


@dataclass(slots=True)
class Kept:
    """What was applied."""

    counts: Counter[str] = field(default_factory=Counter)
    """Number of entries, by what was done."""
    change: int = 0
    """Id of the change in the journal; 0 where none is kept."""
    remarks: tuple[str, ...] = ()
    changed_control_files: tuple[str, ...] = ()


def keep(roots: Roots, changes: ChangeObserver, view: TrialView, budget: Budget, *, mark_ns: int, summary: str) -> Kept:
    """Apply a trial that nothing uses any more; `mark_ns` is when it began, by the clock of its file system. Blocks.

    `roots` include the repositories that only git may use, whose changes are not recorded.

    Raises:
        Conflict: something was changed meanwhile, or can't be kept for undo; nothing was applied.
        InputOutput: a part was applied, and why no more.
    """
    _require_applicable(roots, view, budget, mark_ns, is_recorded=not isinstance(changes, NoObserver))
    applying = _Application(roots, changes, mark_ns)
    with changes.operation(TOOL, summary):
        try:
            for layer in view.layers:
                with closing(differences(layer, Budget(budget.entries, budget.size))) as found_differences:
                    for difference in found_differences:
                        applying.apply(difference)
        except (CoreError, OSError) as error:
            done = applying.result.counts.total()
            way_back = f"; undo change={changes.last} takes them back" if changes.last else ""
            raise InputOutput(f"{error}; {done} changes of the trial were made before that{way_back}") from error
        finally:
            applying.finish()
    applying.result.change = changes.last
    return applying.result


def _require_applicable(roots: Roots, view: TrialView, budget: Budget, mark_ns: int, *, is_recorded: bool) -> None:
    """Refuse a trial that touched what was changed in the roots since it began, or what can't be kept for undo.

    By the time of change, which no program can set: stamps of the whole root would cost 222 ms for 50,000 files.

    Raises:
        Conflict, PermissionRefused.
    """
    found, unreadable = list[str](), list[str]()
    for layer in view.layers:
        with closing(differences(layer, Budget(budget.entries, budget.size))) as every:
            for one in every:
                place = RootedPath(one.root, one.path)
                if one.what != "touched" and _is_conflict(roots, one, place, mark_ns):
                    found.append(roots.display_path(place))
                elif is_recorded and one.what != "touched" and _is_unreadable(roots, one, place):
                    unreadable.append(roots.display_path(place))
    if found:
        raise Conflict(
            f"nothing was kept: changed since the trial began: {and_more(found[:_NAMED], len(found))}; run the command"
            " again, on trial or not, and discard this trial"
        )
    if unreadable:
        names = and_more(unreadable[:_NAMED], len(unreadable))
        raise Conflict(
            f"nothing was kept: undo could not bring back what can't be read: {names}; change the permissions, or run"
            " the command without trial"
        )


def _is_conflict(roots: Roots, one: Difference, place: RootedPath, mark_ns: int) -> bool:
    if one.below is None:  # what it was copied from is gone, unless the command moved it here
        return one.is_copy and one.directory_changed_ns > mark_ns
    if one.what == "added" or one.below.st_ctime_ns > mark_ns:
        return True
    if not _is_taken_away(one):
        return False
    if roots.holds_root(place) or roots.holds_own_state(place):
        return True
    return any(status.st_ctime_ns > mark_ns for status in _beneath(roots, place))


def _is_unreadable(roots: Roots, one: Difference, place: RootedPath) -> bool:
    """Whether something that would be replaced or deleted can't be read by its owner."""
    if os.geteuid() == 0 or one.below is None:
        return False
    beneath = _beneath(roots, place) if _is_taken_away(one) else ()
    return any(stat.S_ISREG(status.st_mode) and not status.st_mode & stat.S_IRUSR for status in (one.below, *beneath))


def _is_taken_away(one: Difference) -> bool:
    """Whether a whole directory of the root would be deleted."""
    return one.what in ("deleted", "replaced") and one.below is not None and stat.S_ISDIR(one.below.st_mode)


def _beneath(roots: Roots, place: RootedPath) -> Iterator[os.stat_result]:
    display_path = roots.display_path(place)
    try:
        with translate_errors(display_path), roots.open_parent(place) as (directory, name):
            yield from statuses_beneath(directory, name)
    except RecursionError as error:
        raise Conflict(f"nothing was kept: {display_path} has directories nested too deep to be compared") from error


class _Application:
    def __init__(self, roots: Roots, changes: ChangeObserver, mark_ns: int) -> None:
        self._roots = roots
        self._changes = changes
        self._mark_ns = mark_ns
        self._modes: list[tuple[RootedPath, int]] = []
        """Directories, and the permissions that they get when everything in them is done."""
        self._times: dict[RootedPath, int] = {}
        self.result = Kept()

    def apply(self, one: Difference) -> None:
        """Apply one difference.

        Raises:
            CoreError, OSError: it could not be applied.
        """
        roots, place = self._roots, RootedPath(one.root, one.path)
        display_path = roots.display_path(place)
        roots.require_present(one.root)
        roots.require_writable(one.root, display_path)
        changes = NOT_RECORDED if one.root.only_git else self._changes
        with self._opened(place, display_path) as here:
            _require_unchanged(one, here, display_path)
            if one.what == "touched" and one.is_directory:
                self._times[place] = one.above.st_mtime_ns
                return
            if one.what == "touched":
                if one.below is not None and one.below.st_ctime_ns <= self._mark_ns:
                    times = one.above.st_atime_ns, one.above.st_mtime_ns
                    changes.before_metadata(here, modified_ns=one.above.st_mtime_ns)
                    os.utime(here.name, ns=times, dir_fd=here.directory, follow_symlinks=False)
                    self.result.counts["touched"] += 1
                return
            # Before anything is renamed out of it.
            above = RootedPath(one.root, one.path.rpartition("/")[0] or ".")
            self._times.setdefault(above, os.fstat(one.directory).st_mtime_ns)
            if one.what in ("deleted", "replaced"):
                self._remove(one, here, display_path, changes)
            if one.what != "deleted":
                self._put(one, here, changes)
        self.result.counts[one.what] += 1
        if one.what != "deleted" and one.is_directory:
            self._times[place] = one.above.st_mtime_ns

    def finish(self) -> None:
        """Give directories the times and permissions that they have in the trial, the innermost first."""
        for place, modified_ns in sorted(self._times.items(), key=lambda one: -len(one[0].relative)):
            with suppress(OSError):
                if place.relative == ".":
                    os.utime(".", ns=(modified_ns, modified_ns), dir_fd=place.root.fd)
                    continue
                with self._roots.open_parent(place) as (directory, name):
                    os.utime(name, ns=(modified_ns, modified_ns), dir_fd=directory, follow_symlinks=False)
        for place, mode in reversed(self._modes):
            with suppress(OSError), self._roots.open_parent(place) as (directory, name):
                if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                    os.chmod(name, mode, dir_fd=directory)

    @contextmanager
    def _opened(self, place: RootedPath, display_path: str) -> Iterator[Entry]:
        with translate_errors(display_path), self._roots.open_parent(place) as (directory, name):
            key = (*identity_of(os.fstat(directory)), name.casefold())
            with LOCKS.hold(lambda: frozenset({key})):
                yield Entry(directory, name, place)

    def _remove(self, one: Difference, here: Entry, display_path: str, changes: ChangeObserver) -> None:
        if one.below is not None and stat.S_ISDIR(one.below.st_mode):
            delete_tree(self._roots, here.place, here.directory, display_path=display_path, changes=changes)
            return
        changes.before_removal([here])
        os.unlink(here.name, dir_fd=here.directory)

    def _put(self, one: Difference, here: Entry, changes: ChangeObserver) -> None:
        """Put the new entry in its place."""
        mode = one.above.st_mode
        if stat.S_ISDIR(mode):
            if one.what != "changed":
                changes.before_new_directory(here)
                os.mkdir(here.name, 0o700, dir_fd=here.directory)
            status = os.stat(here.name, dir_fd=here.directory, follow_symlinks=False)
            special = status.st_mode & (stat.S_ISUID | stat.S_ISGID)
            if one.what == "changed":
                changes.before_metadata(here, mode=stat.S_IMODE(mode) & 0o1777 | special)
            os.chmod(here.name, stat.S_IMODE(mode) & 0o1777 | special | 0o700, dir_fd=here.directory)
            self._modes.append((here.place, stat.S_IMODE(mode) & 0o1777 | special))
        elif stat.S_ISREG(mode):
            _put_file(one, here, changes)
        else:
            if stat.S_ISLNK(mode):
                if one.what == "changed":
                    changes.before_removal([here])
                    os.unlink(here.name, dir_fd=here.directory)
                changes.before_new_link(here, os.readlink(one.name, dir_fd=one.directory))
            rename_no_replace(one.directory, one.name, here.directory, here.name)


def _put_file(one: Difference, here: Entry, changes: ChangeObserver) -> None:
    """Rename a file into its place, without the overlay's attributes and without special permissions."""
    mode = stat.S_IMODE(one.above.st_mode)
    if mode & 0o600 != 0o600:  # to read it, and to change its attributes (xattr(7))
        os.chmod(one.name, mode | 0o600, dir_fd=one.directory)
    with ExitStack() as opened:
        fd = os.open(one.name, READ, dir_fd=one.directory)
        opened.callback(os.close, fd)
        for name in [name for name in os.listxattr(fd) if name.startswith(OWN)]:
            os.removexattr(fd, name)
        os.fchmod(fd, mode & 0o777)
        changes.before_write(here, fd, is_linked=True)
        if one.what == "changed":
            os.rename(one.name, here.name, src_dir_fd=one.directory, dst_dir_fd=here.directory)
        else:
            rename_no_replace(one.directory, one.name, here.directory, here.name)


def _require_unchanged(one: Difference, here: Entry, display_path: str) -> None:
    try:
        now = os.stat(here.name, dir_fd=here.directory, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    was = one.below
    is_same = (now is None) == (was is None)
    if now is not None and was is not None:
        is_same = identity_of(now) == identity_of(was) and (
            stat.S_ISDIR(now.st_mode) or now.st_ctime_ns == was.st_ctime_ns
        )
    if not is_same:
        raise Conflict(f"{display_path}: was changed while the trial was being kept")
