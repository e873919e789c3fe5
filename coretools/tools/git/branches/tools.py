"""Tools for branches and tags: git_branches, git_current_branch, git_switch, git_branch and git_tag."""

from typing import Annotated, Literal

from pydantic import Field

from coretools.errors import InvalidArguments
from coretools.operations.declare import Aliases, Effect, tool
from coretools.tools.git.branches import references
from coretools.tools.git.branches.branch_list import BranchesResult, BranchOptions, list_branches
from coretools.tools.git.reading.references import head
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.porcelain import single_line
from coretools.tools.git.repository.results import TextResult, answer
from coretools.tools.git.repository.tool_set import ALL, Branch, GitToolSet, Repository


class BranchTools(GitToolSet):
    """List branches and tags, and change what they point to."""

    @tool(Effect.READ, structured=True, profiles=("read", "ci"), title="Git branches")
    async def git_branches(
        self,
        repository: Repository = ".",
        remote: Annotated[
            bool,
            Field(description="List the branches of remotes too, as they were at the last fetch; default false"),
            Aliases(hints=("branch_type",)),
        ] = False,
        *,
        pattern: Annotated[
            str, Field(description="Only names that match, with * for any text, such as feature/*")
        ] = "",
        merged: Annotated[Branch, Field(description="Only branches whose commits are all in this revision")] = "",
        no_merged: Annotated[Branch, Field(description="Only branches with commits that this revision lacks")] = "",
        contains: Annotated[Branch, Field(description="Only branches that contain this commit")] = "",
    ) -> BranchesResult:
        """List branches, the last used first, with the last commit of each.

        Returns one line for each branch: * at the current one, name, short commit, date, upstream with the distance to
        it, and summary; 500 at most. To switch to a branch or create one use git_switch; for the current one alone,
        git_status.
        """
        async with self._opened(repository) as opened:
            options = BranchOptions(
                remote=remote, pattern=pattern, merged=merged, no_merged=no_merged, contains=contains
            )
            return await list_branches(opened, options)

    @tool(Effect.READ, profiles=ALL, title="Git current branch")
    async def git_current_branch(self, repository: Repository = ".") -> TextResult:
        """Name the current branch, or the commit if HEAD is detached.

        Returns the name alone. git_status shows the branch with its upstream and the changes.
        """
        async with self._opened(repository) as opened:
            branch, commit = await head(opened)
            if not branch:
                text = f"HEAD detached at {commit[:10]}"
            else:
                text = branch if commit else f"{branch} (no commits yet)"
            return answer(opened.checkout, [single_line(text)], details={"branch": branch, "commit": commit})

    @tool(Effect.CHANGE, title="Git switch")
    async def git_switch(
        self,
        branch: Annotated[
            Branch,
            Field(
                description="Name of a local branch. For one that only a remote has: its name with `create` and "
                "start='origin/NAME'. Excludes `detach`"
            ),
            Aliases("name", "branch_name"),
        ] = "",
        repository: Repository = ".",
        *,
        create: Annotated[
            bool, Field(description="Create the branch, which must not exist yet; default false")
        ] = False,
        start: Annotated[
            Branch, Field(description="With `create`: commit or branch where it begins; default HEAD"), Aliases("base")
        ] = "",
        detach: Annotated[
            Branch, Field(description="Commit or tag to check out without a branch. Excludes `branch`")
        ] = "",
    ) -> TextResult:
        """Switch to another branch, create one, or check out a commit without a branch.

        Returns the branch with its commit, and the call that switches back. Uncommitted changes are kept; if the switch
        would overwrite one, it is refused and nothing changes: commit or git_stash first. An unknown branch is an
        error. To take single files from another commit use git_restore. To list branches, `git branch` in run_command.
        Examples: {"branch": "main"}; {"branch": "fix-1", "create": true, "start": "origin/main"}.
        """
        async with self._opened(repository, access=Access.WORK_TREE) as opened:
            options = references.SwitchOptions(branch=branch, create=create, start=start, detach=detach)
            return await references.switch(opened, options)

    @tool(Effect.CHANGE, profiles=ALL, title="Git branch")
    async def git_branch(
        self,
        action: Annotated[
            Literal["create", "rename", "delete", "upstream"],
            Field(
                description="`create`, `rename` or `delete` the branch; `upstream`: set the remote branch that it "
                "follows"
            ),
        ],
        name: Annotated[Branch, Field(description="Name of the branch"), Aliases("branch", "branch_name")],
        repository: Repository = ".",
        *,
        start: Annotated[Branch, Field(description="With create: commit or branch where it begins; default HEAD")] = "",
        new_name: Annotated[str, Field(description="With rename: the name that it gets")] = "",
        force: Annotated[
            bool, Field(description="With delete: even if its commits are in no other branch; default false")
        ] = False,
        upstream: Annotated[
            Branch, Field(description="With upstream: branch to follow, such as origin/main; empty: follow none")
        ] = "",
    ) -> TextResult:
        """Create, rename or delete one branch, or set its upstream, without switching.

        Returns the branch, its commit and the call that undoes it. Nothing is replaced: a name that is taken is an
        error. The current branch is not deleted, and a branch that another work tree has checked out is neither deleted
        nor renamed. To list branches use git_branches, to switch to one git_switch.
        """
        async with self._opened(repository, access=Access.GIT_DIRECTORY, is_shared=True) as opened:
            match action:
                case "create":
                    return await references.create_branch(opened, name, start=start)
                case "rename":
                    return await references.rename_branch(opened, name, new_name=new_name)
                case "delete":
                    return await references.delete_branch(opened, name, force=force)
                case "upstream":
                    return await references.set_upstream(opened, name, upstream=upstream)

    @tool(Effect.CHANGE, profiles=ALL, title="Git tag")
    async def git_tag(
        self,
        action: Annotated[
            Literal["list", "create", "delete"], Field(description="`list` (default), `create` or `delete`")
        ] = "list",
        name: Annotated[
            str,
            Field(description="Name of the tag. With list: only tags after this name, to go on with a longer list"),
            Aliases("tag"),
        ] = "",
        repository: Repository = ".",
        *,
        revision: Annotated[Branch, Field(description="With create: commit that the tag names; default HEAD")] = "",
        message: Annotated[
            str, Field(description="With create: text of an annotated tag; without it the tag is a plain name")
        ] = "",
    ) -> TextResult:
        """List, create or delete tags; a tag is never moved.

        Returns the tags with commit, date and summary, or the changed tag and the call that undoes it. To see the
        commit and the message of a tag use git_show; to push one, git_push with `tags`.
        """
        access = Access.READ if action == "list" else Access.GIT_DIRECTORY
        async with self._opened(repository, access=access, is_shared=action == "delete") as opened:
            if action == "list":
                return await references.list_tags(opened, after=name)
            if not name:
                raise InvalidArguments("name: is needed to create or delete a tag")
            if action == "create":
                return await references.create_tag(opened, name, revision=revision, message=message)
            return await references.delete_tag(opened, name)
