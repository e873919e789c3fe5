"""Rebase a branch: git's own rebase, or one with a list of steps.

git would open an editor for a list of steps. Here its state directory is written as git writes it, complete and in one
step, and git continues from there: `git rebase --continue`, `--skip` and `--abort` work on it from a terminal too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coretools.errors import GitRefused, InvalidArguments
from coretools.roots import directory_access
from coretools.tools.git.changes.identity import identity
from coretools.tools.git.changes.outcomes import MAX_COMMITS, failure, outcome, ready
from coretools.tools.git.changes.position import Position
from coretools.tools.git.changes.stash_commits import commit_tree
from coretools.tools.git.changes.writable import changed_names, refuse_staged_outside, require_writable_names
from coretools.tools.git.merging.rebase_steps import (
    MovedCommit,
    Step,
    TodoLine,
    autosquash_steps,
    check_steps,
    read_steps,
    todo_lines,
)
from coretools.tools.git.reading.references import HEADS
from coretools.tools.git.repository.open_repository import OpenRepository, require_success
from coretools.tools.git.repository.porcelain import decoded, encoded, read_names, read_records
from coretools.tools.git.repository.results import TextResult

_QUIET = ("--no-fork-point", "--no-gpg-sign", "--no-verify", "--no-stat", "--quiet")
_MOVED = ("log", "--reverse", "--topo-order", "--no-merges", "--no-mailmap", "--no-notes", "--no-show-signature")
_CHANGED = ("diff", "--quiet", "--ignore-submodules=all", "--no-ext-diff")

STATE = "rebase-merge"
"""git's directory for the state of a rebase."""


@dataclass(frozen=True, slots=True)
class RebaseOptions:
    """What a rebase moves, where to, and what becomes of each commit."""

    upstream: str
    """Commits that this has are not moved."""
    onto: str
    """Where they go; empty: onto `upstream`."""
    autosquash: bool
    steps: Sequence[str] = ()
    """Steps in git's notation; empty: pick all of them."""


@dataclass(frozen=True, slots=True)
class _Move:
    """The commits between which a rebase moves others."""

    upstream: str
    onto: str
    head: str


async def rebase(repository: OpenRepository, options: RebaseOptions) -> TextResult:
    """Rebase the current branch.

    Raises:
        GitRefused: another operation is in progress, or there are uncommitted changes. InvalidArguments: a step.
    """
    if options.steps and options.autosquash:
        raise InvalidArguments("autosquash: makes the steps itself; leave out steps")
    steps = read_steps(options.steps)
    here = await ready(repository)
    revisions = [options.upstream, options.onto or options.upstream, *(step.revision for step in steps)]
    upstream, onto, *named = await repository.resolved(*revisions)
    await refuse_staged_outside(repository, or_changed=True)
    move = _Move(upstream, onto, here.commit)
    await _require_writable(repository, move)
    author = await identity(repository)
    if not steps and not options.autosquash:
        words = ("rebase", "--merge", *_QUIET, "--no-autosquash", f"--onto={onto}", upstream)
        completed = await repository.run(*words, options=author)
        unchanged = f"already up to date with {options.onto or options.upstream}"
        return await outcome(repository, completed, here=here, name="rebase", unchanged=unchanged)
    moved = await _moved(repository, move, is_autosquash=options.autosquash)
    if options.autosquash:
        resolved = autosquash_steps(moved)
    else:
        resolved = [Step(step.verb, commit, step.text) for step, commit in zip(steps, named, strict=True)]
        check_steps(resolved, moved)
    lines = todo_lines(resolved, moved)
    return await _with_steps(repository, here, move, lines=lines, author=author)


async def _require_writable(repository: OpenRepository, move: _Move) -> None:
    """Refuse a rebase of too many commits, or one that would write hidden or filtered files."""
    words = ("log", "--format=tformat:%x01%H", "--name-only", "-z", "-m", f"{move.upstream}..{move.head}")
    records = {name.strip(b"\n") for name in read_names(await repository.output(*words))}
    commits = {name for name in records if name.startswith(b"\1")}
    if len(commits) > MAX_COMMITS:
        raise GitRefused(f"would move {len(commits)} commits, at most {MAX_COMMITS} are here; use git itself")
    names = (records - commits) | set(await changed_names(repository, move.head, move.onto))
    await require_writable_names(repository, names - {b""})


async def _moved(repository: OpenRepository, move: _Move, *, is_autosquash: bool) -> list[MovedCommit]:
    """Return the commits that move, oldest first; for autosquash without those that upstream has as other commits."""
    which = (
        ("--cherry-pick", "--right-only", f"{move.upstream}...{move.head}")
        if is_autosquash
        else (f"{move.upstream}..{move.head}",)
    )
    output = await repository.output(
        *_MOVED, "-z", "--date=raw", "--format=tformat:%H%x00%an%x00%ae%x00%ad%x00%B", *which
    )
    moved = []
    for record in read_records(output, 5):
        commit, name, address, date, message = map(decoded, record)
        moved.append(MovedCommit(commit, message, (name, address, date)))
    return moved


async def _with_steps(
    repository: OpenRepository, here: Position, move: _Move, *, lines: Sequence[TodoLine], author: Sequence[str]
) -> TextResult:
    """Write the state of a rebase with these steps, go to where it begins, and let git continue."""
    for word in ((), ("--cached",)):
        if (await repository.run(*_CHANGED, *word)).exit_code:
            raise GitRefused("there are uncommitted changes; git_commit or git_stash them first")
    text = ""
    for line in lines:
        text += line.written(await _copy(repository, line, author))
    state = {
        "interactive": "",
        "quiet": "",
        "drop_redundant_commits": "",
        "head-name": f"{HEADS}{here.branch}\n" if here.branch else "detached HEAD\n",
        "onto": f"{move.onto}\n",
        "orig-head": f"{move.head}\n",
        "git-rebase-todo": text or "noop\n",
    }
    data = {name: encoded(content) for name, content in state.items()}
    directory_access.create_directory(repository.checkout.git_handle, STATE, data)
    begun = await repository.run("checkout", "--quiet", "--no-progress", "--detach", move.onto)
    if not begun.ok:
        require_success(await repository.run("rebase", "--abort", options=author), "rebase")
        raise failure(begun, "rebase", "; nothing was changed")
    completed = await repository.run("rebase", "--continue", options=author)
    # git would let `git commit` say that a commit has become empty.
    if not completed.ok and "cannot fork() for commit" in completed.stderr.text():
        require_success(await repository.run("rebase", "--abort", options=author), "rebase")
        raise GitRefused("a fixup or squash leaves its commit without a change; drop both; nothing was changed")
    return await outcome(repository, completed, here=here, name="rebase")


async def _copy(repository: OpenRepository, line: TodoLine, author: Sequence[str]) -> str:
    """Return the commit of a line, or a copy of it with another message."""
    moved = line.moved
    if line.message is None:
        return moved.commit
    variables = zip(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"), moved.author, strict=True)
    own = repository.with_environment(dict(variables))
    tree, parent = f"{moved.commit}^{{tree}}", f"{moved.commit}^"
    return await commit_tree(own, tree, parent, message=f"{line.message.strip()}\n", options=author)
