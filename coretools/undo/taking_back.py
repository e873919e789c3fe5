"""Take back recorded changes: entry by entry, the last first, and only where nothing newer would be lost.

What is taken back is itself a recorded change, so that it can be taken back too.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from coretools.cancellation import check_cancelled
from coretools.data_ranges import data_ranges
from coretools.errors import CoreError
from coretools.regular_file import temporary_file, write_all
from coretools.roots.change_observer import Entry
from coretools.roots.directory_access import translate_errors
from coretools.roots.editor_settings import require_no_existing_settings
from coretools.roots.git_directories import require_outside_git
from coretools.roots.path_locks import LOCKS
from coretools.roots.replace import rename_no_replace, temporary_name
from coretools.roots.root import ResolvedPath, RootedPath, identity_of
from coretools.roots.root_set import Roots
from coretools.undo.change import SAME_CONTENT, EntryChange
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

    def add(self, entry: EntryChange, path: str) -> None:
        """Note an entry that was taken back."""
        done = self.moved if entry.moved_path else self.removed if entry.before.kind == "absent" else self.restored
        done.append(path)


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
        self._directories: dict[tuple[str, str], tuple[RootedPath, EntryState]] = {}
        """Directories that were created, with the mode and time that they get when everything is in them."""
        self._result = TakenBack()

    def take_back(self, entries: Sequence[EntryChange]) -> TakenBack:
        """Take back these entries, given in the order in which they were recorded."""
        done, marked = list[EntryChange](), 0
        try:
            for entry in reversed(entries):
                check_cancelled()
                if entry.undone_by is not None:
                    continue
                try:
                    if self._take_back(entry):
                        done.append(entry)
                        if entry.moved_path and not self._is_dry_run:
                            # Else, if this process is killed, the next undo looks for what was there by a wrong name.
                            self._journal.mark_undone(done[marked:], (), self._recorder.change)
                            marked = len(done)
                except (_Kept, CoreError) as error:
                    path = self._shown(entry)
                    self._result.kept.append(KeptEntry(path, str(error).removeprefix(f"{path}: "), entry))
            whole = {entry.change for entry in done} - {one.entry.change for one in self._result.kept}
        except BaseException:  # cancelled: some of each change may be left
            whole = set[int]()
            raise
        finally:
            if not self._is_dry_run:
                self._restore_directories()
                self._journal.mark_undone(done[marked:], whole, self._recorder.change)
        return self._result

    def _restore_directories(self) -> None:
        """Set modes and times of directories, after what is in them."""
        for place, state in reversed(self._directories.values()):
            with suppress(OSError), self._roots.open_parent(place) as (directory, name):
                _set_metadata(directory, name, state.mode, state.modified_ns)

    def _take_back(self, entry: EntryChange) -> bool:
        """Take back an entry; False if it is as before the change already."""
        place = self._place(entry.root, entry.path)
        if self._is_dry_run and self._is_of_made(entry):
            self._made.add((entry.root, entry.path))
            self._result.add(entry, self._roots.display_path(place))
            return True
        with self._opened(place, entry) as here:
            return self._move_back(entry, here) if entry.moved_path else self._restore(entry, here)

    def _move_back(self, entry: EntryChange, source: Entry) -> bool:
        with self._opened(self._place(entry.moved_root, entry.moved_path), entry) as target:
            now = self._state(target)
            if now.kind == "absent" and self._state(source).is_same(entry.before):
                return False
            if not _is_as_left(now, entry):
                raise _Kept(_changed_since(now))
            if self._state(source).kind != "absent":
                raise _Kept("something else has its former name now")
            self._result.add(entry, self._roots.display_path(source.place))
            if self._is_dry_run:
                self._made.add((entry.root, entry.path))
            else:
                self._recorder.before_move(target, source)
                rename_no_replace(target.directory, target.name, source.directory, source.name)
                if now.kind == "directory":
                    self._follow(target.place, source.place)
            return True

    def _follow(self, moved: RootedPath, to: RootedPath) -> None:
        """Let the directories of this undo beneath a path that was moved back be known by their new paths."""

        def followed(root: str, path: str) -> str:
            is_moved = root == moved.root.path and f"{path}/".startswith(f"{moved.relative}/")
            return to.relative + path[len(moved.relative) :] if is_moved else path

        self._made = {(root, followed(root, path)) for root, path in self._made}
        moved_directories = [
            (RootedPath(place.root, followed(place.root.path, place.relative)), state)
            for place, state in self._directories.values()
        ]
        self._directories = {(place.root.path, place.relative): (place, state) for place, state in moved_directories}

    def _restore(self, entry: EntryChange, here: Entry) -> bool:
        now, before = self._state(here), entry.before
        if _is_as_before(now, entry):
            return False
        if not _is_as_left(now, entry):
            raise _Kept(_changed_since(now))
        if before.kind == "other":
            raise _Kept("was neither file, link nor directory, and can't be made again")
        is_metadata = _is_metadata(entry)
        if now.kind == "directory" and not is_metadata:
            self._require_empty(here)
        if not self._is_dry_run:
            if is_metadata:
                self._recorder.before_metadata(here, mode=before.mode, modified_ns=before.modified_ns)
                self._set_metadata(here, before, now)
            elif before.kind == "file":
                self._restore_file(entry, here, now)
            else:
                self._remove(here, now)
                self._create(entry, here)
        elif before.kind == "directory" and not is_metadata:
            self._made.add((entry.root, entry.path))
        self._result.add(entry, self._roots.display_path(here.place))
        return True

    def _is_of_made(self, entry: EntryChange) -> bool:
        """Whether a directory above an entry, or what is to be moved, would be made first: nothing is there yet."""
        paths = [(entry.root, entry.path.rpartition("/")[0]), (entry.moved_root, entry.moved_path)]
        while any(path for _, path in paths):
            if not self._made.isdisjoint(paths):
                return True
            paths = [(root, path.rpartition("/")[0]) for root, path in paths]
        return False

    def _remove(self, here: Entry, now: EntryState) -> None:
        if now.kind != "absent":
            self._directories.pop((here.place.root.path, here.place.relative), None)
            self._recorder.before_removal([here])
            (os.rmdir if now.kind == "directory" else os.unlink)(here.name, dir_fd=here.directory)

    def _create(self, entry: EntryChange, here: Entry) -> None:
        """Create the directory or link that was there, where nothing is now."""
        before = entry.before
        if before.kind == "directory":
            self._recorder.before_new_directory(here)
            os.mkdir(here.name, before.mode & 0o777 | stat.S_IRWXU, dir_fd=here.directory)
            # Now, as far as files can be made in it: if this process is killed, the next undo leaves it as it is.
            _set_metadata(here.directory, here.name, before.mode | stat.S_IRWXU, before.modified_ns)
            self._made.add((entry.root, entry.path))
            self._set_at_the_end(here.place, before)
        elif before.kind == "link":
            self._recorder.before_new_link(here, before.target)
            os.symlink(before.target, here.name, dir_fd=here.directory)
            times = (before.modified_ns, before.modified_ns)
            os.utime(here.name, ns=times, dir_fd=here.directory, follow_symlinks=False)

    def _set_metadata(self, here: Entry, before: EntryState, now: EntryState) -> None:
        if before.kind == "directory":  # last: without write permission nothing in it could be restored
            _set_metadata(here.directory, here.name, before.mode | stat.S_IRWXU, now.modified_ns)
            self._set_at_the_end(here.place, before)
        else:
            _set_metadata(here.directory, here.name, before.mode & 0o777, before.modified_ns)

    def _set_at_the_end(self, place: RootedPath, state: EntryState) -> None:
        self._directories[place.root.path, place.relative] = place, state

    def _restore_file(self, entry: EntryChange, here: Entry, now: EntryState) -> None:
        if not entry.content:
            raise _Kept("its content was not kept")
        try:
            stored = self._journal.contents.open(entry.content)
        except OSError as error:
            raise _Kept(f"its content is no longer in the journal ({error.strerror})") from error
        name = temporary_name()
        path = os.path.join(os.path.dirname(here.place.path), name)
        try:
            self._require_intact(stored, entry.before)
            with (
                self._roots.write_notes.noted(path),
                temporary_file(name, directory=here.directory, mode=0o600) as fd,
            ):
                _copy(stored, fd)
                os.fchmod(fd, entry.before.mode & 0o777)
                os.utime(fd, ns=(entry.before.modified_ns, entry.before.modified_ns))
                if now.kind == "file":  # else nothing is replaced, and the journal still has it
                    os.fsync(fd)
                if now.kind == "directory":
                    self._remove(here, now)
                self._recorder.before_write(here, fd, is_linked=True)
                if now.kind in ("absent", "directory"):
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
        place = RootedPath(root, path)
        # The innermost root decides, as for tools: what lies in a read-only one was changed by somebody else.
        return (self._roots.split(place.path) or place) if self._roots.are_nested else place

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
        state = state_at(entry.directory, entry.name, most_digested=MOST_DIGESTED)
        _, later = self._directories.get((entry.place.root.path, entry.place.relative), (None, state))
        return replace(state, mode=later.mode) if state.kind == "directory" else state

    def _shown(self, entry: EntryChange) -> str:
        root = self._by_path.get(entry.root)
        return entry.path if root is None else self._roots.display_path(RootedPath(root, entry.path))


def _is_metadata(entry: EntryChange) -> bool:
    """Whether a change left the content of a file, or the entries of a directory."""
    before, after = entry.before, entry.after
    is_same_link = before.kind == after.kind == "link" and before.target == after.target
    return is_same_link or entry.content == SAME_CONTENT or before.kind == after.kind == "directory"


def _copy(source: int, target: int) -> None:
    """Copy a file to an empty one, without its holes."""
    size = os.fstat(source).st_size
    for begin, end in data_ranges(source, size):
        for at in range(begin, end, BLOCK_BYTES):
            os.lseek(target, at, os.SEEK_SET)
            write_all(target, os.pread(source, min(BLOCK_BYTES, end - at), at))
    os.ftruncate(target, size)


def _set_metadata(directory: int, name: str, mode: int, modified_ns: int) -> None:
    """Set mode and time of a file or directory, and never of what a link leads to."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            os.utime(name, ns=(modified_ns, modified_ns), dir_fd=directory, follow_symlinks=False)
            return
        path = f"/proc/self/fd/{fd}"  # chmod(2) takes no descriptor of O_PATH
        os.chmod(path, mode)
        os.utime(path, ns=(modified_ns, modified_ns))
    finally:
        os.close(fd)


def _is_as_before(now: EntryState, entry: EntryChange) -> bool:
    """Whether nothing is to be restored. Of a file or link that was made again the same the time is."""
    before = entry.before
    if now.kind == before.kind == entry.after.kind == "directory":
        return now.mode == before.mode
    has_new_time = before.modified_ns != now.modified_ns == entry.after.modified_ns
    has_only_new_time = before.kind in ("file", "link") and has_new_time
    return now.kind == before.kind == "directory" or (now.is_same(before) and not has_only_new_time)


def _is_as_left(now: EntryState, entry: EntryChange) -> bool:
    """Whether an entry is as its change left it. Of a directory only that it is one, unless its mode was changed."""
    after = entry.after
    if now.kind == after.kind == "directory":
        return entry.before.kind != "directory" or bool(entry.moved_path) or now.mode == after.mode
    return now.is_same(after)


def _changed_since(now: EntryState) -> str:
    return {
        "absent": "is gone since",
        "directory": "has another mode, or is a directory now",
        "file": f"was changed since: now {now.size} bytes",
    }.get(now.kind, f"is a {now.kind} now")
