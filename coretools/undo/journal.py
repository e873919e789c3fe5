"""The journal of changes: which entries each change touched, with their states before and after.

One database of the user for all their servers, whose processes share it. A row is committed before its change is made,
with the state that the change will leave: so whatever ends the process, each entry is in one of its two states. After a
power failure the last changes may be missing from the journal; it is never torn (sqlite.org/wal.html).
"""

import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from coretools.distribution import VERSION
from coretools.errors import InputOutput
from coretools.undo.change import SPOOL, Bounds, Change, EntryChange
from coretools.undo.content_store import ContentStore
from coretools.undo.entry_state import EntryState

BUSY_SECONDS = 10.0
"""How long a change waits for the transaction of another process, and before that for those of other calls here."""

UNKNOWN_SECONDS = 3_600.0
"""Age from which a content that no entry has is removed. Of a younger one the entry may be about to be added."""

_ROW_BYTES = 300
"""About what an entry without its paths occupies."""

_MOST_ID = 2**63 - 1
"""Of SQLite."""

FORMAT = 1
"""Version of the tables below, kept as SQLite's `user_version`. 0: from before it was kept, the same tables."""

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
CREATE TABLE IF NOT EXISTS taken (spool TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS checkpoints (
    name TEXT NOT NULL, role TEXT NOT NULL, change INTEGER NOT NULL, at REAL NOT NULL, PRIMARY KEY (name, role)
);
CREATE INDEX IF NOT EXISTS entries_undone ON entries (undone_by) WHERE undone_by IS NOT NULL;
CREATE INDEX IF NOT EXISTS changes_undone ON changes (undone_by) WHERE undone_by IS NOT NULL;
CREATE INDEX IF NOT EXISTS changes_bytes ON changes (id, at, bytes);
"""


class Journal:
    """The journal in one directory. Safe to use from several threads and processes."""

    def __init__(self, directory: str, bounds: Bounds, *, most_copied: int, busy_seconds: float = BUSY_SECONDS) -> None:
        """Open or create it.

        Raises:
            InputOutput: it can't be used, or a newer version wrote it.
        """
        self._bounds = bounds
        self._busy_seconds = busy_seconds
        self._lock = threading.RLock()
        with _reported(directory), ExitStack() as undo:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            self.contents = ContentStore(os.path.join(directory, "contents"), most_copied=most_copied)
            undo.callback(self.contents.close)
            self._database = sqlite3.connect(
                os.path.join(directory, "journal.sqlite"),
                timeout=busy_seconds,
                isolation_level=None,
                check_same_thread=False,
            )
            undo.callback(self._database.close)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute("PRAGMA foreign_keys=ON")
            self._require_known_format(directory)
            self._database.executescript(f"{_SCHEMA}PRAGMA user_version={FORMAT};")
            undo.pop_all()
        self.directory = directory
        self.spool = os.path.join(directory, SPOOL)

    def _require_known_format(self, directory: str) -> None:
        (found,) = self._database.execute("PRAGMA user_version").fetchone()
        if found > FORMAT:
            raise InputOutput(
                f"the journal for undo, {directory}, was written by a newer version of coretools (format {found}; this"
                f" one, {VERSION}, knows {FORMAT}); nothing was changed. Install that version again, or start the"
                " server with --no-undo, which changes files without the journal"
            )

    def unusable(self, error: Exception) -> InputOutput:
        """Return the error for a journal that can't be used for this reason."""
        return _unusable(self.directory, error)

    def close(self) -> None:
        """Close the database."""
        self._database.close()
        self.contents.close()

    @contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """Use the database alone in this process.

        Raises:
            InputOutput: it can't be used; also if another process does not let go of it.
        """
        with _reported(self.directory):
            if not self._lock.acquire(timeout=self._busy_seconds):
                raise sqlite3.OperationalError("other calls have been waiting for it too long")
            try:
                yield self._database
            finally:
                self._lock.release()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._alone() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def begin(self, role: str, tool: str, summary: str, entries: Sequence[EntryChange], size: int) -> int:
        """Add a change with its first entries, and the bytes of their contents; return its id."""
        with self._transaction() as database:
            cursor = database.execute(
                "INSERT INTO changes (at, role, tool, summary) VALUES (?, ?, ?, ?)", (time.time(), role, tool, summary)
            )
            change = int(cursor.lastrowid or 0)
            forgotten = self._insert(database, change, entries, size)
        self._forget_contents(forgotten)
        return change

    def add(self, change: int, entries: Sequence[EntryChange], size: int) -> None:
        """Add entries to a change, and the bytes of their contents."""
        with self._transaction() as database:
            forgotten = self._insert(database, change, entries, size)
        self._forget_contents(forgotten)

    def add_command(
        self, role: str, named: tuple[str, str], entries: Sequence[EntryChange], size: int, *, spool: str
    ) -> int:
        """Add the change that a command made, with contents from its directory in the spool; return its id.

        `named` are tool and summary. Without entries nothing is added, and the id is 0. Contents are moved before the
        rows are committed: if that is interrupted, the next attempt finds them in the store.
        """
        if not entries:
            return 0
        with _reported(self.directory):  # files are copied: other servers do not wait for that
            stored = self.contents.take(os.path.join(self.spool, spool), spool, [one.content for one in entries])
        with self._transaction() as database:
            kept = [replace(one, content=name) for one, name in zip(entries, stored, strict=True)]
            cursor = database.execute(
                "INSERT INTO changes (at, role, tool, summary) VALUES (?, ?, ?, ?)", (time.time(), role, *named)
            )
            change = int(cursor.lastrowid or 0)
            # The rows count too: they may hold 200,000 long paths, and no content.
            size += sum(_ROW_BYTES + len(one.path) + len(one.moved_path) for one in kept)
            forgotten = self._insert(database, change, kept, size)
            database.execute("INSERT INTO taken VALUES (?)", (spool,))
        self._forget_contents(forgotten)
        return change

    def is_taken(self, spool: str) -> bool:
        """Whether the record in this directory of the spool is in the journal already."""
        with self._alone() as database:
            found = database.execute("SELECT 1 FROM taken WHERE spool = ?", (spool,)).fetchone()
        return found is not None

    def forget_taken(self, spool: str) -> None:
        """Forget that a record is in the journal: it is no longer in the spool."""
        with self._transaction() as database:
            database.execute("DELETE FROM taken WHERE spool = ?", (spool,))

    def touched_since(self, role: str, at: float) -> set[tuple[str, str]]:
        """Root and path of the entries that changes since then touched."""
        with self._alone() as database:
            rows = database.execute(
                "SELECT root, path, moved_root, moved_path FROM entries WHERE change IN"
                " (SELECT id FROM changes WHERE role = ? AND at >= ? AND tool != 'command')",
                (role, at),
            ).fetchall()
        return {(os.fsdecode(root), os.fsdecode(path)) for row in rows for root, path in (row[:2], row[2:]) if path}

    def _insert(
        self, database: sqlite3.Connection, change: int, entries: Sequence[EntryChange], size: int
    ) -> list[str]:
        """Add entries, and forget older changes that exceed the bounds now; return the names of their contents."""
        (number,) = database.execute(
            "SELECT coalesce(max(number) + 1, 0) FROM entries WHERE change = ?", (change,)
        ).fetchone()
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
        return self._trim(database, self._bounds, newest=change) if size or not number else []

    def drop(self, change: int) -> None:
        """Forget a change that was not made, with its contents."""
        names = [entry.content for entry in self.entries(change) if entry.content]
        with self._transaction() as database:
            database.execute("DELETE FROM changes WHERE id = ?", (change,))
        self._forget_contents(names)

    def changes(self, role: str, roots: Collection[str], *, since: int = 0) -> list[Change]:
        """Changes in these roots with a greater id than `since`, the newest first."""
        return self._changes(role, roots, since + 1, _MOST_ID)

    def find(self, role: str, roots: Collection[str], change: int) -> Change | None:
        """The change with this id; None if it is of another role or in other roots, or forgotten."""
        return next(iter(self._changes(role, roots, change, change)), None)

    def _changes(self, role: str, roots: Collection[str], first: int, last: int) -> list[Change]:
        with self._alone() as database:
            rows = database.execute(
                "SELECT id, at, tool, summary, changes.undone_by, root, moved_root FROM changes"
                " JOIN entries ON change = id AND number = 0 WHERE role = ? AND id BETWEEN ? AND ? ORDER BY id DESC",
                (role, first, last),
            ).fetchall()
        wanted = {os.fsencode(root) for root in roots}
        return [
            Change(id=row[0], at=row[1], tool=row[2], summary=row[3], undone_by=row[4])
            for row in rows
            if not wanted.isdisjoint(row[5:])
        ]

    def counts(self, change: int) -> list[tuple[str, str, bool, int]]:
        """How many entries a change has, by the kinds before and after it, and whether they were moved."""
        with self._alone() as database:
            return database.execute(
                "SELECT coalesce(before ->> 'kind', 'absent'), coalesce(after ->> 'kind', 'absent'), moved_path != x'',"
                " count(*) FROM entries WHERE change = ? GROUP BY 1, 2, 3 ORDER BY min(number)",
                (change,),
            ).fetchall()

    def entries(self, change: int) -> list[EntryChange]:
        """What a change touched, in order."""
        with self._alone() as database:
            rows = database.execute(
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
        with self._alone() as database:
            return dict(database.execute("SELECT name, change FROM checkpoints WHERE role = ? ORDER BY at", (role,)))

    def size(self) -> tuple[int, int]:
        """Number of changes, and bytes of their contents, of all roots and roles."""
        with self._alone() as database:
            count, size = database.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM changes").fetchone()
            return int(count), int(size)

    def trim(self, bounds: Bounds) -> None:
        """Forget the oldest changes that exceed these bounds, with their contents."""
        with self._transaction() as database:
            forgotten = self._trim(database, bounds)
        self._forget_contents(forgotten)

    def _trim(self, database: sqlite3.Connection, bounds: Bounds, *, newest: int = 0) -> list[str]:
        """Forget the oldest changes that exceed the bounds, but not `newest`; return the names of their contents."""
        count, size, at = database.execute(
            "SELECT count(*), coalesce(sum(bytes), 0), coalesce(min(at), 0) FROM changes"
        ).fetchone()
        oldest = time.time() - bounds.days * 86_400
        if count <= bounds.changes and size <= bounds.size and at >= oldest:
            return []
        size, first_kept = 0, 0
        rows = database.execute("SELECT id, at, bytes FROM changes ORDER BY id DESC")
        for index, (change, at, held) in enumerate(rows):
            size += held
            if change != newest and (index >= bounds.changes or size > bounds.size or at < oldest):
                first_kept = change + 1
                break
        names = database.execute("SELECT content FROM entries WHERE change < ? AND content != ''", (first_kept,))
        forgotten = [name for (name,) in names]
        database.execute("DELETE FROM changes WHERE id < ?", (first_kept,))
        return forgotten

    def forget_unknown(self, *, older_than: float = UNKNOWN_SECONDS) -> None:
        """Remove contents that no entry has and that are older: those of a process that was killed between the two."""
        with self._transaction() as database:
            known = {name for (name,) in database.execute("SELECT content FROM entries WHERE content != ''")}
            left = set(os.listdir(self.spool)) if os.path.isdir(self.spool) else set[str]()
            for (spool,) in database.execute("SELECT spool FROM taken").fetchall():
                if spool not in left:
                    database.execute("DELETE FROM taken WHERE spool = ?", (spool,))
        unknown = self.contents.names(older_than=older_than) - known
        # Not those of a record that is about to be taken.
        self._forget_contents(name for name in unknown if name.partition("-")[0] not in left)

    def _forget_contents(self, names: Iterable[str]) -> None:
        """Remove contents, after the transaction that has removed their entries."""
        for name in names:
            self.contents.forget(name)


@contextmanager
def _reported(directory: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:  # the last two: a damaged entry
        raise _unusable(directory, error) from error


def _unusable(directory: str, error: Exception) -> InputOutput:
    """Return the error of a journal that can't be used, with the way out."""
    reason = error.strerror if isinstance(error, OSError) else error
    return InputOutput(
        f"the journal for undo, {directory}, can't be used: {reason}; nothing was changed. Free space there, or"
        " start the server with --no-undo, which changes files without it"
    )
