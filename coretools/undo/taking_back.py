"""Take back recorded changes: entry by entry, the last first, and only where nothing newer would be lost.

What is taken back is itself a recorded change, so that it can be taken back too.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING

from coretools.cancellation import check_cancelled
from coretools.errors import CoreError
from coretools.regular_file import temporary_file, write_all
from coretools.roots.change_observer import Entry
from coretools.roots.directory_access import translate_errors
from coretools.roots.editor_settings import require_no_existing_settings
from coretools.roots.git_directories import require_outside_git
from coretools.roots.path_locks import LOCKS
from coretools.roots.replace import TEMPORARY_PREFIX, rename_no_replace
from coretools.roots.root import ResolvedPath, RootedPath, identity_of
from coretools.roots.root_set import Roots
from coretools.undo.change import EntryChange
from coretools.undo.entry_state import BLOCK_BYTES, EntryState, state_at, state_of, state_of_open
from coretools.undo.recorder import MOST_DIGESTED, ChangeRecorder

if TYPE_CHECKING:
    from coretools.undo.journal import Journal


class _Kept(Exception):
    """An entry stays as it is, for this reason."""


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """An entry that was left as it is."""

    path: str
    reason: str
    entry: EntryChange


@dataclass(slots=True)
class TakenBack:
    """What an undo did, or would do."""

    restored: list[str] = field(default_factory=list)
    """Paths that have their former content again."""
    removed: list[str] = field(default_factory=list)
    """Paths that had been created."""
    moved: list[str] = field(default_factory=list)
    """Paths that are back under their former name."""
    kept: list[KeptEntry] = field(default_factory=list)


class Undo:
    """One undo of several entries."""

    def __init__(self, roots: Roots, recorder: ChangeRecorder, *, is_dry_run: bool = False) -> None:
        self._roots = roots
        self._recorder = recorder
        self._journal: Journal = recorder.journal
        self._is_dry_run = is_dry_run
        self._by_path = {root.path: root for root in roots}
        self._made: set[tuple[str, str]] = set()
        """Directories that this undo has created: what was in them is complete again."""
        self._times: list[tuple[RootedPath, int]] = []
        self._result = TakenBack()

    def take_back(self, entries: Sequence[EntryChange]) -> TakenBack:
        """Take back these entries, given in the order in which they were recorded."""
        done: list[EntryChange] = []
        try:
            for entry in reversed(entries):
                check_cancelled()
                if entry.undone_by is not None:
                    continue
                try:
                    if self._take_back(entry):
                        done.append(entry)
                except (_Kept, CoreError) as error:
                    path = self._shown(entry)
                    self._result.kept.append(KeptEntry(path, str(error).removeprefix(f"{path}: "), entry))
            whole = {entry.change for entry in done} - {one.entry.change for one in self._result.kept}
        except BaseException:  # cancelled: some of each change may be left
            whole = set[int]()
            raise
        finally:
            if not self._is_dry_run:
                self._restore_times()
                self._journal.mark_undone(done, whole, self._recorder.change)
        return self._result

    def _restore_times(self) -> None:
        """Set the times of directories that were made, after what is in them."""
        for place, modified_ns in reversed(self._times):
            with suppress(OSError), self._roots.open_parent(place) as (directory, name):
                os.utime(name, ns=(modified_ns, modified_ns), dir_fd=directory, follow_symlinks=False)

    def _take_back(self, entry: EntryChange) -> bool:
        """Take back an entry; False if it is as before the change already."""
        place = self._place(entry.root, entry.path)
        with self._opened(place, entry) as here:
            return self._move_back(entry, here) if entry.moved_path else self._restore(entry, here)

    def _move_back(self, entry: EntryChange, source: Entry) -> bool:
        with self._opened(self._place(entry.moved_root, entry.moved_path), entry) as target:
            now = self._state(target)
            if now.kind == "absent" and self._state(source).is_same(entry.before):
                return False
            if not _is_as_left(now, entry.after):
                raise _Kept(_changed_since(now))
            if self._state(source).kind != "absent":
                raise _Kept("something else has its former name now")
            self._result.moved.append(self._roots.display_path(source.place))
            if not self._is_dry_run:
                self._recorder.before_move(target, source)
                rename_no_replace(target.directory, target.name, source.directory, source.name)
            return True

    def _restore(self, entry: EntryChange, here: Entry) -> bool:
        now, before = self._state(here), entry.before
        if _is_as_before(now, entry):
            return False
        if not _is_as_left(now, entry.after):
            raise _Kept(_changed_since(now))
        if before.kind == "other":
            raise _Kept("was neither file, link nor directory, and can't be made again")
        if now.kind == "directory":
            self._require_empty(here)
        if not self._is_dry_run:
            if before.kind == "file":
                self._restore_file(entry, here, is_absent=now.kind == "absent")
            else:
                self._remove(here, now)
                self._create(entry, here)
        path = self._roots.display_path(here.place)
        (self._result.removed if before.kind == "absent" else self._result.restored).append(path)
        return True

    def _remove(self, here: Entry, now: EntryState) -> None:
        if now.kind != "absent":
            self._recorder.before_removal([here])
            (os.rmdir if now.kind == "directory" else os.unlink)(here.name, dir_fd=here.directory)

    def _create(self, entry: EntryChange, here: Entry) -> None:
        """Create the directory or link that was there, where nothing is now."""
        before = entry.before
        if before.kind == "directory":
            self._recorder.before_new_directory(here)
            os.mkdir(here.name, 0o700, dir_fd=here.directory)
            os.chmod(here.name, before.mode, dir_fd=here.directory)
            self._made.add((entry.root, entry.path))
            self._times.append((here.place, before.modified_ns))
        elif before.kind == "link":
            self._recorder.before_new_link(here, before.target)
            os.symlink(before.target, here.name, dir_fd=here.directory)

    def _restore_file(self, entry: EntryChange, here: Entry, *, is_absent: bool) -> None:
        try:
            stored = self._journal.contents.open(entry.content)
        except OSError as error:
            raise _Kept(f"its content is no longer in the journal ({error.strerror})") from error
        name = f"{TEMPORARY_PREFIX}{token_hex(8)}.tmp"
        try:
            self._require_intact(stored, entry.before)
            with temporary_file(name, directory=here.directory, mode=0o600) as fd:
                while block := os.read(stored, BLOCK_BYTES):
                    write_all(fd, block)
                os.fchmod(fd, entry.before.mode & 0o777)
                os.utime(fd, ns=(entry.before.modified_ns, entry.before.modified_ns))
                if not is_absent:  # else nothing is replaced, and the journal still has it
                    os.fsync(fd)
                self._recorder.before_write(here, fd)
                if is_absent:
                    rename_no_replace(here.directory, name, here.directory, here.name)
                else:
                    os.rename(name, here.name, src_dir_fd=here.directory, dst_dir_fd=here.directory)
        finally:
            os.close(stored)

    def _require_intact(self, stored: int, before: EntryState) -> None:
        now = state_of_open(stored) if before.digest else state_of(os.fstat(stored))
        same_content = now.digest == before.digest if before.digest else now.modified_ns == before.modified_ns
        if not same_content or now.size != before.size:
            raise _Kept("its content in the journal is damaged, or was changed by a program that had it open")

    def _require_empty(self, here: Entry) -> None:
        directory = os.open(here.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here.directory)
        try:
            if os.listdir(directory) and not self._is_dry_run:
                raise _Kept("has entries that were made later")
        finally:
            os.close(directory)

    def _place(self, root_path: str, path: str) -> RootedPath:
        root = self._by_path.get(root_path)
        if root is None:
            raise _Kept(f"its root, {root_path}, is not one of this server")
        return RootedPath(root, path)

    @contextmanager
    def _opened(self, place: RootedPath, entry: EntryChange) -> Iterator[Entry]:
        """Open the directory of a place, check that it may be changed, and lock its name."""
        roots, display_path = self._roots, self._roots.display_path(place)
        roots.require_present(place.root)
        roots.require_writable(place.root, display_path)
        with translate_errors(display_path), roots.open_parent(place) as (directory, name):
            above = place.relative.rpartition("/")[0] or "."
            if (entry.root, above) not in self._made:  # a whole repository may come back, a part of one not
                with suppress(FileNotFoundError):
                    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    resolved = ResolvedPath(place.root, display_path, directory, above, name, (), found)
                    require_no_existing_settings(roots, resolved, is_removed=stat.S_ISLNK(found.st_mode))
                resolved = ResolvedPath(place.root, display_path, directory, above, name)
                require_outside_git(resolved)
            key = (*identity_of(os.fstat(directory)), name.casefold())
            with LOCKS.hold(lambda: frozenset({key})):
                yield Entry(directory, name, place)

    def _state(self, entry: Entry) -> EntryState:
        return state_at(entry.directory, entry.name, most_digested=MOST_DIGESTED)

    def _shown(self, entry: EntryChange) -> str:
        root = self._by_path.get(entry.root)
        return entry.path if root is None else self._roots.display_path(RootedPath(root, entry.path))


def _is_as_before(now: EntryState, entry: EntryChange) -> bool:
    """Whether nothing is to be restored. Of a file that was written with its own content the time is."""
    before = entry.before
    has_only_new_time = before.kind == "file" and before.modified_ns != now.modified_ns == entry.after.modified_ns
    return now.kind == before.kind == "directory" or (now.is_same(before) and not has_only_new_time)


def _is_as_left(now: EntryState, after: EntryState) -> bool:
    """Whether an entry is as its change left it. Of a directory only that it is one."""
    return now.is_same(after) or (now.kind == after.kind == "directory")


def _changed_since(now: EntryState) -> str:
    return {
        "absent": "is gone since",
        "file": f"was changed since: now {now.size} bytes",
    }.get(now.kind, f"is a {now.kind} now")
