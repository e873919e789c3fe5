"""Linked work trees: list, add, remove, and forget those that are gone.

git adds one by other git processes, and starts none here. So the files that link both directories are written as
gitrepository-layout(5) describes them, and git then checks the branch out in the new work tree.
"""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial

from anyio import to_thread

from coretools.errors import AlreadyExists, CoreError, GitRefused, NotFound
from coretools.roots import directory_access
from coretools.roots.delete import delete_directory
from coretools.roots.editor_settings import settings_at
from coretools.roots.read import kind_at, open_directory
from coretools.roots.root_set import Roots
from coretools.roots.write import create_directory, resolve_for_change
from coretools.tools.git.changes.writable import require_visible_names
from coretools.tools.git.reading.references import HEADS, has_reference, require_name
from coretools.tools.git.repository.open_repository import OpenRepository, require_success
from coretools.tools.git.repository.porcelain import as_text, decoded, encoded, read_names, read_status, single_line
from coretools.tools.git.repository.results import TextResult, answer, listed, settings_line, settings_remark

_STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=all")
_NAME = re.compile(r"[^A-Za-z0-9_-]+")

OpenWorkTree = Callable[[str], AbstractAsyncContextManager[OpenRepository]]
"""Opens the work tree at a path for a change."""


@dataclass(frozen=True, slots=True)
class _Linked:
    """A work tree, as git lists it."""

    path: str
    commit: str
    branch: str
    note: str


async def list_worktrees(repository: OpenRepository) -> TextResult:
    """List the work trees of the repository; one outside the roots without its path."""
    lines = []
    trees = await worktrees(repository)
    for one in trees:
        shown = path_in_roots(repository.roots, one.path)
        where = f"branch {one.branch}" if one.branch else "detached"
        lines.append(single_line(f"{shown} {one.commit[:10]} {where}{f' [{one.note}]' if one.note else ''}"))
    return answer(repository.checkout, lines, details={"worktrees": len(trees)})


async def other_tree_with(repository: OpenRepository, branch: str) -> str:
    """Return another work tree that has a branch checked out, by its path if that may be shown; "" if none has."""
    here = repository.checkout.directory.path
    trees = [one.path for one in await worktrees(repository) if one.branch == branch and one.path != here]
    return path_in_roots(repository.roots, trees[0]) if trees else ""


@dataclass(frozen=True, slots=True)
class NewWorktree:
    """Where a work tree is made, and what is checked out there."""

    path: str
    branch: str
    start: str
    """Where a new branch begins; empty: at HEAD."""


async def add_worktree(repository: OpenRepository, open_at: OpenWorkTree, wanted: NewWorktree) -> TextResult:
    """Create a work tree at a path for a branch; one that does not exist begins at `start`, by default at HEAD.

    Raises:
        AlreadyExists: something is at the path, or the branch is checked out.
    """
    path, branch = wanted.path, wanted.branch
    await _require_free(repository, wanted)
    is_new = not await has_reference(repository, f"{HEADS}{branch}")
    if wanted.start and not is_new:
        raise AlreadyExists(f"branch {branch}: exists; leave out start, or name a new branch")
    [commit] = await repository.resolved(wanted.start or "HEAD" if is_new else f"{HEADS}{branch}")
    names = read_names(await repository.output("ls-tree", "-r", "-z", "--name-only", commit))
    await require_visible_names(repository, names)
    if not await to_thread.run_sync(partial(create_directory, repository.roots, path)):
        raise AlreadyExists(f"{path}: something is there; name a new directory")
    new_branch = ""
    try:
        if is_new:
            await repository.output("branch", "--no-track", branch, commit)
            new_branch = branch
        await to_thread.run_sync(partial(_link, repository, path, branch))
        async with open_at(path) as linked:
            await linked.output("reset", "--hard", "--quiet")
            settings = settings_remark(linked.checkout)
            settings += settings_line(repository.roots, settings_at(repository.roots, path))
    except CoreError:
        with suppress(CoreError):
            await _take_back(repository, path, new_branch)
        raise
    undo = f"Undo: git_worktree action='remove' path={path!r}"
    undo += f", then git_branch action='delete' name={branch!r}" if is_new else ""
    lines = [single_line(f"added {path}: branch {branch} at {commit[:10]}"), single_line(undo), *settings]
    return answer(repository.checkout, lines, details={"branch": branch, "commit": commit})


async def _require_free(repository: OpenRepository, wanted: NewWorktree) -> None:
    """Refuse an invalid name, a branch that is checked out elsewhere, and a path that is taken.

    Raises:
        InvalidArguments, AlreadyExists: says which.
    """
    path, branch = wanted.path, wanted.branch
    await require_name(repository, HEADS, branch)
    if any(one.branch == branch for one in await worktrees(repository)):
        raise AlreadyExists(f"branch {branch}: is checked out in a work tree; git_worktree action='list' shows where")
    if kind_at(repository.roots, path) is not None:
        raise AlreadyExists(f"{path}: something is there; name a new directory")
    with resolve_for_change(repository.roots, path):
        pass  # it may be created there


async def _take_back(repository: OpenRepository, path: str, new_branch: str) -> None:
    """Delete a work tree that could not be checked out, with its entry and branch; both are of this call."""
    with open_directory(repository.roots, path) as directory:
        place = directory.path
    await to_thread.run_sync(partial(delete_directory, repository.roots, path))
    await repository.run("worktree", "remove", "--force", place)
    if new_branch:
        await repository.run("branch", "-D", new_branch)


def _link(repository: OpenRepository, path: str, branch: str) -> None:
    """Create the files by which git finds a work tree, and it the repository."""
    checkout = repository.checkout
    with open_directory(repository.roots, path) as directory:
        if directory_access.entry_kind(checkout.common_handle, "worktrees") is None:
            directory_access.create_directory(checkout.common_handle, "worktrees", {})
        with directory_access.open_subdirectory(checkout.common_handle, "worktrees") as worktrees:
            name = _free_name(worktrees, directory.path)
            files = {"HEAD": f"ref: {HEADS}{branch}\n", "commondir": "../..\n", "gitdir": f"{directory.path}/.git\n"}
            data = {file: encoded(text) for file, text in files.items()}
            directory_access.create_directory(worktrees, name, data)
        pointer = encoded(f"gitdir: {checkout.common_path}/worktrees/{name}\n")
        directory_access.create_file(directory.fd, ".git", pointer)


def _free_name(worktrees: int, path: str) -> str:
    base = _NAME.sub("-", path.rpartition("/")[2]).strip("-") or "worktree"
    taken = directory_access.entry_kinds(worktrees)
    return next(name for number in range(len(taken) + 1) if (name := f"{base}{number or ''}") not in taken)


async def remove_worktree(repository: OpenRepository, open_at: OpenWorkTree, *, path: str) -> TextResult:
    """Delete a linked work tree without uncommitted changes; its branch stays.

    Raises:
        NotFound: no linked work tree is there. GitRefused: it has changes, or untracked files.
    """
    checkout = repository.checkout
    with open_directory(repository.roots, path) as directory:
        place = directory.path
    tree = next((one for one in (await worktrees(repository))[1:] if one.path == place), None)
    if tree is None:
        raise NotFound(f"{path}: is no linked work tree of this repository; git_worktree action='list' shows them")
    if place == checkout.directory.path:
        raise GitRefused(f"{path}: is the work tree that this call runs git in; name another one as repository")
    if "locked" in tree.note:
        raise GitRefused(f"{path}: is locked; unlock it with git itself")
    async with open_at(path) as linked:
        changed = [as_text(one.path) for one in read_status(await linked.output(*_STATUS)).entries]
        if changed or linked.checkout.in_progress:
            what = listed(changed) if changed else f"a {linked.checkout.in_progress} in progress"
            raise GitRefused(f"{path}: has uncommitted changes: {what}; git_commit or git_stash them there first")
    await to_thread.run_sync(partial(delete_directory, repository.roots, path))
    await repository.output("worktree", "remove", "--force", place)
    undo = f"Undo: git_worktree action='add' path={path!r} branch={tree.branch!r}"
    if not tree.branch:
        undo = f"Undo: git_worktree action='add' path={path!r} branch='a new one' start={tree.commit!r}"
    return answer(checkout, [single_line(f"removed {path}"), single_line(undo)], details={"commit": tree.commit})


async def prune_worktrees(repository: OpenRepository) -> TextResult:
    """Forget work trees whose directories are gone."""
    completed = await repository.run("worktree", "prune", "--verbose", "--expire=now")
    output = require_success(completed, "worktree prune")
    said = (output.stdout.text() + output.stderr.text()).splitlines()
    lines = [single_line(line) for line in said if line.strip()]
    undo = ["Undo: git_worktree action='add' with the path and branch"] if lines else []
    return answer(repository.checkout, [*lines, *undo] or ["nothing to forget"], details={"forgotten": len(lines)})


async def worktrees(repository: OpenRepository) -> list[_Linked]:
    """Return the work trees of the repository, the main one first."""
    trees: list[_Linked] = []
    for block in (await repository.output("worktree", "list", "--porcelain", "-z")).split(b"\0\0"):
        fields = {line.partition(b" ")[0]: line.partition(b" ")[2] for line in block.split(b"\0") if line}
        if b"worktree" not in fields:
            continue
        note = " ".join(word for word in ("locked", "prunable", "bare") if word.encode() in fields)
        path = decoded(fields[b"worktree"])
        branch = as_text(fields.get(b"branch", b"")).removeprefix(HEADS)
        trees.append(_Linked(path, as_text(fields.get(b"HEAD", b"")), branch, note))
    return trees


def path_in_roots(roots: Roots, path: str) -> str:
    """Return the path of a work tree, if it is beneath the roots."""
    place = roots.split(path)
    return "[outside the roots]" if place is None else path
