"""Continue, skip or abort a merge, rebase, cherry-pick or revert that stopped.

git would commit a resolved conflict in another process; here a call of its own does, and git then goes on. The
unfinished operation is examined first (`operation_state`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from coretools.errors import GitRefused, InvalidArguments
from coretools.tools.git.changes.identity import identity
from coretools.tools.git.changes.messages import check_message
from coretools.tools.git.changes.outcomes import ended, outcome
from coretools.tools.git.changes.position import Position, born
from coretools.tools.git.changes.signing import sign_head
from coretools.tools.git.changes.stash_commits import conflicted
from coretools.tools.git.changes.writable import (
    changed_names,
    overwritten_by_reset,
    picked_names,
    reached_by_rename,
    refuse_outside,
    refuse_settings,
    refuse_staged_outside,
    require_visible_names,
    require_writable_names,
    settings_among,
)
from coretools.tools.git.merging.conflict_answers import resolve
from coretools.tools.git.merging.operation_state import Operation, operation_in_progress
from coretools.tools.git.repository.checkout import Checkout, display_paths
from coretools.tools.git.repository.open_repository import OpenRepository, require_success
from coretools.tools.git.repository.porcelain import as_text, encoded, read_records, single_line
from coretools.tools.git.repository.results import TextResult, answer, listed

_COMMIT = ("commit", "--no-verify", "--no-gpg-sign", "--quiet", "--cleanup=whitespace")
_AUTHOR = ("log", "--max-count=1", "--no-mailmap", "--no-show-signature", "--format=%an <%ae>%x00%aI%x00")


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """How an operation goes on."""

    action: str
    """`continue`, `skip`, `abort`, or `resolve`: only apply the resolutions."""
    message: str
    resolutions: Mapping[str, Any]
    """Answers to conflicts, by path."""

    def is_resolution(self, checkout: Checkout) -> bool:
        """Whether conflicts are only resolved: nothing goes on, or nothing is in progress (after `git_stash`)."""
        return self.action == "resolve" or (bool(self.resolutions) and not checkout.in_progress)


async def resume(repository: OpenRepository, options: ResumeOptions) -> TextResult:
    """Resolve conflicts by the resolutions, then continue, skip or abort the operation in progress.

    Raises:
        GitRefused: none is in progress, it has what is not run here, or a conflict is not resolved.
    """
    if options.resolutions and options.action not in ("continue", "resolve"):
        raise InvalidArguments(f"resolutions: go with action 'continue' or 'resolve', not {options.action!r}")
    check_message(options.message)
    checked = None if options.is_resolution(repository.checkout) else await _checked(repository, options)
    lines = await resolve(repository, options.resolutions) if options.resolutions else ["nothing was resolved"]
    if checked is None or (options.resolutions and await conflicted(repository)):
        return answer(repository.checkout, lines, details={"stopped": bool(repository.checkout.in_progress)})
    result = await _go_on(repository, *checked, options)
    return (
        TextResult(body="\n".join([*lines[:1], result.body]), details=result.details) if options.resolutions else result
    )


async def _checked(repository: OpenRepository, options: ResumeOptions) -> tuple[Operation, Position]:
    """Return the operation in progress and where HEAD is, if all that it goes on to change may be changed.

    Raises:
        DeniedPath, GitRefused: names what may not; nothing was changed.
    """
    operation = operation_in_progress(repository.checkout)
    here = await born(repository)
    is_abort = options.action == "abort"
    back = operation.start if is_abort and operation.start else here.commit
    differing = await changed_names(repository, back)
    await require_visible_names(repository, differing)
    if options.action == "continue":
        cure = f"git_continue would commit them; with the root {repository.checkout.directory.path} it can be done"
        await refuse_staged_outside(repository, cure)
    else:
        is_hard = operation.name == "rebase"
        differing += await overwritten_by_reset(repository) if is_hard else []
        settings = settings_among(repository, differing)
        staged = await changed_names(repository, "--cached", back)
        refuse_outside(repository.checkout, sorted({*staged, *(differing if is_hard else [])}))
        # Other operations are reset with --merge, which leaves alone what is not staged.
        if settings and not is_hard:
            settings = settings_among(repository, staged)
        refuse_settings(settings)
    if operation.remaining and not is_abort:
        commits = await repository.resolved(*operation.remaining)
        names = await picked_names(repository, commits)
        await require_writable_names(repository, names)
        refuse_settings(await reached_by_rename(repository, names, commits))
    return operation, here


async def _go_on(
    repository: OpenRepository, operation: Operation, here: Position, options: ResumeOptions
) -> TextResult:
    if options.action == "abort":
        return await _abort(repository, operation, here)
    operation.require_no_editor()
    if options.action == "continue":
        await _commit_resolution(repository, operation, here, message=options.message)
    else:
        await _prepare_skip(repository, operation)
    here = replace(here, commit=operation.start or here.commit, branch=operation.branch or here.branch)
    if not operation.has_more:
        return await ended(repository, here, f"{operation.name} ended")
    # git itself skips one commit of a sequence by a reset and then continues.
    word = "skip" if options.action == "skip" and operation.is_skipped_by_git else "continue"
    completed = await repository.run(operation.name, f"--{word}", options=await identity(repository))
    return await outcome(repository, completed, here=here, name=operation.name)


async def _prepare_skip(repository: OpenRepository, operation: Operation) -> None:
    """Leave out the commit at which an operation stopped, where git does not do that by itself.

    Without a fixup the commit gets the message that it has by now: within a group git keeps the messages of all joined
    commits, as comments, until the last of them.

    Raises:
        InvalidArguments: a merge has no commits to skip.
    """
    if operation.name == "merge":
        raise InvalidArguments("action: a merge has nothing to skip; abort or continue it")
    if operation.is_skipped_by_git:
        return
    await repository.output("reset", "--merge", "--quiet")
    if operation.stopped_at == "fixup":
        words = ("--amend", "--allow-empty", *operation.message_words)
        options = await identity(repository)
        require_success(await repository.run(*_COMMIT, *words, options=options, stdin=operation.message), "commit")


async def _commit_resolution(repository: OpenRepository, operation: Operation, here: Position, *, message: str) -> None:
    """Commit a resolved conflict, with the author and message of the commit that it comes from."""
    conflicts = await conflicted(repository)
    if conflicts:
        files = listed(display_paths(repository.checkout, conflicts))
        raise GitRefused(
            f"conflicts are not resolved: {files}; resolve them (resolutions), or edit the files and git_add them"
        )
    staged = await repository.run("diff", "--cached", "--quiet", "--ignore-submodules=all", "--no-ext-diff")
    is_moved = bool(operation.amended) and operation.amended != here.commit
    if is_moved and staged.exit_code:
        raise GitRefused("HEAD has moved since the rebase stopped; git_commit what is staged, then continue")
    has_message = bool(message.strip())
    if is_moved or (staged.exit_code == 0 and not operation.is_committed_unchanged(has_message=has_message)):
        if operation.has_commit and operation.name != "rebase":
            raise GitRefused("nothing is staged; git_add what you resolved, or git_continue action='skip'")
        return
    words, stdin = await _resolution_words(repository, operation, message=message)
    options = await identity(repository)
    require_success(await repository.run(*_COMMIT, *words, options=options, stdin=stdin), "commit")
    await sign_head(repository, before=None)


async def _resolution_words(
    repository: OpenRepository, operation: Operation, *, message: str
) -> tuple[list[str], bytes | None]:
    """Return the options of `git commit` for message and author, and the message.

    In a rebase it knows the author only by our word.
    """
    given = encoded(repository.git.setup.with_trailer(message)) if message.strip() else None
    if operation.stopped_at == "edit":
        return ["--amend", *(["--file=-"] if given else ["--no-edit"])], given
    if operation.stopped_at == "fixup":
        return ["--amend", "--allow-empty", *operation.message_words], given or operation.message
    if operation.name != "rebase":
        # git's own message has a commented list of the paths in conflict.
        return (["--file=-"] if given else ["--no-edit", "--cleanup=strip"]), given
    [commit] = await repository.resolved("REBASE_HEAD")
    if not given:
        return [f"--reuse-message={commit}"], None
    [[author, date]] = read_records(await repository.output(*_AUTHOR, commit), 2)
    return ["--file=-", f"--author={as_text(author)}", f"--date={as_text(date)}"], given


async def _abort(repository: OpenRepository, operation: Operation, here: Position) -> TextResult:
    if operation.name == "rebase":
        options = await identity(repository)
        require_success(await repository.run("rebase", "--abort", options=options), "rebase")
    else:
        # As git itself: commits that somebody added meanwhile stay.
        start = [operation.start] if operation.start and operation.reached == here.commit else []
        await repository.output("reset", "--merge", "--quiet", *start)
        if operation.has_more:
            await repository.output(operation.name, "--quit")
    now = await born(repository)
    where = now.branch or "HEAD"
    lines = [single_line(f"{operation.name} aborted; {where} is at {now.commit[:10]}")]
    again = {"cherry-pick": "git_cherry_pick", "revert": "git_revert"}.get(operation.name, f"git_{operation.name}")
    lines.append(f"Undo: {again}{operation.again}")
    return answer(repository.checkout, lines, details={"branch": now.branch, "commit": now.commit})
