"""Answers for merges, rebases and the like: one ended, or it stopped at a conflict and can be continued."""

from collections.abc import Sequence
from dataclasses import replace

from coretools.errors import GitRefused
from coretools.process.run import Completed
from coretools.roots import directory_access
from coretools.tools.git.changes.position import Position, born
from coretools.tools.git.changes.stash_commits import conflicted
from coretools.tools.git.changes.writable import changed_names
from coretools.tools.git.repository.checkout import display_paths
from coretools.tools.git.repository.open_repository import OpenRepository, failure_message
from coretools.tools.git.repository.porcelain import single_line
from coretools.tools.git.repository.results import TextResult, answer, listed, paths_argument, undo_by_reset

MAX_COMMITS = 200
"""Most commits of one cherry-pick, revert or rebase."""


async def stopped(repository: OpenRepository, name: str) -> TextResult:
    """Return the answer for an operation that stopped at a conflict."""
    conflicts = await conflicted(repository)
    files = display_paths(repository.checkout, conflicts)
    what = f"in conflict: {listed(files)}" if files else "there is nothing to commit: its changes are there already"
    lines = [f"{name} stopped; {what}"]
    if files:
        lines.append(
            "Both sides: git_conflicts. Resolve: git_continue resolutions={path: 'ours', ...}, or edit and git_add"
        )
    then = "git_continue action='continue'" if files else "git_continue action='skip'"
    lines.append(f"Then: {then}. Undo: git_continue action='abort'")
    return answer(repository.checkout, lines, details={"stopped": True, "operation": name, "conflicts": len(files)})


async def ready(repository: OpenRepository) -> Position:
    """Return where HEAD is.

    Raises:
        GitRefused: there is no commit yet, or an operation is in progress.
    """
    if repository.checkout.in_progress == "bisect":
        raise GitRefused("a bisect is in progress; git_bisect action='reset' ends it")
    if repository.checkout.in_progress:
        raise GitRefused(f"a {repository.checkout.in_progress} is in progress; git_continue continues or aborts it")
    return await born(repository)


async def outcome(
    repository: OpenRepository, completed: Completed, *, here: Position, name: str, unchanged: str = ""
) -> TextResult:
    """Return the answer for a sequence of commits: it ended, or stopped at one of them. For `unchanged` see `ended`."""
    entries = directory_access.entry_kinds(repository.checkout.git_handle)
    if completed.ok and "rebase-merge" not in entries:
        return await ended(repository, here, f"{name} ended", unchanged=unchanged)
    if completed.ok:
        return await _at_edit(repository)
    if {"CHERRY_PICK_HEAD", "REVERT_HEAD"} & entries.keys() or await conflicted(repository):
        return await stopped(repository, name)
    is_unfinished = {"rebase-merge", "sequencer"} & entries.keys()
    raise failure(completed, name, "; it is unfinished: git_continue action='abort'" if is_unfinished else "")


async def _at_edit(repository: OpenRepository) -> TextResult:
    """Return the answer for a rebase that stopped at an `edit` or `break`."""
    now = await born(repository)
    lines = [
        f"rebase stopped to edit {now.commit[:10]}; change files and git_add them, or git_commit amend=true",
        "Then: git_continue action='continue'. Undo: git_continue action='abort'",
    ]
    return answer(repository.checkout, lines, details={"stopped": True, "operation": "rebase", "commit": now.commit})


async def ended(repository: OpenRepository, before: Position, what: str, *, unchanged: str = "") -> TextResult:
    """Return the answer for an operation that ended, with the call that undoes it.

    `unchanged` says instead that nothing had to be done, if nothing was.
    """
    now = await born(repository)
    where = now.branch or "detached HEAD"
    if before.commit == now.commit:
        what = unchanged or f"{what}, and changed nothing"
    lines = [single_line(f"{what}: {where} is at {now.commit[:10]}")]
    if now.branch and before.commit != now.commit:
        lines.append(undo_by_reset(before.commit, "keep"))
    details = {"branch": now.branch, "commit": now.commit, "before": before.commit}
    return answer(repository.checkout, lines, details=details, hooks="commit")


async def move_head(repository: OpenRepository, *words: str, here: str, target: str, names: Sequence[bytes]) -> None:
    """Run a git command that goes from one commit to another, which differ in these names.

    git writes index and work tree first, and moves HEAD last. If another git has moved or locked it by then, they are
    put back.

    Raises:
        GitRefused: it failed, and what is left of it.
    """
    wanted = set(names)
    differed = wanted & set(await changed_names(repository, "--cached", target)) if here else set()
    completed = await repository.run(*words)
    if completed.ok:
        return
    if not differed or wanted & set(await changed_names(repository, "--cached", target)):
        raise failure(completed, words[0])  # the index is not at the target: git refused before it changed anything
    # What was staged as in the target already is somebody's work: it would be put back too.
    if differed == wanted and (await repository.run("read-tree", "-m", "-u", target, here)).ok:
        raise failure(completed, words[0], "; index and work tree were put back; try again")
    left = f"git_restore what='both' {paths_argument(repository.checkout, names)}"
    raise failure(completed, words[0], f"; its changes are left in index and work tree; {left} takes them back")


def failure(completed: Completed, name: str, then: str = "") -> GitRefused:
    """Return git's message as an error; some of it is on standard output."""
    if not completed.stderr.text().strip():
        completed = replace(completed, stderr=completed.stdout)
    return GitRefused(f"git {name}: {failure_message(completed)}{then}", exit_code=completed.exit_code)
