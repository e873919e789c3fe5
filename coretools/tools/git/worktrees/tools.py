"""Tools for linked work trees and sparse checkouts: git_worktree and git_sparse_checkout."""

from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from coretools.errors import InvalidArguments
from coretools.operations.declare import Aliases, Effect, tool
from coretools.tools.git.repository.names import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.results import TextResult
from coretools.tools.git.repository.tool_set import ALL, Branch, GitToolSet, Repository
from coretools.tools.git.worktrees import sparse, worktrees


class WorktreeTools(GitToolSet):
    """Manage linked work trees, and choose the directories that are checked out."""

    @tool(Effect.CHANGE, profiles=ALL, title="Git worktree")
    async def git_worktree(
        self,
        action: Annotated[
            Literal["list", "add", "remove", "prune"],
            Field(description="`list` (default), `add`, `remove`; `prune`: forget work trees whose directory is gone"),
        ] = "list",
        path: Annotated[
            str, Field(description="With add and remove: directory of the work tree, relative to the root")
        ] = "",
        repository: Repository = ".",
        *,
        branch: Annotated[
            Branch, Field(description="With add: branch to check out there; created if there is none of that name")
        ] = "",
        start: Annotated[
            Branch, Field(description="With add: commit or branch where a new branch begins; default HEAD")
        ] = "",
    ) -> TextResult:
        """List the work trees of a repository, add or remove a linked one, or forget those that are gone.

        A linked work tree is a second directory with another branch checked out. Returns its path, branch and the call
        that undoes it. It is made beneath a writable root only; one with changes is not removed. To change the branch
        in the same directory use git_switch.
        """
        if action in ("add", "remove") and not path:
            raise InvalidArguments("path: is needed to add or remove a work tree")
        access = Access.READ if action == "list" else Access.WORK_TREE
        async with self._opened(repository, access=access, is_shared=action != "list") as opened:
            open_at = partial(self._opened, access=Access.WORK_TREE)
            match action:
                case "list":
                    return await worktrees.list_worktrees(opened)
                case "add":
                    wanted = worktrees.NewWorktree(path, branch, start)
                    return await worktrees.add_worktree(opened, open_at, wanted)
                case "remove":
                    return await worktrees.remove_worktree(opened, open_at, path=path)
                case "prune":
                    return await worktrees.prune_worktrees(opened)

    @tool(Effect.CHANGE, profiles=ALL, title="Git sparse checkout")
    async def git_sparse_checkout(
        self,
        action: Annotated[
            Literal["list", "set", "add", "disable"],
            Field(
                description="`list` (default); `set`: only these directories; `add`: these too; `disable`: check out "
                "everything"
            ),
        ] = "list",
        paths: Annotated[
            list[str], Field(description="With set and add: directories to check out"), Aliases("directories")
        ] = [],  # noqa: B006
        repository: Repository = ".",
    ) -> TextResult:
        """Report or set which directories of the repository are checked out.

        Returns the directories, or "everything is checked out". Files at the top are always there; other directories
        that are not set are removed from the work tree, but not from the repository. To bring back single files use
        git_restore.
        """
        access = Access.READ if action == "list" else Access.WORK_TREE
        async with self._opened(repository, paths, access=access) as opened:
            names = git_names(opened, paths)
            return await sparse.sparse_checkout(opened, action=action, names=names)
