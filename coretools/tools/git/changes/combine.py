"""Combine branches: start a merge, cherry-pick, revert or rebase, and continue, skip or abort it.

git starts no other process here, so what git itself gives to another git process is done by separate calls: a true
merge (`git merge-recursive`), a commit after a conflict, and the reset when an operation is skipped or aborted.
`operation_state` examines an unfinished operation before git acts on it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from coretools.errors import CoreError, GitRefused, InvalidArguments
from coretools.process.run import Completed
from coretools.roots import directory_access
from coretools.roots.root_set import Roots
from coretools.tools.git.changes.commit import MESSAGE_BYTES, identity
from coretools.tools.git.changes.operation_state import Operation, operation_in_progress
from coretools.tools.git.changes.signing import sign_head
from coretools.tools.git.changes.work_tree import Position, born, changed_names, conflicted, require_writable_names
from coretools.tools.git.reading.history import HEADS
from coretools.tools.git.repository.checkout import Checkout, display_paths
from coretools.tools.git.repository.commands import Git, failure_message, require_success
from coretools.tools.git.repository.porcelain import as_text, read_names, read_records, single_line
from coretools.tools.git.repository.results import TextResult, answer, listed

MAX_COMMITS = 200
"""Most commits of one cherry-pick, revert or rebase."""

_TOUCHED = ("diff-tree", "-r", "-m", "--root", "--name-only", "-z", "--no-commit-id")

_COMMIT = ("commit", "--no-verify", "--no-gpg-sign", "--quiet", "--cleanup=whitespace")


@dataclass(frozen=True, slots=True)
class RebaseOptions:
    """What a rebase moves, and where to."""

    upstream: str
    """Commits that this has are not moved."""
    onto: str
    """Where they go; empty: onto `upstream`."""
    autosquash: bool


async def merge(
    roots: Roots, git: Git, checkout: Checkout, *, revision: str, message: str, fast_forward: bool
) -> TextResult:
    """Merge a revision into the current branch.

    Raises:
        GitRefused: another operation is in progress, uncommitted changes are in the way, or there is nothing in common.
    """
    here = await _ready(git, checkout)
    [target] = await git.resolved(checkout, revision)
    base = await git.run(checkout, "merge-base", here.commit, target)
    common = base.stdout.text().strip()
    if not common:
        raise GitRefused(f"{revision}: has no commit in common with HEAD")
    if common == target:
        return answer(checkout, ["already up to date"], details={"commit": here.commit})
    await require_writable_names(roots, git, checkout, await changed_names(git, checkout, common, target))
    if common == here.commit and fast_forward:
        require_success(await git.run(checkout, "merge", "--ff-only", "--quiet", "--no-progress", target), "merge")
        return await _ended(git, checkout, here, "merged by fast-forward")
    text = git.setup.with_trailer(message.strip() or await _merge_message(git, checkout, here, revision)).strip()
    _check_message(text)
    options = await identity(git, checkout)
    await git.run(checkout, "update-index", "-q", "--refresh")
    labelled = replace(checkout, environment={**checkout.environment, f"GITHEAD_{target}": single_line(revision)})
    _begin_merge(checkout, {"MERGE_MSG": text, "MERGE_MODE": "no-ff", "MERGE_HEAD": target})
    completed = await git.run(labelled, "merge-recursive", "--", "HEAD", target, options=options)
    if completed.exit_code not in (0, 1):
        _forget_merge(checkout)
        raise _failure(completed, "merge")
    if await conflicted(git, checkout):
        return await stopped(git, checkout, "merge")
    words = (*_COMMIT, "--file=-")
    require_success(await git.run(checkout, *words, options=options, stdin=text.encode()), "commit")
    return await _ended(git, checkout, here, "merged")


def _begin_merge(checkout: Checkout, files: Mapping[str, str]) -> None:
    """Write the files by which git knows that a merge is in progress, before anything else is changed."""
    try:
        for name, content in files.items():
            directory_access.remove_file(checkout.git_handle, name)
            directory_access.create_file(checkout.git_handle, name, f"{content}\n".encode())
    except CoreError:
        _forget_merge(checkout)
        raise


def _forget_merge(checkout: Checkout) -> None:
    for name in ("MERGE_HEAD", "MERGE_MODE", "MERGE_MSG"):
        with suppress(CoreError):
            directory_access.remove_file(checkout.git_handle, name)


async def pick(
    roots: Roots, git: Git, checkout: Checkout, *, revisions: Sequence[str], revert: bool, mainline: int
) -> TextResult:
    """Apply (or revert) commits, one after the other in the order given; a range `a..b` from old to new.

    Raises:
        GitRefused: another operation is in progress, or uncommitted changes are in the way.
    """
    here = await _ready(git, checkout)
    commits = await _commits(git, checkout, revisions, newest_first=revert)
    for commit in commits:
        await require_writable_names(roots, git, checkout, read_names(await git.output(checkout, *_TOUCHED, commit)))
    words = ["revert", "--no-edit"] if revert else ["cherry-pick", "--allow-empty"]
    words += ["--strategy=ort", *([f"--mainline={mainline}"] if mainline else [])]
    completed = await git.run(checkout, *words, *commits, options=await identity(git, checkout))
    return await _outcome(git, checkout, completed, here=here, name=words[0])


async def rebase(roots: Roots, git: Git, checkout: Checkout, options: RebaseOptions) -> TextResult:
    """Rebase the current branch.

    Raises:
        GitRefused: another operation is in progress, or there are uncommitted changes.
    """
    here = await _ready(git, checkout)
    [upstream, onto] = await git.resolved(checkout, options.upstream, options.onto or options.upstream)
    moved = (await git.output(checkout, "rev-list", f"{upstream}..{here.commit}")).split()
    if len(moved) > MAX_COMMITS:
        raise GitRefused(f"would move {len(moved)} commits, at most {MAX_COMMITS} are here; use git itself")
    words = ("log", "--format=", "--name-only", "-z", "-m", f"{upstream}..{here.commit}")
    names = {name.strip(b"\n") for name in read_names(await git.output(checkout, *words))}
    names |= set(await changed_names(git, checkout, here.commit, onto))
    await require_writable_names(roots, git, checkout, names - {b""})
    words = ("--merge", "--no-fork-point", "--no-gpg-sign", "--no-verify", "--no-stat", "--quiet")
    how = ("--interactive", "--autosquash") if options.autosquash else ("--no-autosquash",)
    completed = await git.run(
        checkout, "rebase", *words, *how, f"--onto={onto}", upstream, options=await identity(git, checkout)
    )
    return await _outcome(git, checkout, completed, here=here, name="rebase")


async def resume(roots: Roots, git: Git, checkout: Checkout, *, action: str, message: str) -> TextResult:
    """Continue, skip or abort the operation in progress.

    Raises:
        GitRefused: none is in progress, it has what is not run here, or a conflict is not resolved.
    """
    operation = operation_in_progress(checkout)
    here = await born(git, checkout)
    back = operation.start if action == "abort" else ""
    await require_writable_names(roots, git, checkout, await changed_names(git, checkout, back or here.commit))
    if action == "abort":
        return await _abort(git, checkout, operation, here)
    if action == "continue":
        await _commit_resolution(git, checkout, operation, message=message)
    elif operation.name == "merge":
        raise InvalidArguments("action: a merge has nothing to skip; abort or continue it")
    elif operation.name != "rebase":
        await git.output(checkout, "reset", "--merge", "--quiet")
    here = replace(here, commit=operation.start or here.commit)
    if not operation.has_more:
        return await _ended(git, checkout, here, f"{operation.name} ended")
    # git itself skips one commit of a sequence by a reset and then continues.
    word = action if operation.name == "rebase" else "continue"
    completed = await git.run(checkout, operation.name, f"--{word}", options=await identity(git, checkout))
    return await _outcome(git, checkout, completed, here=here, name=operation.name)


async def stopped(git: Git, checkout: Checkout, name: str) -> TextResult:
    """Return the answer for an operation that stopped at a conflict."""
    conflicts = await conflicted(git, checkout)
    files = display_paths(checkout, conflicts)
    what = f"in conflict: {listed(files)}" if files else "there is nothing to commit: its changes are there already"
    lines = [f"{name} stopped; {what}"]
    if files:
        lines.append("Both sides: git_conflicts. Resolve: edit and git_add, or git_restore side='ours' or 'theirs'")
    then = "git_continue action='continue'" if files else "git_continue action='skip'"
    lines.append(f"Then: {then}. Undo: git_continue action='abort'")
    return answer(checkout, lines, details={"stopped": True, "operation": name, "conflicts": len(files)})


async def _ready(git: Git, checkout: Checkout) -> Position:
    if checkout.in_progress:
        raise GitRefused(f"a {checkout.in_progress} is in progress; git_continue continues or aborts it")
    return await born(git, checkout)


async def _commits(git: Git, checkout: Checkout, revisions: Sequence[str], *, newest_first: bool) -> list[str]:
    """Return the commits of revisions and ranges, in the order in which they are applied."""
    commits: list[str] = []
    for revision in revisions:
        start, dots, end = revision.partition("..")
        if not dots or end.startswith("."):
            commits += await git.resolved(checkout, revision)
            continue
        [first, last] = await git.resolved(checkout, start or "HEAD", end or "HEAD")
        words = ("rev-list", *(() if newest_first else ("--reverse",)), f"{first}..{last}")
        commits += (await git.output(checkout, *words)).decode("ascii").split()
    if not 0 < len(commits) <= MAX_COMMITS:
        raise InvalidArguments(f"revisions: name 1 to {MAX_COMMITS} commits; these are {len(commits)}")
    return commits


async def _commit_resolution(git: Git, checkout: Checkout, operation: Operation, *, message: str) -> None:
    """Commit a resolved conflict, with the author and message of the commit that it comes from."""
    _check_message(message)
    conflicts = await conflicted(git, checkout)
    if conflicts:
        files = listed(display_paths(checkout, conflicts))
        raise GitRefused(f"conflicts are not resolved: {files}; edit the files, then git_add them")
    staged = await git.run(checkout, "diff", "--cached", "--quiet", "--ignore-submodules=all", "--no-ext-diff")
    if staged.exit_code == 0 and operation.name != "merge":
        if operation.has_commit and operation.name != "rebase":
            raise GitRefused("nothing is staged; git_add what you resolved, or git_continue action='skip'")
        return
    words = await _resolution_words(git, checkout, operation, has_message=bool(message.strip()))
    options = await identity(git, checkout)
    stdin = git.setup.with_trailer(message).encode() if message.strip() else None
    require_success(await git.run(checkout, *_COMMIT, *words, options=options, stdin=stdin), "commit")
    await sign_head(git, checkout, before=None)


async def _resolution_words(git: Git, checkout: Checkout, operation: Operation, *, has_message: bool) -> list[str]:
    """Return the options of `git commit` for message and author. In a rebase it knows the author only by our word."""
    if operation.name != "rebase":
        # git's own message has a commented list of the paths in conflict.
        return ["--file=-"] if has_message else ["--no-edit", "--cleanup=strip"]
    [commit] = await git.resolved(checkout, "REBASE_HEAD")
    if not has_message:
        return [f"--reuse-message={commit}"]
    output = await git.output(checkout, "log", "--max-count=1", "--no-mailmap", "--format=%an <%ae>%x00%aI%x00", commit)
    [[author, date]] = read_records(output, 2)
    return ["--file=-", f"--author={as_text(author)}", f"--date={as_text(date)}"]


async def _abort(git: Git, checkout: Checkout, operation: Operation, here: Position) -> TextResult:
    if operation.name == "rebase":
        options = await identity(git, checkout)
        require_success(await git.run(checkout, "rebase", "--abort", options=options), "rebase")
    else:
        # As git itself: commits that somebody added meanwhile stay.
        start = [operation.start] if operation.start and operation.reached == here.commit else []
        await git.output(checkout, "reset", "--merge", "--quiet", *start)
        if operation.has_more:
            await git.output(checkout, operation.name, "--quit")
    now = await born(git, checkout)
    where = now.branch or "HEAD"
    lines = [single_line(f"{operation.name} aborted; {where} is at {now.commit[:10]}")]
    return answer(checkout, lines, details={"branch": now.branch, "commit": now.commit})


async def _outcome(git: Git, checkout: Checkout, completed: Completed, *, here: Position, name: str) -> TextResult:
    """Return the answer for a sequence of commits: it ended, or stopped at one of them."""
    if completed.ok:
        return await _ended(git, checkout, here, f"{name} ended")
    entries = directory_access.entry_kinds(checkout.git_handle)
    if {"CHERRY_PICK_HEAD", "REVERT_HEAD"} & entries.keys() or await conflicted(git, checkout):
        return await stopped(git, checkout, name)
    is_unfinished = {"rebase-merge", "sequencer"} & entries.keys()
    raise _failure(completed, name, "; it is unfinished: git_continue action='abort'" if is_unfinished else "")


async def _ended(git: Git, checkout: Checkout, before: Position, what: str) -> TextResult:
    now = await born(git, checkout)
    where = now.branch or "detached HEAD"
    lines = [single_line(f"{what}: {where} is at {now.commit[:10]}")]
    if now.branch and before.commit != now.commit:
        lines.append(f"Undo: git_reset revision={before.commit!r} mode='keep'")
    return answer(checkout, lines, details={"branch": now.branch, "commit": now.commit, "before": before.commit})


def _failure(completed: Completed, name: str, then: str = "") -> GitRefused:
    """Return git's message as an error; some of it is on standard output."""
    if not completed.stderr.text().strip():
        completed = replace(completed, stderr=completed.stdout)
    return GitRefused(f"git {name}: {failure_message(completed)}{then}", exit_code=completed.exit_code)


async def _merge_message(git: Git, checkout: Checkout, here: Position, revision: str) -> str:
    """Return the message that git would use."""
    is_branch = (await git.run(checkout, "show-ref", "--verify", "--quiet", f"{HEADS}{revision}")).ok
    into = "" if here.branch in ("main", "master") else f" into {here.branch or 'HEAD'}"
    return f"Merge {'branch' if is_branch else 'commit'} '{revision}'{into}"


def _check_message(message: str) -> None:
    if "\0" in message or len(message.encode("utf-8", "replace")) > MESSAGE_BYTES:
        raise InvalidArguments(f"message: must have no NUL, and at most {MESSAGE_BYTES} bytes")
