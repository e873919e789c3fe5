"""Records changes beneath the roots in the journal, before they are made."""

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING

from coretools.errors import TooLarge
from coretools.roots.change_observer import Entry
from coretools.undo.change import SAME_CONTENT, EntryChange
from coretools.undo.entry_state import ABSENT, EntryState, state_at, state_of, state_of_open

if TYPE_CHECKING:
    from coretools.undo.journal import Journal

MOST_DIGESTED = 64 * 1024 * 1024
"""Larger files are compared by size and time. It is the largest file that tools edit."""


class ChangeRecorder:
    """The observer of the roots that writes the journal, which is opened by the first change."""

    def __init__(
        self, open_journal: Callable[[], "Journal"], directory: str = "", *, role: str, most_bytes: int
    ) -> None:
        """`directory` is that of the journal, `most_bytes` the size of the store.

        `role` keeps the changes of the roles of one server apart.
        """
        self._open_journal = open_journal
        self.directory = directory
        self.pending = set[str]()
        """Records of commands, by name, that are about to be taken into the journal."""
        self.uncovered: Callable[[], Sequence[str]] = tuple
        """What undo can't take back here, as far as it is known before the change."""
        self.role = role
        self._most_bytes = most_bytes
        self._opened: Journal | None = None
        self._opening = threading.Lock()
        self._current = threading.local()

    @property
    def journal(self) -> "Journal":
        """The journal.

        Raises:
            InputOutput: it can't be used.
        """
        with self._opening:
            if self._opened is None:
                self._opened = self._open_journal()
            return self._opened

    def close(self) -> None:
        """Close the journal, if it was opened."""
        if self._opened is not None:
            self._opened.close()

    @property
    def change(self) -> int:
        """Id of the change of this operation; 0 before the first entry."""
        return getattr(self._current, "change", 0)

    @property
    def last(self) -> int:
        """Id of the last change that this thread began; 0 for none."""
        return getattr(self._current, "last", 0)

    @contextmanager
    def operation(self, name: str, summary: str) -> Iterator[None]:
        """Put the changes of the block into one change of the journal, which begins with the first of them."""
        if getattr(self._current, "named", None) is not None:
            yield
            return
        self._current.named, self._current.change, self._current.last = (name, summary), 0, 0
        try:
            yield
        finally:
            self._current.last, self._current.named = self._current.change, None

    def before_write(self, entry: Entry, written: int, *, is_new: bool = False, is_linked: bool = False) -> None:
        """Record that a file is about to be created or replaced by the open one, `written`.

        `is_new`: it is created, and has its name already. `is_linked`: the former file is kept itself, not as a copy,
        since its name is taken from it.
        """
        status = os.fstat(written)
        after = state_of_open(written) if status.st_size <= MOST_DIGESTED else state_of(status)
        self._record(
            [(_change(entry, ABSENT, after), 0) if is_new else self._kept(entry, after=after, is_removed=is_linked)]
        )

    def before_new_link(self, entry: Entry, target: str) -> None:
        """Record that a symbolic link is about to be created."""
        self._record([(_change(entry, ABSENT, EntryState(kind="link", target=target)), 0)])

    def before_removal(self, entries: Iterable[Entry], *, is_emptied: bool = False) -> None:
        """Record that files, links or empty directories are about to be removed; with `is_emptied` emptied first."""
        self._record([self._kept(entry, after=ABSENT, is_removed=not is_emptied) for entry in entries])

    def before_new_directory(self, entry: Entry) -> None:
        """Record that a directory is about to be created. Its mode and time are not compared."""
        self._record([(_change(entry, ABSENT, EntryState(kind="directory")), 0)])

    def before_metadata(self, entry: Entry, *, mode: int | None = None, modified_ns: int | None = None) -> None:
        """Record that the mode or time of an entry is about to be changed to these."""
        before = state_at(entry.directory, entry.name, most_digested=MOST_DIGESTED)
        after = replace(
            before,
            mode=before.mode if mode is None else mode,
            modified_ns=before.modified_ns if modified_ns is None else modified_ns,
        )
        content = SAME_CONTENT if before.kind == "file" else ""
        self._record([(_change(entry, before, after, content), 0)])

    def before_move(self, source: Entry, destination: Entry) -> None:
        """Record that an entry is about to be renamed to a free name."""
        state = state_at(source.directory, source.name, most_digested=MOST_DIGESTED)
        to = destination.place
        moved = EntryChange(
            root=source.place.root.path,
            path=source.place.relative,
            before=state,
            after=state,
            moved_root=to.root.path,
            moved_path=to.relative,
        )
        self._record([(moved, 0)])

    def retract(self) -> None:
        """Forget what was recorded in this operation: none of it was done."""
        if self.change:
            self.journal.drop(self.change)
            self._current.change = 0

    def require_room(self, size: int, display_path: str) -> None:
        """Refuse to remove so many bytes if they could not be kept.

        Raises:
            TooLarge: they could not.
        """
        if size > self._most_bytes:
            raise TooLarge(
                f"{display_path}: has {size} bytes, and the journal for undo keeps {self._most_bytes}; nothing was"
                " deleted. permanent=true deletes it for good"
            )

    def _kept(self, entry: Entry, *, after: EntryState, is_removed: bool) -> tuple[EntryChange, int]:
        before = state_at(entry.directory, entry.name, most_digested=MOST_DIGESTED)
        if before.kind != "file":
            return _change(entry, before, after), 0
        name = token_hex(16)
        display_path = entry.place.relative
        try:
            size = self.journal.contents.keep(
                name, entry.directory, entry.name, is_removed=is_removed, display_path=display_path
            )
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # of the journal's disk, not of the file's
                raise self.journal.unusable(error) from error
            raise
        return _change(entry, before, after, content=name), size

    def _record(self, entries: list[tuple[EntryChange, int]]) -> None:
        if not entries:
            return
        journal, current = self.journal, self._current
        named = getattr(current, "named", None)
        recorded, size = [one for one, _ in entries], sum(size for _, size in entries)
        try:
            if named is not None and current.change:
                journal.add(current.change, recorded, size)
            else:
                name, summary = named or ("change", recorded[0].path)
                current.change = current.last = journal.begin(self.role, name, summary, recorded, size)
        except BaseException:
            for one, _ in entries:
                journal.contents.forget(one.content) if one.content else None
            raise


def _change(entry: Entry, before: EntryState, after: EntryState, content: str = "") -> EntryChange:
    return EntryChange(
        root=entry.place.root.path, path=entry.place.relative, before=before, after=after, content=content
    )
