"""From the record of a command to one change of the journal: what each entry was before, and what it is now.

The record is read backwards, as an undo will proceed: beside what the disk has now, `_EarlierView` knows what entries
were at each earlier point. Entries that end as they began are left out, such as temporary files.
"""

import fcntl
import marshal
import os
import shlex
import shutil
import stat
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from coretools.errors import InputOutput
from coretools.process_identity import is_alive, own_identity
from coretools.redaction.argv import redacted_command_line
from coretools.roots.git_layout import is_git_name
from coretools.roots.open_beneath import Openat2Resolver
from coretools.undo.change import SAME_CONTENT, EntryChange, verb_of
from coretools.undo.change_log import (
    ABSENT,
    BEGUN,
    DIRECTORY,
    FILE,
    LINK,
    LOG,
    METADATA,
    MOVED,
    NOT_KEPT,
    ChangeRecord,
    EntryStatus,
    read_changes,
)
from coretools.undo.entry_state import ABSENT as NOTHING
from coretools.undo.entry_state import EntryState, state_at, state_of_fields

if TYPE_CHECKING:
    from coretools.undo.journal import Journal

COMMAND = "command"
"""Name of the tool in the journal."""
_DIGESTED_BYTES = 64 << 20
_DIGESTED_FILES = 5_000
"""How much of one change is read to compare contents; beyond that size and time stand for the content."""
_BEGUN_BYTES = 1 << 20
"""At least the first record of a log."""
_NAMED = 5
"""Reasons that the result of a command names."""
_SUMMARY_CHARACTERS = 200
_OLD_SECONDS = 86_400
"""Age after which a directory in the spool that was never completed is removed."""
GIT_STATE = "what it changed in git directories"

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RecordedCommand:
    """What a command changed, as it is in the journal."""

    change: int = 0
    """Id of the change; 0 if there is none."""
    counts: tuple[tuple[str, int], ...] = ()
    """How many entries were created, changed, deleted and moved."""
    unrecorded: tuple[str, ...] = ()
    """What can't be taken back, and why."""

    def remarks(self) -> list[str]:
        """Sentences for the result of the command; none if it only created entries or changed what git has."""
        counts = ", ".join(f"{count} {verb}" for verb, count in self.counts)
        is_wanted = any(verb != "created" for verb, _ in self.counts)
        shown = [f"undo change={self.change} takes it back: {counts}"] if is_wanted else []
        if not self.unrecorded or (not is_wanted and self.unrecorded == (GIT_STATE,)):
            return shown
        named, more = self.unrecorded[:_NAMED], len(self.unrecorded) - _NAMED
        return [*shown, f"undo can't take back: {'; '.join(named)}" + (f"; {more} more" if more > 0 else "")]


def take_left(journal: "Journal", *, spare: Collection[str] = ()) -> None:
    """Take the records of commands whose server or supervisor was killed. One that can't be taken is left."""
    for name in set(os.listdir(journal.spool)).difference(spare):
        with suppress(OSError, ValueError, InputOutput):
            path = os.path.join(journal.spool, name)
            if not name.startswith("."):
                if not _is_of_other(path):
                    take_record(journal, name, "")
            elif os.stat(path).st_mtime < time.time() - _OLD_SECONDS:
                shutil.rmtree(path)


def _is_of_other(path: str) -> bool:
    """Whether another server lives that takes this record."""
    with open(os.path.join(path, LOG), "rb") as file:
        begun = next(read_changes(file.read(_BEGUN_BYTES)), None)
    server = "" if begun is None or begun.kind != BEGUN else marshal.loads(begun.detail)[3]  # noqa: S302  # as above
    return is_alive(server) and server != own_identity()


def take_record(journal: "Journal", name: str, line: str) -> RecordedCommand | None:
    """Move one record into the journal; None if its supervisor runs, or another server takes it or did."""
    path = os.path.join(journal.spool, name)
    try:
        log = os.open(os.path.join(path, LOG), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if journal.is_taken(name) or not os.fstat(log).st_nlink:  # a server was killed after that, or is ready now
            shutil.rmtree(path, ignore_errors=True)
            return None
        with open(log, "rb", closefd=False) as file:
            records = list(read_changes(file.read()))
        found = _take(journal, path, name, records, line)
        shutil.rmtree(path, ignore_errors=True)
        journal.forget_taken(name)
        return found
    finally:
        os.close(log)


def _take(journal: "Journal", path: str, name: str, records: list[ChangeRecord], line: str) -> RecordedCommand:
    if not records or records[0].kind != BEGUN:
        return RecordedCommand()
    begun = records.pop(0)
    role, roots, at, _ = marshal.loads(begun.detail)  # noqa: S302  # of our own supervisor
    with _EarlierView([os.fsdecode(root) for root in roots], path) as view:
        for record in reversed(records):
            view.before(record)
        entries = _without_git_state(view, journal.touched_since(role, at))
    if not line:
        words = [os.fsdecode(word) for word in begun.path.rstrip(b"\0").split(b"\0")]
        line = redacted_command_line(words) if words != [""] else shlex.join(words)
    counts = Counter(verb_of(one) for one in entries)
    change = journal.add_command(
        role, (COMMAND, line.partition("\n")[0][:_SUMMARY_CHARACTERS]), entries, view.sizes, spool=name
    )
    return RecordedCommand(change, tuple(counts.items()), tuple(dict.fromkeys(view.unrecorded)))


def _without_git_state(view: "_EarlierView", touched: set[_Key]) -> list[EntryChange]:
    """The entries in order, without those of git directories that are still there, and those that others changed."""
    entries = view.entries()
    deleted = {
        (one.root, one.path) for one in entries if one.before.kind == "directory" and one.after.kind != "directory"
    }
    kept = []
    for one in entries:
        if not _is_git_state(one, deleted):
            if {(one.root, one.path), (one.root, one.moved_path)} & touched:
                view.unrecorded.append(f"{one.path}, which a tool changed while the command ran")
            else:
                kept.append(one)
        elif GIT_STATE not in view.unrecorded:
            view.unrecorded.append(GIT_STATE)
    return kept


def _is_git_state(entry: EntryChange, deleted: set[_Key]) -> bool:
    above = ""
    for part in entry.path.split("/"):
        above = f"{above}/{part}" if above else part
        if (entry.root, above) in deleted:
            return False
        if is_git_name(part):
            return True
    return False


@dataclass(slots=True)
class _Budget:
    size: int = _DIGESTED_BYTES
    files: int = _DIGESTED_FILES

    def most_digested(self) -> int:
        return self.size if self.files else -1

    def spend(self, state: EntryState) -> EntryState:
        if state.digest:
            self.size -= state.size
            self.files -= 1
        return state


@dataclass(slots=True)
class _Node:
    """What is known of one path at some point of a command. A tree of them, so that a rename moves a single one."""

    state: EntryState | None = None
    """None: what is on the disk."""
    on_disk: str | None = None
    """The path at which it is on the disk; None if it is not there."""
    below: "dict[str, _Node]" = field(default_factory=dict)

    def at(self, name: str) -> "_Node":
        """The node of an entry of this directory, which is made."""
        if name not in self.below:
            self.below[name] = self.unknown(name)
        return self.below[name]

    def unknown(self, name: str) -> "_Node":
        """The node of an entry of which nothing is known but the place of its directory."""
        return _Node(on_disk=None if self.on_disk is None else f"{self.on_disk}/{name}".lstrip("/"))


@dataclass(slots=True)
class _EarlierView:
    """Entries as they were at some point of a command, from its end backwards."""

    roots: list[str]
    spool: str
    unrecorded: list[str] = field(default_factory=list)
    sizes: int = 0
    _handles: dict[str, int] = field(default_factory=dict)
    _trees: dict[str, "_Node"] = field(default_factory=dict)
    """What is known of the entries of each root."""
    _backwards: list[EntryChange] = field(default_factory=list)
    _index: dict[_Key, int] = field(default_factory=dict)
    """Where the entry of a path is in `_backwards`, since the last rename."""
    _used: set[str] = field(default_factory=set)
    _budget: _Budget = field(default_factory=_Budget)

    def __enter__(self) -> Self:
        for root in self.roots:
            with suppress(OSError):
                flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                self._handles[root] = os.open(root, flags)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles.values():
            os.close(handle)

    def entries(self) -> list[EntryChange]:
        """What was changed, with the states before and after. An undo begins at the end.

        Between two renames there is one entry for each path. What is removed comes before the directory that contained
        it, and what is made again after it.
        """
        ordered, since_move = list[EntryChange](), list[EntryChange]()
        for one in self._backwards:
            if one.moved_path:
                ordered += [*sorted(since_move, key=_undo_order), one]
                since_move = []
            elif not _is_same(one):
                since_move.append(one)
        return [*ordered, *sorted(since_move, key=_undo_order)][::-1]

    def before(self, record: ChangeRecord) -> None:
        """Continue to the point before a change."""
        if record.root < 0 or not record.path:
            if record.kind == NOT_KEPT:
                self.unrecorded.append(os.fsdecode(record.detail))
            return
        try:
            self._before(self.roots[record.root], os.fsdecode(record.path), record)
        except PermissionError as error:  # of a directory that only its mode closes now
            self.unrecorded.append(f"{os.fsdecode(record.path)}: {error.strerror}")

    def _before(self, root: str, path: str, record: ChangeRecord) -> None:
        if record.kind == MOVED:
            self._before_move(root, path, os.fsdecode(record.detail))
            return
        after = NOTHING
        try:
            after = self._state(root, path)
        except PermissionError:
            if record.kind in (ABSENT, METADATA):
                raise
            # Restored if nothing is there; what an undo finds there it leaves and names.
        state, content = self._recorded(record, after)
        if state is None:
            return
        if record.is_shared and state != after:
            self.unrecorded.append(f"the other names of {path}")
        self._node(root, path).state = state
        index = self._index.get((root, path))
        if index is None:
            self._index[root, path] = len(self._backwards)
            self._backwards.append(EntryChange(root=root, path=path, before=state, after=after, content=content))
        else:
            known = self._backwards[index]
            content = known.content if record.kind == METADATA else content
            self._backwards[index] = replace(known, before=state, content=content)

    def _recorded(self, record: ChangeRecord, after: EntryState) -> tuple[EntryState | None, str]:
        """The state in a record, and the name of its content; None if the record says nothing new."""
        status = record.status
        if status is None:
            return (NOTHING if record.kind == ABSENT else None), ""
        if stat.S_ISSOCK(status.mode):  # made by bind(2), which is not recorded
            return None, ""
        if record.kind == METADATA:
            recorded = _state_of(status)
            if recorded.kind != after.kind or after.kind not in ("file", "directory"):
                return None, ""
            content = SAME_CONTENT if after.kind == "file" else ""
            return replace(after, mode=recorded.mode, modified_ns=recorded.modified_ns), content
        if record.kind == LINK:
            return _state_of(status, target=os.fsdecode(record.detail)), ""
        if record.kind in (FILE, NOT_KEPT):
            return self._file(record, status)
        if record.kind != DIRECTORY:
            self.unrecorded.append(f"{os.fsdecode(record.path)}, which is neither file, directory nor link")
        return _state_of(status), ""

    def _file(self, record: ChangeRecord, status: EntryStatus) -> tuple[EntryState, str]:
        path = os.fsdecode(record.path)
        if record.has_writer:
            self.unrecorded.append(f"{path} for certain: another program was writing to it")
        if record.kind == NOT_KEPT:
            self.unrecorded.append(f"{path}: {os.fsdecode(record.detail)}")
            return _state_of(status), ""
        name = os.fsdecode(record.detail)
        handle = os.open(self.spool, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _make_readable(handle, name)
            kept = self._budget.spend(state_at(handle, name, most_digested=self._budget.most_digested()))
            if kept.kind == "file" and (kept.size, kept.modified_ns) != (status.size, status.modified_ns):
                self.unrecorded.append(f"{path}: a program that had it open wrote to it")
                return _state_of(status), ""  # it may have become of any size
            if name not in self._used and kept.kind == "file":
                self._used.add(name)
                found = os.stat(name, dir_fd=handle)
                self.sizes += min(found.st_size, found.st_blocks * 512)  # a sparse file occupies less
        finally:
            os.close(handle)
        return replace(_state_of(status), digest=kept.digest), name

    def _before_move(self, root: str, old: str, new: str) -> None:
        moved = self._state(root, new)
        if self._state(root, old).kind != "absent" or moved.kind == "absent":  # the call failed
            return
        change = EntryChange(root=root, path=old, before=moved, after=moved, moved_root=root, moved_path=new)
        self._backwards.append(change)
        self._index.clear()
        # Nothing of what is known of later entries at the old path is true of earlier ones.
        node, (above, _, name) = self._node(root, new), old.rpartition("/")
        self._node(root, above).below[name] = _Node(moved, node.on_disk, node.below)
        node.state, node.on_disk, node.below = NOTHING, None, {}

    def _node(self, root: str, path: str) -> _Node:
        node = self._trees.setdefault(root, _Node(on_disk=""))
        for name in path.split("/") if path else ():
            node = node.at(name)
        return node

    def _state(self, root: str, path: str) -> EntryState:
        node = self._trees.setdefault(root, _Node(on_disk=""))
        for name in path.split("/"):
            if node.state is not None and node.state.kind != "directory":
                return NOTHING
            node = node.below.get(name) or node.unknown(name)
        if node.state is not None:
            return node.state
        return NOTHING if node.on_disk is None else self._on_disk(root, node.on_disk)

    def _on_disk(self, root: str, path: str) -> EntryState:
        handle = self._handles.get(root)
        if handle is None:
            return NOTHING
        above, _, name = path.rpartition("/")
        try:
            directory = Openat2Resolver().open(handle, above or ".", os.O_PATH | os.O_DIRECTORY)
        except PermissionError:
            raise
        except OSError:
            return NOTHING
        try:
            return self._budget.spend(state_at(directory, name, most_digested=self._budget.most_digested()))
        finally:
            os.close(directory)


def _make_readable(directory: int, name: str) -> None:
    """Have the owner read a content, whose mode is that of the removed file; its record has the mode."""
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if status.st_nlink == 1 and not status.st_mode & stat.S_IRUSR:
            os.chmod(name, 0o600, dir_fd=directory)


def _undo_order(entry: EntryChange) -> tuple[bool, int]:
    is_removed, depth = entry.before.kind == "absent", entry.path.count("/")
    return not is_removed, -depth if is_removed else depth


def _is_same(entry: EntryChange) -> bool:
    """Whether nothing is to be taken back."""
    before, after = entry.before, entry.after
    if entry.moved_path or not before.is_same(after):
        return False
    return before.kind not in ("file", "link") or before.modified_ns == after.modified_ns


def _state_of(status: EntryStatus, *, target: str = "") -> EntryState:
    return state_of_fields(status.mode, status.size, status.modified_ns, target=target)
