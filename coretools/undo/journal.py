"""The journal of changes: which entries each change touched, with their states before and after.

One database of the user for all their servers, whose processes share it. A row is committed before its change is made,
with the state that the change will leave: so whatever ends the process, each entry is in one of its two states. After a
power failure the last changes may be missing from the journal; it is never torn (sqlite.org/wal.html).
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from coretools.errors import InputOutput
from coretools.undo.change import Bounds, Change, EntryChange
from coretools.undo.content_store import ContentStore
from coretools.undo.entry_state import EntryState

BUSY_SECONDS = 10.0
"""How long a change waits for the transaction of another process."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, role TEXT NOT NULL, tool TEXT NOT NULL,
    summary TEXT NOT NULL, bytes INTEGER NOT NULL DEFAULT 0, undone_by INTEGER
);
CREATE TABLE IF NOT EXISTS entries (
    change INTEGER NOT NULL REFERENCES changes ON DELETE CASCADE, number INTEGER NOT NULL, root BLOB NOT NULL,
    path BLOB NOT NULL, moved_root BLOB, moved_path BLOB, before TEXT NOT NULL, after TEXT NOT NULL,
    content TEXT NOT NULL, undone_by INTEGER, PRIMARY KEY (change, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checkpoints (
    name TEXT NOT NULL, role TEXT NOT NULL, change INTEGER NOT NULL, at REAL NOT NULL, PRIMARY KEY (name, role)
);
"""


class Journal:
    """The journal in one directory. Safe to use from several threads and processes."""

    def __init__(self, directory: str, bounds: Bounds, *, most_copied: int) -> None:
        """Open or create it.

        Raises:
            InputOutput: it can't be used.
        """
        self._bounds = bounds
        self._lock = threading.RLock()
        with _reported(directory), ExitStack() as undo:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            self.contents = ContentStore(os.path.join(directory, "contents"), most_copied=most_copied)
            undo.callback(self.contents.close)
            self._database = sqlite3.connect(
                os.path.join(directory, "journal.sqlite"),
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            undo.callback(self._database.close)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute("PRAGMA foreign_keys=ON")
            self._database.executescript(_SCHEMA)
            undo.pop_all()
        self.directory = directory

    def close(self) -> None:
        """Close the database."""
        self._database.close()
        self.contents.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _reported(self.directory):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def begin(self, role: str, tool: str, summary: str) -> int:
        """Add a change, after what exceeds the bounds is forgotten; return its id."""
        self.trim()
        with self._transaction() as database:
            cursor = database.execute(
                "INSERT INTO changes (at, role, tool, summary) VALUES (?, ?, ?, ?)", (time.time(), role, tool, summary)
            )
            return int(cursor.lastrowid or 0)

    def add(self, change: int, entries: Sequence[EntryChange], size: int) -> None:
        """Add entries to a change, and the bytes of their contents."""
        with self._transaction() as database:
            (number,) = database.execute("SELECT count(*) FROM entries WHERE change = ?", (change,)).fetchone()
            database.executemany(
                "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                [
                    (
                        *(change, number + index, os.fsencode(one.root), os.fsencode(one.path)),
                        *(os.fsencode(one.moved_root), os.fsencode(one.moved_path)),
                        *(one.before.to_json(), one.after.to_json(), one.content),
                    )
                    for index, one in enumerate(entries)
                ],
            )
            database.execute("UPDATE changes SET bytes = bytes + ? WHERE id = ?", (size, change))

    def drop(self, change: int) -> None:
        """Forget a change that was not made, with its contents."""
        names = [entry.content for entry in self.entries(change) if entry.content]
        with self._transaction() as database:
            database.execute("DELETE FROM changes WHERE id = ?", (change,))
        for name in names:
            self.contents.forget(name)

    def changes(self, role: str, *, since: int = 0) -> list[Change]:
        """Changes with a greater id than `since`, the newest first."""
        with self._lock, _reported(self.directory):
            rows = self._database.execute(
                "SELECT id, at, tool, summary, undone_by FROM changes WHERE role = ? AND id > ? ORDER BY id DESC",
                (role, since),
            ).fetchall()
        return [Change(id=row[0], at=row[1], tool=row[2], summary=row[3], undone_by=row[4]) for row in rows]

    def find(self, role: str, change: int) -> Change | None:
        """The change with this id; None if it is of another role, or forgotten."""
        found = self.changes(role, since=change - 1)
        return next((one for one in found if one.id == change), None)

    def entries(self, change: int) -> list[EntryChange]:
        """What a change touched, in order."""
        with self._lock, _reported(self.directory):
            rows = self._database.execute(
                "SELECT root, path, moved_root, moved_path, before, after, content, number, undone_by FROM entries"
                " WHERE change = ? ORDER BY number",
                (change,),
            ).fetchall()
        return [
            EntryChange(
                root=os.fsdecode(row[0]),
                path=os.fsdecode(row[1]),
                moved_root=os.fsdecode(row[2]),
                moved_path=os.fsdecode(row[3]),
                before=EntryState.from_json(row[4]),
                after=EntryState.from_json(row[5]),
                content=row[6],
                change=change,
                number=row[7],
                undone_by=row[8],
            )
            for row in rows
        ]

    def mark_undone(self, entries: Iterable[EntryChange], changes: Iterable[int], undone_by: int) -> None:
        """Record which entries a change took back, and of which changes nothing is left.

        If it took back an undo, what that had taken back is there again.
        """
        with self._transaction() as database:
            for entry in entries:
                for root, path in ((entry.root, entry.path), (entry.moved_root, entry.moved_path)):
                    database.execute(
                        "UPDATE entries SET undone_by = NULL WHERE undone_by = ? AND root = ? AND path = ?",
                        (entry.change, os.fsencode(root), os.fsencode(path)),
                    )
                database.execute(
                    "UPDATE entries SET undone_by = ? WHERE change = ? AND number = ?",
                    (undone_by, entry.change, entry.number),
                )
            for change in changes:
                database.execute("UPDATE changes SET undone_by = NULL WHERE undone_by = ?", (change,))
                database.execute("UPDATE changes SET undone_by = ? WHERE id = ?", (undone_by, change))

    def set_checkpoint(self, role: str, name: str) -> int:
        """Name the point after the newest change; return the id of that."""
        with self._transaction() as database:
            (last,) = database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone() or (0,)
            database.execute("REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", (name, role, last, time.time()))
            return int(last)

    def checkpoints(self, role: str) -> dict[str, int]:
        """The named points, with the id of the last change before each."""
        with self._lock, _reported(self.directory):
            return dict(
                self._database.execute("SELECT name, change FROM checkpoints WHERE role = ? ORDER BY at", (role,))
            )

    def size(self) -> tuple[int, int]:
        """Number of changes, and bytes of their contents, of all roots and roles."""
        with self._lock, _reported(self.directory):
            count, size = self._database.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM changes").fetchone()
            return int(count), int(size)

    def trim(self, bounds: Bounds | None = None) -> None:
        """Forget the oldest changes that exceed the bounds, with their contents."""
        bounds = bounds or self._bounds
        with self._transaction() as database:
            rows = database.execute("SELECT id, at, bytes FROM changes ORDER BY id DESC").fetchall()
            size, oldest, keep_from = 0, time.time() - bounds.days * 86_400, 0
            for index, (change, at, held) in enumerate(rows):
                size += held
                if index >= bounds.changes or size > bounds.size or at < oldest:
                    keep_from = change + 1
                    break
            if not keep_from:
                return
            names = database.execute(
                "SELECT content FROM entries WHERE change < ? AND content != ''", (keep_from,)
            ).fetchall()
            database.execute("DELETE FROM changes WHERE id < ?", (keep_from,))
        for (name,) in names:
            self.contents.forget(name)

    def forget_unknown(self) -> None:
        """Remove contents that no entry has: those of a process that was killed between the two."""
        with self._transaction() as database:
            known = {name for (name,) in database.execute("SELECT content FROM entries WHERE content != ''")}
            for name in set(self.contents.names()) - known:
                self.contents.forget(name)


@contextmanager
def _reported(directory: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputOutput(
            f"the journal for undo, {directory}, can't be used: {reason}; nothing was changed. Free space there, or"
            " start the server with --no-undo, which changes files without it"
        ) from error
