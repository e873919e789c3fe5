"""Stash uncommitted changes, and apply stashed ones.

A stash is put together from git's plumbing: `git stash` starts other git processes, and git starts none here. The
result has the form that git-stash(1) describes under "Discussion", so git itself can apply it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from coretools.errors import AlreadyExists, GitRefused, InvalidArguments, NotFound, TooLarge
from coretools.roots.read import kind_at
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.changes.position import born
from coretools.tools.git.changes.stash_commits import (
    conflicted,
    patched_tree,
    stash_commit,
    stash_identity,
    untracked_commit,
    without_untracked,
)
from coretools.tools.git.changes.writable import (
    changed_names,
    reached_by_rename,
    refuse_settings,
    require_writable_names,
)
from coretools.tools.git.reading.differences import DiffOptions, diff
from coretools.tools.git.reading.references import has_reference
from coretools.tools.git.repository.checkout import display_paths
from coretools.tools.git.repository.names import ARGUMENT_BYTES, hidden_reason, refuse_hidden
from coretools.tools.git.repository.open_repository import OpenRepository, OpenShared, require_success
from coretools.tools.git.repository.patches import PATCH
from coretools.tools.git.repository.porcelain import (
    FROM_STDIN,
    as_text,
    decoded,
    read_names,
    read_records,
    single_line,
    terminated,
)
from coretools.tools.git.repository.results import TextResult, answer, hidden_line, listed, paths_argument

_REFERENCE = "refs/stash"
# Not `git stash list`, which starts `git log`.
_LIST = ("log", "--walk-reflogs", "-z", "--format=tformat:%H%x00%cI%x00%gs", "--no-show-signature", _REFERENCE, "--")
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,6}")
_UNTRACKED = ("ls-files", "--others", "--exclude-standard", "-z")

MESSAGE_CHARACTERS = 1_000
"""Longest message of a stash."""


@dataclass(frozen=True, slots=True)
class Stash:
    """A stash commit, by its place in the list ("" if it is not in it) and its name."""

    place: str
    commit: str


async def push(repository: OpenRepository, *, names: Sequence[str], message: str, untracked: bool) -> TextResult:
    """Stash changes at or beneath the names (all without any), and restore the last commit there.

    Raises:
        DeniedPath, GitRefused: see `require_writable_names`; a conflict is not resolved; nothing is changed.
    """
    text = _message(message)
    refuse_hidden(repository, names)
    here = await born(repository)
    changed = await changed_names(repository, here.commit, names=names)
    changed = sorted({*changed, *await changed_names(repository, "--cached", here.commit, names=names)})
    await require_writable_names(repository, changed)
    new, left_out = await _untracked(repository, names) if untracked else ([], {})
    if not changed and not new:
        raise GitRefused("no changes to stash here; untracked files only with untracked=true")
    third = await untracked_commit(repository, new) if new else ""
    commit = await stash_commit(repository, here, changed=changed, message=text, untracked=third)
    await _store(repository, commit, f"On {here.branch or '(no branch)'}: {text}")
    if changed:
        back = ("restore", f"--source={here.commit}", "--staged", "--worktree", *FROM_STDIN)
        await repository.output(*back, stdin=terminated(changed))
    if new:
        await repository.output("clean", "--quiet", "--force", "--", *map(decoded, new))
    every = display_paths(repository.checkout, [*changed, *new])
    lines = [f"stashed {len(every)} as {commit[:10]}: {listed(every)}"]
    lines += [hidden_line(repository.checkout, "left out", left_out)] if left_out else []
    lines.append(f"Undo: git_stash action='pop' stash={commit!r}")
    return answer(repository.checkout, lines, details={"stash": commit, "files": len(every)})


def _message(message: str) -> str:
    if not message.isprintable() or len(message) > MESSAGE_CHARACTERS:
        raise InvalidArguments(f"message: one printable line of at most {MESSAGE_CHARACTERS} characters")
    return message.strip() or "uncommitted changes"


async def _store(repository: OpenRepository, commit: str, message: str) -> None:
    """Put a stash commit on the list."""
    options = await stash_identity(repository)
    words = ("stash", "store", "--quiet", f"--message={message}", commit)
    require_success(await repository.run(*words, options=options), "stash")


async def list_stashes(repository: OpenRepository) -> TextResult:
    """List stashes, newest first."""
    records = await stash_list(repository)
    lines = [single_line(" ".join([place, commit[:10], date, text])) for place, commit, date, text in records]
    shown = fitting(map(cut_line, lines), repository.git.answer_bytes)
    more = [f"[{len(lines) - len(shown)} older stashes; action='show' takes their number]"] if shown < lines else []
    return answer(repository.checkout, [*shown, *more] or ["no stashes"], details={"stashes": len(lines)})


async def show_stash(repository: OpenRepository, *, stash: str, names: Sequence[str]) -> TextResult:
    """Show what a stash changes in tracked files, and list its untracked ones."""
    entry = await _named(repository, stash)
    sides = (f"{entry.commit}^1", entry.commit)
    options = DiffOptions(sides=sides, commits=sides, names=names, most_bytes=repository.git.answer_bytes)
    result = await diff(repository, options)
    new = await _kept_untracked(repository, entry)
    extra = f"\n[and {len(new)} untracked files: {listed(display_paths(repository.checkout, new))}]" if new else ""
    return TextResult(body=result.text() + extra, details={**result.facts(), "stash": entry.commit})


async def apply(repository: OpenRepository, *, stash: str, dropping: OpenShared | None, with_index: bool) -> TextResult:
    """Apply a stash to the work tree, and with `dropping` remove it from the list if there was no conflict.

    With `with_index` what was staged is staged again, as `git stash apply --index` does.

    Raises:
        GitRefused: a change would be overwritten, or files are in conflict. AlreadyExists: an untracked file of it
            exists.
    """
    checkout = repository.checkout
    entry = await _named(repository, stash)
    if conflicts := await conflicted(repository):
        names = listed(display_paths(checkout, conflicts))
        raise GitRefused(f"conflicts are not resolved: {names}; nothing was applied; git_continue or git_add first")
    changed = await changed_names(repository, f"{entry.commit}^1", entry.commit)
    new = await _kept_untracked(repository, entry)
    await require_writable_names(repository, [*changed, *new])
    refuse_settings(await reached_by_rename(repository, changed, [entry.commit]))
    _require_absent(repository, new)
    index = await _staged_again(repository, entry) if with_index else ""
    conflicts = await _apply_tracked(repository, entry, new)
    if index and not conflicts:
        await repository.output("read-tree", index)
        await repository.run("update-index", "-q", "--refresh")
    if new:
        words = ("restore", "--overlay", "--worktree", f"--source={entry.commit}^3", *FROM_STDIN)
        await repository.output(*words, stdin=terminated(new))
    every = display_paths(checkout, [*changed, *new])
    lines = [f"applied {entry.commit[:10]} to {len(every)}: {listed(every)}"]
    if conflicts:
        lines.append(f"in conflict: {listed(display_paths(checkout, conflicts))}; the stash is kept")
        lines.append("Resolve: git_continue resolutions={path: 'ours', 'theirs' (the stash), ...}, or edit and git_add")
    elif dropping and entry.place:
        await _drop(dropping, entry)
        lines.append(f"dropped it; Undo: git_stash action='push', or apply it again: stash={entry.commit!r}")
    else:
        back = [f"git_restore what='both' {paths_argument(checkout, changed)}"] if changed else []
        back += [f"delete {listed(display_paths(checkout, new))}"] if new else []
        lines.append(f"Undo: {', then '.join(back)}; the stash is kept")
    return answer(checkout, lines, details={"stash": entry.commit, "conflicts": len(conflicts)})


def _require_absent(repository: OpenRepository, names: Sequence[bytes]) -> None:
    checkout = repository.checkout
    there = [
        name for name in names if kind_at(repository.roots, f"{checkout.directory.path}/{decoded(name)}") is not None
    ]
    if there:
        raise AlreadyExists(f"untracked files exist already: {listed(display_paths(checkout, there))}; move them away")


async def _apply_tracked(repository: OpenRepository, stash: Stash, new: Sequence[bytes]) -> list[bytes]:
    """Apply what a stash changes in tracked files; return the names in conflict."""
    source = await without_untracked(repository, stash.commit) if new else stash.commit
    options = await stash_identity(repository)
    completed = await repository.run("stash", "apply", "--quiet", source, options=options)
    conflicts = await conflicted(repository)
    if not completed.ok and not conflicts:
        require_success(completed, "stash apply")
    return conflicts


async def _staged_again(repository: OpenRepository, stash: Stash) -> str:
    """Return the tree of the index with what the stash had staged; the index stays as it is.

    Raises:
        GitRefused: it does not fit, or something else is staged.
    """
    words = ("diff", "--cached", "--quiet", "--ignore-submodules=all", "--no-ext-diff")
    if (await repository.run(*words)).exit_code:
        raise GitRefused("something is staged; git_commit it first, or apply the stash without its index")
    patch = await repository.output(
        "diff", *PATCH, "--binary", "--full-index", "--no-renames",
        *("--src-prefix=a/", "--dst-prefix=b/", f"{stash.commit}^1", f"{stash.commit}^2")
    )  # fmt: skip
    if not patch:
        return ""
    return await patched_tree(repository, patch)


async def drop_stash(repository: OpenRepository, shared: OpenShared, *, stash: str) -> TextResult:
    """Remove a stash from the list.

    Raises:
        NotFound: it is not in the list.
    """
    entry = await _named(repository, stash)
    if not entry.place:
        raise NotFound(f"stash {stash!r}: not in the list of git_stash")
    await _drop(shared, entry)
    lines = [f"dropped {entry.commit[:10]}", f"Undo: git_stash action='apply' stash={entry.commit!r}"]
    return answer(repository.checkout, lines, details={"stash": entry.commit})


async def _drop(shared: OpenShared, entry: Stash) -> None:
    async with shared() as repository:
        await repository.output("stash", "drop", "--quiet", entry.place)


async def stash_list(repository: OpenRepository) -> list[list[str]]:
    """Return place, commit, date and message of each stash, newest first."""
    if not await has_reference(repository, _REFERENCE):
        return []
    records = read_records(await repository.output(*_LIST), 3)
    return [[f"stash@{{{number}}}", *map(as_text, record)] for number, record in enumerate(records)]


async def _named(repository: OpenRepository, stash: str) -> Stash:
    """Return the stash with this number, `stash@{number}` or commit.

    Raises:
        InvalidArguments: none of these. NotFound: there is none.
    """
    number = stash.removeprefix("stash@{").removesuffix("}") or "0"
    records = await stash_list(repository)
    if _NUMBER.fullmatch(number):
        if int(number) >= len(records):
            raise NotFound(f"stash {number}: there are {len(records)}; git_stash action='list' shows them")
        place, commit, *_ = records[int(number)]
        return Stash(place, commit)
    if not _OBJECT.fullmatch(number):
        raise InvalidArguments(f"stash {stash[:80]!r}: must be a number of the list or a complete commit id")
    [commit, *_] = await repository.resolved(number, f"{number}^1", f"{number}^2")
    place = next((record[0] for record in records if record[1] == commit), "")
    return Stash(place, commit)


async def _kept_untracked(repository: OpenRepository, stash: Stash) -> list[bytes]:
    parents = (await repository.output("rev-list", "--parents", "--max-count=1", stash.commit)).split()
    if len(parents) < 4:
        return []
    return read_names(await repository.output("ls-tree", "-r", "-z", "--name-only", f"{stash.commit}^3"))


async def _untracked(repository: OpenRepository, names: Sequence[str]) -> tuple[list[bytes], dict[bytes, str]]:
    """Return untracked files to stash, and hidden ones, which stay."""
    untracked = read_names(await repository.output(*_UNTRACKED, "--", *names))
    hidden = {name: reason for name in untracked if (reason := hidden_reason(repository, name))}
    wanted = [name for name in untracked if name not in hidden and not name.endswith(b"/")]
    if sum(len(name) + 1 for name in wanted) > ARGUMENT_BYTES:
        raise TooLarge(f"{len(wanted)} untracked files; name paths", files=len(wanted))
    await require_writable_names(repository, wanted)
    return wanted, hidden
