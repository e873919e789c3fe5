"""The status of a work tree: branch, changed paths, an unfinished operation and how to end it, the index lock."""

from collections.abc import Sequence
from dataclasses import replace

from coretools.operations.content import UnlessEmpty
from coretools.roots import directory_access
from coretools.tools.answer_budget import fitting, fitting_values
from coretools.tools.git.repository.checkout import Checkout, is_outside, path_of, shown_path
from coretools.tools.git.repository.porcelain import GitStatus, StatusEntry, as_text, quoted, read_status, single_line
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import GitResult, remarks

STATUS = (
    *("status", "--porcelain=v2", "--branch", "--show-stash", "-z", "--untracked-files=normal"),
    *("--ignore-submodules=all", "--ahead-behind", "--find-renames"),
)

_ENDS = {
    "merge": "git_continue action='continue', or action='abort'",
    "rebase": "git_continue action='continue', 'skip' or 'abort'",
    "cherry-pick": "git_continue action='continue', 'skip' or 'abort'",
    "revert": "git_continue action='continue', 'skip' or 'abort'",
    "cherry-pick or revert": "git_continue action='continue', 'skip' or 'abort'",
    "bisect": "git_bisect action='good', 'bad' or 'skip'; action='reset' ends it",
}
"""The calls that end an operation, once its conflicts are resolved."""

_OF_A_MAILBOX = "run_command git am --abort, or git rebase --abort"


async def uncommitted(repositories: Repositories) -> list[str]:
    """Return the paths, from the first root, that are there and not as in the last commit. A new directory is one path.

    Raises:
        CoreError: there is no repository that git tools can read.
    """
    async with repositories.opened(".") as opened:
        status = read_status(await opened.output(*STATUS))
        checkout = opened.checkout
    entries = [entry for entry in status.entries if not is_outside(checkout, entry.path)]
    return [as_text(path_of(checkout, entry.path)) for entry in entries if "D" not in entry.letters]


class StatusResult(GitResult):
    """Branch and changes of a work tree."""

    branch: str
    head: str
    upstream: UnlessEmpty[str]
    ahead: UnlessEmpty[int]
    behind: UnlessEmpty[int]
    clean: bool
    entries: list[dict[str, str]]
    omitted: UnlessEmpty[int]
    stashes: UnlessEmpty[int]
    operation: UnlessEmpty[str]
    """The unfinished operation, or ""."""
    end_with: UnlessEmpty[str]
    """The calls that end it."""
    lock: UnlessEmpty[str]
    """The lock of the index with its age and owner, or ""."""
    not_used: UnlessEmpty[list[str]]

    @classmethod
    def of(cls, status: GitStatus, checkout: Checkout, *, budget: int, lock: str) -> "StatusResult":
        """Build the result with the entries that fit into `budget` bytes, as text and as structured content.

        Of a work tree that begins above the root only those in the root are listed, and the others counted.
        """
        inside = tuple(entry for entry in status.entries if not is_outside(checkout, entry.path))
        status, outside = replace(status, entries=inside), len(status.entries) - len(inside)
        shown = fitting((_short(entry, checkout) for entry in status.entries), budget)
        fields = fitting_values((_fields(entry, checkout) for entry in status.entries), budget)
        kept = status.entries[: min(len(shown), len(fields))]
        result = cls(
            branch=status.branch,
            head=status.head,
            upstream=status.upstream,
            ahead=status.ahead,
            behind=status.behind,
            clean=not status.entries,
            entries=fields[: len(kept)],
            omitted=len(status.entries) - len(kept),
            stashes=status.stashes,
            operation=checkout.in_progress,
            end_with=_end(checkout),
            lock=lock,
            not_used=list(checkout.policy.not_used),
        )
        lines = _lines(status, checkout, result, shown[: len(kept)])
        lines += [*_elsewhere(checkout, outside), *remarks(checkout)]
        return result.with_text(lines, {"tier": checkout.tier})


def _elsewhere(checkout: Checkout, count: int) -> list[str]:
    if not count:
        return []
    where = f"the folder {checkout.folder} of {checkout.directory.path}, which git tools don't change"
    way = f"git_diff base='HEAD' paths={[shown_path(checkout, '.')]!r} shows those that git tracks"
    return [f"[{count} more changed paths outside {where}; {way}]"]


def _lines(status: GitStatus, checkout: Checkout, result: StatusResult, entries: Sequence[str]) -> list[str]:
    lines = [_where(status, checkout), *entries]
    if not status.entries:
        lines.append("clean: nothing to commit")
    if result.omitted:
        lines.append(
            f"[{result.omitted} more entries; run_command with git status --short PATH lists those of a directory]"
        )
    if result.operation:
        has_conflict = any(entry.in_conflict for entry in status.entries)
        first = "resolve the conflicts (git_conflicts shows them), git_add them, then " if has_conflict else ""
        lines.append(f"[{result.operation} in progress: {first}{result.end_with}]")
    if result.lock:
        lines.append(f"[the index is locked: {result.lock}]")
    return lines


def _end(checkout: Checkout) -> str:
    if checkout.in_progress == "rebase" and directory_access.entry_kind(checkout.git_handle, "rebase-apply"):
        return _OF_A_MAILBOX
    return _ENDS.get(checkout.in_progress, "")


def _where(status: GitStatus, checkout: Checkout) -> str:
    following = ""
    if status.upstream:
        distance = f"ahead {status.ahead}, behind {status.behind}" if status.has_distance else "which is gone"
        following = f", upstream {status.upstream}, {distance}"
    waiting = f", {checkout.in_progress} in progress" if checkout.in_progress else ""
    stashes = f", {status.stashes} stashed" if status.stashes else ""
    return single_line(f"{status.where}{following}{waiting}{stashes}")


def _fields(entry: StatusEntry, checkout: Checkout) -> dict[str, str]:
    origin = "" if entry.origin is None else as_text(path_of(checkout, entry.origin))
    fields = {"staged": entry.staged, "unstaged": entry.unstaged, "from": origin}
    return {"path": as_text(path_of(checkout, entry.path)), **{name: text for name, text in fields.items() if text}}


def _short(entry: StatusEntry, checkout: Checkout) -> str:
    source = "" if entry.origin is None else f"{quoted(path_of(checkout, entry.origin))} -> "
    return f"{entry.letters.replace('.', ' ')} {source}{quoted(path_of(checkout, entry.path))}"
