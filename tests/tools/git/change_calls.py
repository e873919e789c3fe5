"""Calls of every git tool of the profile `all`, one after the other in one repository."""

from collections.abc import Awaitable, Callable
from typing import Any

from coretools.errors import CoreError
from coretools.operations.declare import declaration_of
from tests.tools.git.world import GitTools, World

Call = tuple[str, dict[str, Any]]

CALLS: tuple[Call, ...] = (
    ("git_show", {}),
    ("git_show", {"revision": "HEAD~1", "stat": True}),
    ("git_show", {"path": "work/b.txt"}),
    ("git_blame", {"path": "work/a.txt", "ignore_whitespace": True}),
    ("git_stash", {"action": "push", "paths": ["work/a.txt"], "message": "m"}),
    ("git_stash", {"action": "list"}),
    ("git_stash", {"action": "show"}),
    ("git_stash", {"action": "pop"}),
    ("git_stash", {"action": "push", "untracked": True}),
    ("git_stash", {"action": "drop"}),
    ("git_branch", {"action": "create", "name": "one"}),
    ("git_branch", {"action": "upstream", "name": "one", "upstream": "main"}),
    ("git_branch", {"action": "rename", "name": "one", "new_name": "two"}),
    ("git_branch", {"action": "delete", "name": "two", "force": True}),
    ("git_tag", {"action": "create", "name": "v1", "message": "text"}),
    ("git_tag", {"action": "list"}),
    ("git_tag", {"action": "delete", "name": "v1"}),
    ("git_switch", {"branch": "topic", "create": True, "start": "other"}),
    ("git_commit", {"amend": True, "message": "amended", "by": "B <b@example.org>"}),
    ("git_merge", {"revision": "main"}),
    ("git_conflicts", {}),
    ("git_restore", {"paths": ["work"], "side": "ours"}),
    ("git_continue", {"action": "continue"}),
    ("git_reset", {"revision": "HEAD~1", "mode": "hard"}),
    ("git_merge", {"revision": "main", "fast_forward": False}),
    ("git_continue", {"action": "abort"}),
    ("git_cherry_pick", {"revisions": ["main"]}),
    ("git_continue", {"action": "abort"}),
    ("git_revert", {"revisions": ["HEAD"]}),
    ("git_continue", {"action": "skip"}),
    ("git_rebase", {"upstream": "main"}),
    ("git_continue", {"action": "abort"}),
    ("git_restore", {"paths": ["work/b.txt"], "revision": "main", "what": "both"}),
    ("git_commit", {"fixup": "HEAD"}),
    ("git_rebase", {"upstream": "HEAD~1", "autosquash": True}),
    ("git_switch", {"branch": "main"}),
    ("git_reflog", {}),
    ("git_trust_report", {}),
    ("git_worktree", {"action": "add", "path": "tree", "branch": "linked"}),
    ("git_worktree", {"action": "list"}),
    ("git_worktree", {"action": "remove", "path": "tree"}),
    ("git_worktree", {"action": "prune"}),
    ("git_sparse_checkout", {"action": "set", "paths": ["work/folder"]}),
    ("git_sparse_checkout", {"action": "disable"}),
    ("git_bisect", {"action": "start", "good": ["HEAD~1"]}),
    ("git_bisect_run", {"command": ["true"]}),
    ("git_bisect", {"action": "log"}),
    ("git_bisect", {"action": "reset"}),
    ("git_rebase", {"upstream": "HEAD~1", "steps": ["reword HEAD again"]}),
)


EACH: tuple[Call, ...] = (
    ("git_show", {}),
    ("git_blame", {"path": "work/a.txt"}),
    ("git_tag", {"action": "create", "name": "v1", "message": "text"}),
    ("git_branch", {"action": "create", "name": "one"}),
    ("git_stash", {"action": "push", "untracked": True}),
    ("git_switch", {"branch": "other"}),
    ("git_commit", {"amend": True, "message": "amended"}),
    ("git_merge", {"revision": "main"}),
    ("git_conflicts", {}),
    ("git_restore", {"paths": ["work"], "side": "ours"}),
    ("git_continue", {"action": "continue"}),
    ("git_reset", {"revision": "HEAD~1", "mode": "hard"}),
    ("git_revert", {"revisions": ["HEAD"]}),
    ("git_rebase", {"upstream": "main"}),
    ("git_continue", {"action": "abort"}),
    ("git_cherry_pick", {"revisions": ["main"]}),
    ("git_continue", {"action": "continue", "resolutions": {"work/b.txt": "theirs"}}),
    ("git_reflog", {}),
    ("git_trust_report", {}),
    ("git_worktree", {"action": "add", "path": "tree", "branch": "linked"}),
    ("git_sparse_checkout", {"action": "set", "paths": ["work/folder"]}),
    ("git_bisect", {"action": "start", "good": ["HEAD~1"]}),
    ("git_bisect_run", {"command": ["true"]}),
    ("git_bisect", {"action": "reset"}),
    ("git_rebase", {"upstream": "HEAD~1", "steps": ["reword HEAD again"]}),
)
"""Every tool once or twice, each in a state in which it does its work."""


def is_read(call: Call) -> bool:
    """Whether a call changes nothing."""
    name, arguments = call
    declared = declaration_of(getattr(GitTools, name))
    return (declared is not None and declared.read_only) or arguments.get("action") in ("list", "show", "log")


def function_of(tools: GitTools, name: str) -> Callable[..., Awaitable[Any]]:
    function: Callable[..., Awaitable[Any]] = getattr(tools, name)
    return function


def with_other(world: World) -> World:
    """Add a branch `other` from the first commit, in conflict with `main`; index and work tree stay as they are."""
    commit = "commit refs/heads/other\ncommitter Ada Lovelace <ada@example.org> 1772366400 +0000\ndata 6\nother\n"
    world.git("fast-import", "--quiet", stdin=f"{commit}from HEAD~1\nM 100644 inline b.txt\ndata 6\nother\n".encode())
    return world


async def change_answers(tools: GitTools, calls: tuple[Call, ...] = CALLS, repository: str = "work") -> list[str]:
    """Make the calls; return the texts of answers and of expected errors."""
    texts = []
    for name, arguments in calls:
        try:
            texts.append((await function_of(tools, name)(repository=repository, **arguments)).text())
        except CoreError as error:
            texts.append(f"{error.kind}: {error}")
    return texts
