"""Change what references point to: switch, create, rename and delete branches, set upstreams, create and delete tags.

Every answer says how to undo the change.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coretools.errors import AlreadyExists, GitRefused, InvalidArguments, NotFound
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.changes.identity import identity
from coretools.tools.git.changes.messages import check_message
from coretools.tools.git.changes.outcomes import move_head
from coretools.tools.git.changes.position import Position, position
from coretools.tools.git.changes.writable import changed_names, require_writable_names
from coretools.tools.git.reading.references import HEADS, TAGS, has_reference, require_name
from coretools.tools.git.repository.open_repository import OpenRepository, check_revision, require_success
from coretools.tools.git.repository.porcelain import as_text, read_names, read_records, single_line
from coretools.tools.git.repository.results import TextResult, answer
from coretools.tools.git.worktrees.worktrees import other_tree_with

_TAG_FORMAT = "%(refname:short)%00%(objectname:short=10)%00%(*objectname:short=10)%00%(creatordate:short)%00"
_TAG_FORMAT += "%(contents:subject)%00"


@dataclass(frozen=True, slots=True)
class SwitchOptions:
    """Where to switch: a branch, a new one that begins at `start`, or a commit without a branch."""

    branch: str
    create: bool
    start: str
    detach: str


async def switch(repository: OpenRepository, options: SwitchOptions) -> TextResult:
    """Switch to a branch, to a new one, or to a commit. Uncommitted changes are carried over or the call fails.

    Raises:
        InvalidArguments: no target, or two. NotFound: no such branch. GitRefused: a change would be overwritten.
    """
    branch = options.branch
    if bool(branch) == bool(options.detach) or (options.start and not options.create):
        raise InvalidArguments("name branch or detach, one of them; start goes with create")
    before = await position(repository)
    details = {"branch": before.branch, "commit": before.commit}
    if branch and branch == before.branch and not options.create:
        return answer(repository.checkout, [f"already on {_where(before)}"], details=details)
    target, words = await _switch_words(repository, options, before)
    if options.detach and not before.branch and target == before.commit:
        return answer(repository.checkout, [f"already on {_where(before)}"], details=details)
    names = await _differing(repository, before, target)
    await require_writable_names(repository, names)
    words = ["switch", "--quiet", "--no-progress", "--no-overwrite-ignore", *words]
    try:
        await move_head(repository, *words, here=before.commit, target=target, names=names)
    except GitRefused:
        if not (options.create or options.detach):
            await _refuse_used(repository, branch)
        raise
    now = await position(repository)
    delete = f", then git_branch action='delete' name={branch!r}" if options.create else ""
    lines = [f"now on {_where(now)}", f"Undo: {before.switch_back}{delete}"]
    return answer(repository.checkout, lines, details={"branch": now.branch, "commit": now.commit})


async def _refuse_used(repository: OpenRepository, branch: str) -> None:
    """Refuse to switch to a branch that another work tree has checked out.

    Raises:
        GitRefused: one has.
    """
    if elsewhere := await other_tree_with(repository, branch):
        raise GitRefused(
            f"branch {branch}: is checked out in another work tree, {elsewhere}; work there, look at"
            f" its commit with git_switch detach={branch!r}, or begin another one at it with create=true"
            f" start={branch!r}; git_worktree action='remove' frees it"
        )


async def _switch_words(repository: OpenRepository, options: SwitchOptions, before: Position) -> tuple[str, list[str]]:
    """Return the commit to switch to ("" if there is none yet) and the options for git."""
    if options.detach:
        [target] = await repository.resolved(options.detach)
        return target, ["--detach", target]
    if not options.create:
        return await _commit_of(repository, options.branch), ["--no-guess", options.branch]
    await _require_free(repository, HEADS, options.branch)
    target = (await repository.resolved(options.start))[0] if options.start else before.commit
    return target, ["--no-track", "-c", options.branch, *([target] if target else [])]


async def create_branch(repository: OpenRepository, name: str, *, start: str) -> TextResult:
    """Create a branch without switching to it.

    Raises:
        AlreadyExists: there is one. InvalidArguments: not a name. NotFound: no such start.
    """
    await _require_free(repository, HEADS, name)
    [commit] = await repository.resolved(start or "HEAD")
    await repository.output("branch", "--no-track", name, commit)
    lines = [f"created branch {single_line(name)} at {commit[:10]}", f"Undo: git_branch action='delete' name={name!r}"]
    return answer(repository.checkout, lines, details={"branch": name, "commit": commit})


async def rename_branch(repository: OpenRepository, name: str, *, new_name: str) -> TextResult:
    """Rename a branch, with its upstream and reflog.

    Raises:
        AlreadyExists: the new name is taken. InvalidArguments: not a name. NotFound: no such branch.
        GitRefused: another work tree has it checked out.
    """
    commit = await _commit_of(repository, name)
    await _require_free(repository, HEADS, new_name)
    if elsewhere := await other_tree_with(repository, name):
        raise GitRefused(
            f"branch {name}: is checked out in another work tree, {elsewhere}, whose HEAD would change; nothing was"
            " changed; rename it in that work tree, or switch that to another branch before"
        )
    await repository.output("branch", "-m", name, new_name)
    lines = [
        f"renamed branch {single_line(name)} to {single_line(new_name)}",
        f"Undo: git_branch action='rename' name={new_name!r} new_name={name!r}",
    ]
    return answer(repository.checkout, lines, details={"branch": new_name, "commit": commit})


async def delete_branch(repository: OpenRepository, name: str, *, force: bool) -> TextResult:
    """Delete a branch; one whose commits are in no other branch only with `force`.

    Raises:
        NotFound: no such branch. GitRefused: it is in use, or not merged.
    """
    commit = await _commit_of(repository, name)
    upstream = await _upstream(repository, name)
    completed = await repository.run("branch", "-D" if force else "-d", name)
    if not completed.ok and "not fully merged" in completed.stderr.text():
        raise GitRefused(f"branch {name}: has commits that its upstream or HEAD lacks; delete it with force=true")
    require_success(completed, "branch")
    undo = f"Undo: git_branch action='create' name={name!r} start={commit!r}"
    if upstream:
        undo += f", then git_branch action='upstream' name={name!r} upstream={upstream!r}"
    lines = [f"deleted branch {single_line(name)}, which was at {commit[:10]}", single_line(undo)]
    return answer(repository.checkout, lines, details={"branch": name, "commit": commit})


async def set_upstream(repository: OpenRepository, name: str, *, upstream: str) -> TextResult:
    """Set the upstream of a branch, or remove it if `upstream` is empty.

    Raises:
        NotFound: no such branch or upstream. InvalidArguments: not a revision.
    """
    await _commit_of(repository, name)
    before = await _upstream(repository, name)
    if upstream:
        check_revision(upstream)
        await repository.resolved(upstream)
    elif not before:
        raise NotFound(f"branch {name}: has no upstream")
    word = f"--set-upstream-to={upstream}" if upstream else "--unset-upstream"
    await repository.output("branch", word, name)
    now = f"has the upstream {upstream}" if upstream else "has no upstream"
    undo = f"Undo: git_branch action='upstream' name={name!r} upstream={before!r}"
    lines = [single_line(f"branch {name} {now}"), single_line(undo)]
    return answer(repository.checkout, lines, details={"branch": name, "upstream": upstream})


async def list_tags(repository: OpenRepository, *, after: str) -> TextResult:
    """List tags by name, those after the name `after`."""
    words = ("for-each-ref", "--sort=refname", f"--format={_TAG_FORMAT}", TAGS)
    output = (await repository.output(*words)).replace(b"\0\n", b"\0")
    records = [[as_text(field) for field in record] for record in read_records(output, 5)]
    records = [record for record in records if record[0] > after]
    lines = [single_line(f"{name} {peeled or own} {date} {text}") for name, own, peeled, date, text in records]
    shown = fitting(map(cut_line, lines), repository.git.answer_bytes)
    rest = len(lines) - len(shown)
    more = [f"[{rest} more tags; go on with name={records[len(shown) - 1][0]!r}]"] if rest and shown else []
    return answer(repository.checkout, [*shown, *more] or ["no tags"], details={"tags": len(records)})


async def create_tag(repository: OpenRepository, name: str, *, revision: str, message: str) -> TextResult:
    """Create a tag; with a message an annotated one.

    Raises:
        AlreadyExists: there is one. InvalidArguments: not a name, or the message is too long.
    """
    check_message(message)
    await _require_free(repository, TAGS, name)
    [(target, _)] = await repository.objects(revision or "HEAD")
    words: Sequence[str] = ("-a", "--cleanup=whitespace", "--file=-") if message.strip() else ()
    options = await identity(repository) if words else ()
    stdin = message.encode() if words else None
    completed = await repository.run("tag", "--no-sign", *words, name, target, options=options, stdin=stdin)
    require_success(completed, "tag")
    lines = [f"created tag {single_line(name)} at {target[:10]}", f"Undo: git_tag action='delete' name={name!r}"]
    return answer(repository.checkout, lines, details={"tag": name, "object": target})


async def delete_tag(repository: OpenRepository, name: str) -> TextResult:
    """Delete a tag.

    Raises:
        NotFound: no such tag.
    """
    target = await _object_of(repository, TAGS, name)
    await repository.output("tag", "-d", name)
    undo = f"Undo: git_tag action='create' name={name!r} revision={target!r}"
    lines = [f"deleted tag {single_line(name)}, which was {target[:10]}", single_line(undo)]
    return answer(repository.checkout, lines, details={"tag": name, "object": target})


async def _require_free(repository: OpenRepository, space: str, name: str) -> None:
    """Refuse an invalid name of a branch or tag, and one that is taken.

    Raises:
        InvalidArguments: not a name. AlreadyExists: it is taken.
    """
    await require_name(repository, space, name)
    if await has_reference(repository, f"{space}{name}"):
        kind = "tag" if space == TAGS else "branch"
        raise AlreadyExists(f"{kind} {name}: exists; choose another name")


async def _commit_of(repository: OpenRepository, branch: str) -> str:
    commit = await _object_of(repository, HEADS, branch)
    await repository.resolved(commit)  # a damaged repository may have a branch that is no commit
    return commit


async def _object_of(repository: OpenRepository, space: str, name: str) -> str:
    kind = "tag" if space == TAGS else "branch"
    check_revision(name)
    completed = await repository.run("show-ref", "--verify", "--hash", f"{space}{name}")
    if not completed.ok:
        hint = "; git_switch create=true start='origin/...' makes one" if kind == "branch" else ""
        raise NotFound(f"{kind} {name!r}: there is none{hint}")
    return completed.stdout.text().strip()


async def _upstream(repository: OpenRepository, name: str) -> str:
    output = await repository.output("for-each-ref", "--format=%(upstream:short)", f"{HEADS}{name}")
    return as_text(output).split("\n")[0]


async def _differing(repository: OpenRepository, before: Position, target: str) -> list[bytes]:
    """Return the names that differ between where HEAD is and the target; all of the target on an unborn branch."""
    if not target or target == before.commit:
        return []
    if before.commit:
        return await changed_names(repository, before.commit, target)
    return read_names(await repository.output("ls-tree", "-r", "-z", "--name-only", target))


def _where(here: Position) -> str:
    at = here.commit[:10] or "no commits yet"
    return single_line(f"branch {here.branch} ({at})" if here.branch else f"commit {at}, detached")
