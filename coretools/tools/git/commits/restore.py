"""Restore files of the work tree or the index, and reset HEAD. What is overwritten is kept as a stash commit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from coretools.errors import GitRefused, InvalidArguments
from coretools.tools.git.changes.position import Position, born, position
from coretools.tools.git.changes.stash_commits import conflicted, index_commit, kept
from coretools.tools.git.changes.writable import (
    changed_names,
    overwritten_by_reset,
    refuse_staged_outside,
    require_writable_names,
)
from coretools.tools.git.repository.checkout import Checkout, display_paths
from coretools.tools.git.repository.names import refuse_hidden, refuse_unknown
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import FROM_STDIN, read_names, terminated
from coretools.tools.git.repository.results import TextResult, answer, listed, paths_argument, undo_by_reset

_STAGED = ("--cached", "--ita-visible-in-index")
"""Options for all that is staged, also files of which only the name is."""

KEPT = "Undo for uncommitted changes: git_stash action='apply' stash="


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What a restore writes, and from where."""

    work_tree: bool
    index: bool
    source: str
    """A commit; empty: the index, or HEAD if the index is written."""
    side: str = ""
    """`ours` or `theirs` of a conflict."""

    @property
    def words(self) -> list[str]:
        """The options of `git restore`."""
        return [*(["--worktree"] if self.work_tree else []), *(["--staged"] if self.index else [])]

    def undo(self, paths: str) -> str:
        """How to undo a change of the work tree if nothing uncommitted was in the files; `paths` is an argument."""
        return f"git_restore what={'both' if self.index else 'worktree'!r} {paths}"


async def restore(repository: OpenRepository, *, names: Sequence[str], options: RestoreOptions) -> TextResult:
    """Restore everything at or beneath the names.

    Raises:
        DeniedPath: a file is hidden. NotFound: a name matches nothing. GitRefused: a conflict, and no side is chosen.
    """
    checkout = repository.checkout
    refuse_hidden(repository, names)
    await refuse_unknown(repository, names, trees=[options.source] * bool(options.source))
    if options.side:
        return await _take_side(repository, names=names, side=options.side)
    source = options.source or ((await position(repository)).commit if options.index else "")
    if options.index and not source:
        return await _unstage_all(repository, names)
    changed = await _differing(repository, names, options, source)
    if not changed:
        return answer(checkout, ["nothing to restore: no difference"], details={"restored": 0})
    stash = ""
    if options.work_tree:
        await require_writable_names(repository, changed)
        stash = await kept(repository, names=names)
        undo = options.undo(paths_argument(checkout, changed))
    else:
        undo = await _staging_again(repository, changed)
    where = (f"--source={source}",) if source else ()
    with naming_stash(stash):
        await repository.output("restore", *options.words, *where, *FROM_STDIN, stdin=terminated(changed))
    lines = [f"restored {len(changed)}: {listed(display_paths(checkout, changed))}"]
    if stash or undo:
        lines.append(f"{KEPT}{stash!r}" if stash else f"Undo: {undo}")
    return answer(checkout, lines, details={"restored": len(changed), "stash": stash})


async def _staging_again(repository: OpenRepository, names: Sequence[bytes]) -> str:
    """Return the call that stages these names again as they are staged now; "" while there is a conflict.

    A commit keeps the index if it differs from the work tree there.
    """
    if await conflicted(repository):
        return ""
    paths = paths_argument(repository.checkout, names)
    only_staged = {*names} & {*await changed_names(repository)}
    if only_staged:  # not those of which only the name is staged
        only_names = {*await changed_names(repository, *_STAGED)}
        only_staged -= only_names - {*await changed_names(repository, "--cached", "--ita-invisible-in-index")}
    if not only_staged:
        return f"git_add {paths}"
    return f"git_restore what='staged' revision={await index_commit(repository)!r} {paths}"


@contextmanager
def naming_stash(stash: str) -> Iterator[None]:
    """Name the stash commit of what was to be overwritten in an error: a filter may fail halfway."""
    try:
        yield
    except GitRefused as error:
        if not stash:
            raise
        raise GitRefused(f"{error}\n{KEPT}{stash!r}", exit_code=error.facts.get("exit_code")) from error


async def _differing(
    repository: OpenRepository, names: Sequence[str], options: RestoreOptions, source: str
) -> list[bytes]:
    """Return what a restore would change."""
    trees = [source] if source else []
    changed = await changed_names(repository, *trees, names=names) if options.work_tree else []
    staged = await changed_names(repository, *_STAGED, *trees, names=names) if options.index else []
    return sorted({*changed, *staged})


async def _unstage_all(repository: OpenRepository, names: Sequence[str]) -> TextResult:
    """Remove names from the index before the first commit, when there is nothing else to restore them from."""
    staged = read_names(await repository.output("ls-files", "-z", "--", *names))
    stdin = terminated(staged)
    undo = await _staging_again(repository, staged)
    await repository.output("update-index", "--force-remove", "-z", "--stdin", stdin=stdin)
    lines = [f"unstaged {len(staged)}: {listed(display_paths(repository.checkout, staged))}"]
    lines += [f"Undo: {undo}"] if undo else []
    return answer(repository.checkout, lines, details={"restored": len(staged)})


async def _take_side(repository: OpenRepository, *, names: Sequence[str], side: str) -> TextResult:
    """Resolve conflicts by one side: as it is there, or deleted if it is not."""
    checkout = repository.checkout
    if side == "conflict":
        return await _back_to_conflict(repository, names)
    every = await conflicted(repository, names)
    if not every:
        raise GitRefused("none of these paths is in conflict; leave out side")
    await require_writable_names(repository, every)
    present = await conflicted(repository, names, stage=2 if side == "ours" else 3)
    absent = terminated(sorted({*every} - {*present}))
    if present:
        await repository.output("checkout", f"--{side}", *FROM_STDIN, stdin=terminated(present))
        await repository.output("update-index", "--add", "-z", "--stdin", stdin=terminated(present))
    if absent:
        await repository.output("rm", "-q", "-f", *FROM_STDIN, stdin=absent)
    rest = await conflicted(repository)
    lines = [f"took {side} for {len(every)}: {listed(display_paths(checkout, every))}"]
    lines.append(f"in conflict: {listed(display_paths(checkout, rest))}" if rest else "no conflict is left")
    lines.append(f"Undo: git_restore side='conflict' {paths_argument(checkout, every)}")
    return answer(checkout, lines, details={"restored": len(every), "conflicts": len(rest)})


async def _back_to_conflict(repository: OpenRepository, names: Sequence[str]) -> TextResult:
    """Bring back the conflicts of resolved paths, as git remembers them until the commit."""
    records = read_names(await repository.output("ls-files", "--resolve-undo", "-z", "--", *names))
    resolved = sorted({record.partition(b"\t")[2] for record in records})
    conflicts = resolved or await conflicted(repository, names)
    if not conflicts:
        raise GitRefused("none of these paths was in conflict since the last commit")
    await require_writable_names(repository, conflicts)
    await repository.output("checkout", "--merge", *FROM_STDIN, stdin=terminated(conflicts))
    lines = [
        f"in conflict again: {listed(display_paths(repository.checkout, conflicts))}",
        "Undo: git_continue action='resolve' resolutions={path: ...}",
    ]
    return answer(repository.checkout, lines, details={"restored": len(conflicts), "conflicts": len(conflicts)})


async def reset(repository: OpenRepository, *, revision: str, mode: str, names: Sequence[str]) -> TextResult:
    """Reset HEAD to a commit, or the index at the names to that commit.

    Raises:
        InvalidArguments: paths with another mode. DeniedPath, GitRefused: see `require_writable_names`.
    """
    checkout = repository.checkout
    [target] = await repository.resolved(revision or "HEAD")
    if names:
        if mode != "mixed":
            raise InvalidArguments("paths: go with mode 'mixed'; git_restore writes files of the work tree")
        options = RestoreOptions(work_tree=False, index=True, source=target)
        return await restore(repository, names=names, options=options)
    before = await born(repository)
    where = before.branch or "HEAD"
    staged, overwritten = await _reset_names(repository, before, target=target, mode=mode)
    details = {"commit": target, "before": before.commit}
    is_needed = bool(staged or overwritten or checkout.in_progress or target != before.commit)
    if not is_needed and mode != "hard":  # which also writes files that git takes for unchanged without looking
        nothing = {"soft": ""}.get(mode, ", and nothing is staged")
        return answer(checkout, [f"nothing changed: {where} is at {target[:10]} already{nothing}"], details=details)
    stash = await kept(repository) if mode == "hard" else ""
    again = await _staging_again(repository, staged) if staged and mode != "hard" else ""
    with naming_stash(stash):
        await repository.output("reset", "--quiet", f"--{mode}", target)
    where += f" is at {target[:10]}{'' if target == before.commit else f'; it was at {before.commit[:10]}'}"
    unstaged = f"unstaged {len(staged)}: {listed(display_paths(checkout, staged))}"
    undo = _undo_lines(before, target, mode=mode, again=again, stash=stash)
    return answer(checkout, [where, *([unstaged] if again else []), *undo], details={**details, "stash": stash})


def _undo_lines(before: Position, target: str, *, mode: str, again: str, stash: str) -> list[str]:
    """Return how to undo a reset; `again` is the call that stages again what it unstaged."""
    lines = []
    if target != before.commit:
        lines.append(undo_by_reset(before.commit, "keep" if mode == "hard" else mode))
    if again:
        lines.append(f"{'Then' if lines else 'Undo'}: {again}")
    if stash:
        lines.append(f"{KEPT}{stash!r}")
    return lines


async def _reset_names(
    repository: OpenRepository, before: Position, *, target: str, mode: str
) -> tuple[list[bytes], list[bytes]]:
    """Return what a reset unstages, and the uncommitted changes that it overwrites.

    Raises:
        DeniedPath, GitRefused: see `require_writable_names` and `refuse_staged_outside`.
    """
    if mode == "soft":
        return [], []
    await refuse_staged_outside(repository, _keeps_staged(repository.checkout, mode))
    staged = await changed_names(repository, *_STAGED)
    if mode == "mixed":
        return staged, []
    if mode == "keep":
        await require_writable_names(repository, await changed_names(repository, before.commit, target))
        return staged, []
    overwritten = await changed_names(repository, target)
    overwritten += await overwritten_by_reset(repository)
    await require_writable_names(repository, overwritten)
    return staged, overwritten


def _keeps_staged(checkout: Checkout, mode: str) -> str:
    """Name the calls that leave alone what is staged outside the root."""
    paths = f"paths={[checkout.folder_path]!r}"
    here = f"git_restore what='both' {paths} discards changes of" if mode == "hard" else f"{paths} unstages"
    return f"mode {mode!r} would unstage them too: {here} the root alone, mode='soft' moves the branch alone"
