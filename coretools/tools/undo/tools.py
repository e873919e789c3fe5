"""The tools that list recorded changes and take them back."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Annotated

from pydantic import Field

from coretools.config.limits import Limits
from coretools.errors import CoreError, InvalidArguments, NotFound
from coretools.operations.declare import Aliases, Effect, channels, same_policy_as, tool
from coretools.roots.path_text import printable
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.tools.answer_budget import content_bytes, fitting
from coretools.tools.filesystem.edit_diff import foreign_diff
from coretools.tools.filesystem.results import ChangeResult
from coretools.tools.undo.results import ChangeDetails, ChangeList, UndoResult
from coretools.undo.change import Bounds, Change, EntryChange, verb, verb_of
from coretools.undo.recorder import ChangeRecorder
from coretools.undo.taking_back import Undo
from coretools.undo.visible_content import contents_around

_LISTED = 50
_DIFFED_FILES = 10
_CONSIDERED_FILES = 200
"""Entries that are looked at for diffs: most of a long change are of one kind."""

_CHECKPOINT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
"""Not a number, so that `since` can be either."""

_MOST_ID = 2**53

ChangeId = Annotated[
    int,
    Field(
        ge=1,
        le=_MOST_ID,
        description="Id of the change to take back: the first number of its line in list_changes. Excludes `since`",
    ),
]


class UndoTools:
    """Tools over the journal of changes."""

    def __init__(self, roots: Roots, limits: Limits, recorder: ChangeRecorder) -> None:
        self._roots = roots
        self._limits = limits
        self._recorder = recorder

    @tool(Effect.READ, title="List changes")
    def list_changes(
        self,
        *,
        change: Annotated[
            int | None,
            Field(
                ge=1,
                le=_MOST_ID,
                description="Show this one change, by its id, with its paths and diffs, instead of a list",
            ),
        ] = None,
        before: Annotated[
            int | None,
            Field(
                ge=1,
                le=_MOST_ID,
                description="List only changes with a smaller id than this, to read on in a long list; by default "
                "from the newest on",
            ),
        ] = None,
        limit: Annotated[int, Field(ge=1, le=500, description="Most changes to list, 1 to 500; default 50")] = _LISTED,
    ) -> ChangeList | ChangeDetails:
        """List what file tools and commands changed, newest first, so that undo can take it back.

        Returns one line for each call that changed something, its fields separated by tabs: id, time, tool, path or
        command, how many entries were created, changed, deleted or moved, and whether it was taken back. With `change`,
        the paths of that call and short diffs of its text files. A command is one change, when it has ended. Kept for
        14 days and up to 2 GiB unless the operator sets otherwise. What git tools changed is not recorded: git_status
        and git_diff show that.
        """
        journal, role = self._recorder.journal, self._recorder.role
        if change is not None:
            return self._details(self._found(change))
        changes = [one for one in journal.changes(role, self._root_paths) if before is None or one.id < before]
        counts = [_counted(journal.counts(one.id)) for one in changes[:limit]]
        held = f"[the journal has {journal.size()[1]} bytes of at most {self._limits.undo_bytes}]"
        return ChangeList.of(changes, counts, limit=limit, budget=content_bytes(self._limits), held=held)

    @same_policy_as("write_file", "delete_file")
    @tool(Effect.CHANGE, title="Undo file changes")
    def undo(
        self,
        *,
        change: Annotated[ChangeId | None, Aliases("id", "change_id")] = None,
        since: Annotated[
            str | Annotated[int, Field(ge=1, le=_MOST_ID)] | None,
            Field(
                description="Take back this change, by its id, and every later one; or every change after the "
                "checkpoint of this name. Excludes `change`"
            ),
        ] = None,
        paths: Annotated[
            list[str] | None,
            Field(description="Take back only these files, and what is in these directories; by default all"),
        ] = None,
        dry_run: Annotated[
            bool, Field(description="Return what would be taken back and change nothing; default false")
        ] = False,
    ) -> UndoResult:
        """Take back one change of a file tool or command, some of its paths, or everything since a point.

        Restores content, permissions, times and former names, brings back deleted files and directories, and removes
        what was created. Nothing newer is lost: a path that was changed again since then is left as it is and named
        with the difference, and a directory with entries made later stays. Returns the paths, and the id of the undo
        itself, which can be taken back in the same way. Give `change` or `since`. list_changes has the ids. It does not
        take back what git tools changed, nor commits, branches and stashes of a command: for git, the answers name the
        call that undoes it. Example: {"change": 12}.
        """
        if (change is None) == (since is None):
            raise InvalidArguments(
                f"give either change, the id of one change, or since, an id or a checkpoint{self._newest()}"
            )
        if change is not None:
            found = self._found(change)
            return self._undo(
                [found], f"change {change} ({found.tool} {found.summary})".strip(), paths, dry_run=dry_run
            )
        assert since is not None
        first = self._first(since)
        later = [
            one
            for one in self._recorder.journal.changes(self._recorder.role, self._root_paths, since=first - 1)
            if one.undone_by is None and one.tool not in ("undo", "restore")
        ]
        return self._undo(later, f"{len(later)} changes since {since}", paths, dry_run=dry_run)

    @tool(Effect.CHANGE, title="Set checkpoint", profiles=("all",))
    def checkpoint(
        self,
        name: Annotated[
            str, Field(description="Name of the point: a letter, then up to 63 letters, digits, `.`, `_` or `-`")
        ],
    ) -> ChangeResult:
        """Name this point in time, so that every later change of file tools and commands can be taken back together.

        Returns the id of the last change before it. It copies nothing. A name that exists is moved to now. Take the
        changes back by restore with this name, or by undo with `since`. What git tools change is not recorded: for that
        commit with git_commit.
        """
        if not _CHECKPOINT_NAME.fullmatch(name):
            raise InvalidArguments(
                f"name: {name!r:.80} is not one; use a letter, then letters, digits, '.', '_' or '-'"
            )
        last = self._recorder.journal.set_checkpoint(self._recorder.role, name)
        message = f"{name} is after change {last}; restore name='{name}' takes back every later change"
        uncovered = "; ".join(self._recorder.uncovered())
        if uncovered:
            message += f", but not {uncovered}"
        return ChangeResult(message=message, details={"change": last})

    @same_policy_as("write_file", "delete_file")
    @tool(Effect.CHANGE, title="Restore checkpoint", profiles=("all",))
    def restore(
        self,
        name: Annotated[str, Field(description="Name that checkpoint gave the point")],
        *,
        dry_run: Annotated[
            bool, Field(description="Return what would be taken back and change nothing; default false")
        ] = False,
    ) -> UndoResult:
        """Take back every change of file tools and commands since a checkpoint, as undo with `since` does.

        Returns what undo returns: the paths, and the id of the undo. Paths that somebody else changed since then are
        left as they are, and named. list_changes shows the changes one by one; for a single one use undo.
        """
        return self.undo(since=name, dry_run=dry_run)

    @channels("command-line", "repl")
    @tool(Effect.CHANGE, title="Forget changes")
    def forget_changes(
        self,
        *,
        older_than_days: Annotated[
            float, Field(ge=0, description="Forget only changes that are older than so many days; 0 forgets all")
        ] = 0.0,
    ) -> ChangeResult:
        """Empty the journal of changes, of all projects, so that they can't be taken back any more.

        Returns how many changes and bytes were in it before and are now. For people: agents can't call it.
        """
        journal = self._recorder.journal
        before = journal.size()
        journal.trim(Bounds(size=self._limits.undo_bytes, days=older_than_days, changes=self._limits.undo_changes))
        journal.forget_unknown()
        after = journal.size()
        message = (
            f"{journal.directory}: {before[0]} changes with {before[1]} bytes before, {after[0]} with {after[1]} now"
        )
        return ChangeResult(message=message, details={"changes": after[0], "bytes": after[1]})

    @property
    def _root_paths(self) -> set[str]:
        return {root.path for root in self._roots}

    def _found(self, change: int) -> Change:
        found = self._recorder.journal.find(self._recorder.role, self._root_paths, change)
        if found is None:
            raise NotFound(
                f"change {change}: there is none in these roots, or it is forgotten; list_changes lists them"
                f"{self._newest()}"
            )
        return found

    def _newest(self) -> str:
        """Name the newest change, for an error."""
        changes = self._recorder.journal.changes(self._recorder.role, self._root_paths)
        newest = next((one for one in changes if one.undone_by is None), None)
        return "" if newest is None else f"; the newest is {newest.id} ({newest.tool} {newest.summary})"

    def _first(self, since: int | str) -> int:
        """The id of the first change since a point."""
        if isinstance(since, int) or (since.isdecimal() and len(since) < 16):
            return self._found(int(since)).id
        points = self._recorder.journal.checkpoints(self._recorder.role)
        if since not in points:
            known = ", ".join(points) or "none"
            raise NotFound(
                f"since: {printable(since)} is neither the id of a change nor a checkpoint; there are: {known}"
            )
        return points[since] + 1

    def _undo(self, changes: Sequence[Change], what: str, paths: list[str] | None, *, dry_run: bool) -> UndoResult:
        """Take back these changes, given with the newest first."""
        entries = [entry for one in reversed(changes) for entry in self._recorder.journal.entries(one.id)]
        if paths is not None:
            wanted = [self._roots.place(path) for path in paths]
            entries = [one for one in entries if any(_is_in(one, place) for place in wanted)]
            if not entries:
                raise NotFound(f"{what}: touched none of these paths; list_changes change=... lists its paths")
        with self._recorder.operation("undo", what):
            done = Undo(self._roots, self._recorder, is_dry_run=dry_run).take_back(entries)
            made = self._recorder.change
        diffs = self._diffs([one.entry for one in done.kept])
        return UndoResult.of(what, done, change=made, is_dry_run=dry_run, diffs=diffs)

    def _details(self, change: Change) -> ChangeDetails:
        entries = self._recorder.journal.entries(change.id)
        lines = [_described(one) for one in entries]
        shown = fitting(lines, content_bytes(self._limits) // 2)
        headline = f"change {change.id}: {change.tool} {change.summary}".rstrip()
        if change.undone_by:
            headline += f" (taken back by {change.undone_by})"
        diffs = self._diffs(entries)
        return ChangeDetails(headline=headline, paths=shown, left_out=len(lines) - len(shown), diffs=diffs)

    def _diffs(self, entries: Sequence[EntryChange]) -> str:
        """Short diffs from the content before a change to what is there now, of a few text files."""
        diffs: list[str] = []
        for entry in entries[:_CONSIDERED_FILES]:
            if len(diffs) == _DIFFED_FILES:
                break
            with suppress(CoreError, OSError):
                diffs.append(self._diff(entry))
        return "\n".join(fitting(filter(None, diffs), content_bytes(self._limits) // 2))

    def _diff(self, entry: EntryChange) -> str:
        root = next((root for root in self._roots if root.path == entry.root), None)
        if root is None or entry.moved_path or "file" not in (entry.before.kind, entry.after.kind):
            return ""
        place = RootedPath(root, entry.path)
        before, now = contents_around(self._roots, self._recorder.journal.contents, entry, place)
        display_path = self._roots.display_path(place)
        texts = [decode(data, display_path).text if data else "" for data in (before, now)]
        return foreign_diff(*texts, display_path=display_path) if texts[0] != texts[1] else ""


def _is_in(entry: EntryChange, place: RootedPath) -> bool:
    return any(
        root == place.root.path and (place.relative == "." or f"{path}/".startswith(f"{place.relative}/"))
        for root, path in ((entry.root, entry.path), (entry.moved_root, entry.moved_path))
    )


def _described(entry: EntryChange) -> str:
    to = f" to {printable(entry.moved_path)}" if entry.moved_path else ""
    mark = "/" if "directory" in (entry.before.kind, entry.after.kind) else ""
    return f"{verb_of(entry)} {printable(entry.path)}{mark}{to}"


def _counted(groups: Iterable[tuple[str, str, bool, int]]) -> str:
    counts = Counter[str]()
    for before, after, is_moved, count in groups:
        counts[verb(before, after, is_moved=is_moved)] += count
    return ", ".join(f"{count} {verb}" for verb, count in counts.items())
