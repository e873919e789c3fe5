"""Start a merge.

git starts no other process here, so what git itself gives to another git process is done by separate calls: a true
merge is `git merge-recursive` and a commit.
"""

from collections.abc import Mapping
from contextlib import suppress

from coretools.errors import CoreError, GitRefused
from coretools.roots import directory_access
from coretools.tools.git.changes.identity import identity
from coretools.tools.git.changes.messages import check_message
from coretools.tools.git.changes.outcomes import ended, failure, move_head, ready, stopped
from coretools.tools.git.changes.position import Position
from coretools.tools.git.changes.stash_commits import conflicted
from coretools.tools.git.changes.writable import (
    NO_RENAMES,
    picked_names,
    reached_by_rename,
    refuse_staged_outside,
    require_writable_names,
)
from coretools.tools.git.reading.references import HEADS, has_reference
from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import single_line
from coretools.tools.git.repository.results import TextResult, answer

_COMMIT = ("commit", "--no-verify", "--no-gpg-sign", "--quiet", "--cleanup=whitespace")


async def merge(repository: OpenRepository, *, revision: str, message: str, fast_forward: bool) -> TextResult:
    """Merge a revision into the current branch.

    Raises:
        GitRefused: another operation is in progress, uncommitted changes are in the way, or there is nothing in common.
    """
    checkout = repository.checkout
    here = await ready(repository)
    [target] = await repository.resolved(revision)
    bases = (await repository.run("merge-base", "--all", here.commit, target)).stdout.text().split()
    if not bases:
        raise GitRefused(f"{revision}: has no commit in common with HEAD")
    if bases == [target]:
        return answer(checkout, ["already up to date"], details={"commit": here.commit})
    names = await picked_names(repository, [f"{target} {base}" for base in bases])
    await require_writable_names(repository, names)
    if bases == [here.commit] and fast_forward:
        words = ("merge", "--ff-only", "--quiet", "--no-progress", target)
        await move_head(repository, *words, here=here.commit, target=target, names=names)
        return await ended(repository, here, "merged by fast-forward")
    await refuse_staged_outside(repository)
    text = message.strip() or await _merge_message(repository, here, revision)
    text = repository.git.setup.with_trailer(text).strip()
    check_message(text)
    options = await identity(repository)
    if await reached_by_rename(repository, names, [target]):
        options = (*options, *NO_RENAMES)
    await repository.run("update-index", "-q", "--refresh")
    labelled = repository.with_environment({f"GITHEAD_{target}": single_line(revision)})
    # git takes the mode literally: with a newline it would drop a parent that the other one contains.
    _begin_merge(checkout, {"MERGE_MSG": f"{text}\n", "MERGE_MODE": "no-ff", "MERGE_HEAD": f"{target}\n"})
    completed = await labelled.run("merge-recursive", "--", "HEAD", target, options=options)
    if completed.exit_code not in (0, 1):
        _forget_merge(checkout)
        raise failure(completed, "merge")
    if await conflicted(repository):
        return await stopped(repository, "merge")
    committed = await repository.run(*_COMMIT, "--file=-", options=options, stdin=text.encode())
    if not committed.ok:
        raise failure(committed, "commit", "; merged, but not committed: git_continue commits it, or aborts the merge")
    return await ended(repository, here, "merged")


def _begin_merge(checkout: Checkout, files: Mapping[str, str]) -> None:
    """Write the files by which git knows that a merge is in progress, before anything else is changed."""
    try:
        for name, content in files.items():
            directory_access.remove_file(checkout.git_handle, name)
            directory_access.create_file(checkout.git_handle, name, content.encode())
    except CoreError:
        _forget_merge(checkout)
        raise


def _forget_merge(checkout: Checkout) -> None:
    for name in ("MERGE_HEAD", "MERGE_MODE", "MERGE_MSG"):
        with suppress(CoreError):
            directory_access.remove_file(checkout.git_handle, name)


async def _merge_message(repository: OpenRepository, here: Position, revision: str) -> str:
    """Return the message that git would use."""
    is_branch = await has_reference(repository, f"{HEADS}{revision}")
    into = "" if here.branch in ("main", "master") else f" into {here.branch or 'HEAD'}"
    return f"Merge {'branch' if is_branch else 'commit'} '{revision}'{into}"
