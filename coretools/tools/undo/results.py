"""Results of the undo tools, and their text."""

import time
from collections.abc import Sequence

from coretools.operations.content import Result
from coretools.tools.answer_budget import cut_line, fitting
from coretools.truncation import and_more
from coretools.undo.change import Change
from coretools.undo.taking_back import TakenBack

_SHOWN_PATHS = 20
"""Paths of one kind that are listed."""


class ChangeList(Result):
    """Changes, the newest first."""

    lines: list[str]
    left_out: int
    oldest: int
    """The change with the smallest id that is shown."""
    held: str
    """How full the journal is."""

    @classmethod
    def of(
        cls, changes: Sequence[Change], counts: Sequence[str], *, limit: int, budget: int, held: str
    ) -> "ChangeList":
        """Build the result from changes and what each did."""
        rows = [_row(change, count) for change, count in zip(changes[:limit], counts, strict=False)]
        lines = fitting(map(cut_line, rows), budget)
        oldest = changes[len(lines) - 1].id if lines else 0
        return cls(lines=lines, left_out=len(changes) - len(lines), oldest=oldest, held=held)

    def text(self) -> str:
        """One change per line."""
        if not self.lines:
            return "[no recorded change]"
        more = [f"[{self.left_out} older changes: before={self.oldest} lists them]"] if self.left_out else []
        return "\n".join([*self.lines, *more, self.held])

    def facts(self) -> dict[str, object]:
        """Number of changes shown and left out."""
        return {"changes": len(self.lines), "left_out": self.left_out}


class ChangeDetails(Result):
    """One change: its paths, and diffs of text files."""

    headline: str
    paths: list[str]
    left_out: int
    diffs: str

    def text(self) -> str:
        """Headline, one path per line with what happened to it, then the diffs."""
        more = [f"[{self.left_out} more paths]"] if self.left_out else []
        return "\n".join([self.headline, *self.paths, *more, *([self.diffs] if self.diffs else [])])

    def facts(self) -> dict[str, object]:
        """Number of paths."""
        return {"paths": len(self.paths) + self.left_out}


class UndoResult(Result):
    """What was taken back, and what was left as it is, with the reason."""

    message: str
    kept: list[str]
    diffs: str
    undone: int
    change: int

    @classmethod
    def of(cls, what: str, done: TakenBack, *, change: int, is_dry_run: bool, diffs: str) -> "UndoResult":
        """Build the result of an undo, which is itself the change with this id."""
        parts = [
            f"{verb} {and_more(paths[:_SHOWN_PATHS], len(paths))}"
            for verb, paths in (("restored", done.restored), ("removed", done.removed), ("moved back", done.moved))
            if paths
        ]
        undone = len(done.restored) + len(done.removed) + len(done.moved)
        start = f"{'would take back' if is_dry_run else 'took back'} {what}: "
        nothing = "nothing" if done.kept else "nothing, since everything is as before it"
        message = start + ("; ".join(parts) or nothing)
        if change and not is_dry_run and undone:
            message += f". This is change {change}: undo change={change} takes the undo back"
        kept = [f"{one.path}: {one.reason}" for one in done.kept]
        return cls(message=message, kept=kept, diffs=diffs, undone=undone, change=change)

    def text(self) -> str:
        """The sentence; then what was left as it is, and the differences."""
        if not self.kept:
            return self.message
        shown = self.kept[:_SHOWN_PATHS]
        more = [f"[{len(self.kept) - len(shown)} more]"] if len(self.kept) > len(shown) else []
        head = "left as they are, so that nothing newer is lost:"
        return "\n".join([self.message, head, *shown, *more, *([self.diffs] if self.diffs else [])])

    def facts(self) -> dict[str, object]:
        """Numbers, and the id of this change."""
        return {"undone": self.undone, "kept": len(self.kept), "change": self.change}


def _row(change: Change, count: str) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.at))
    undone = f" (taken back by {change.undone_by})" if change.undone_by else ""
    return f"{change.id}\t{at}\t{change.tool}\t{change.summary}\t{count}{undone}"
