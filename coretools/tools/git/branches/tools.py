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

    @tool(Effect.READ, structured=True, title="Git branches")
    async def git_branches(
        self,
        repository: Repository = ".",
        remote: Annotated[
            bool,
            Field(description="list the branches of remotes too, as they were at the last fetch"),
            Aliases(hints=("branch_type",)),
        ] = False,
        *,
        pattern: Annotated[
            str, Field(description="only names that match, with * for any text, such as feature/*")
        ] = "",
        merged: Annotated[Branch, Field(description="only branches whose commits are all in this revision")] = "",
        no_merged: Annotated[Branch, Field(description="only branches with commits that this revision lacks")] = "",
        contains: Annotated[Branch, Field(description="only branches that contain this commit")] = "",
    ) -> BranchesResult:
        """List branches, the last used first, with the last commit of each.

        Returns one line for each branch: * at the current one, name, short commit, date, upstream with the distance
        to it, and summary; 500 at most. git_switch switches to one or creates one.
        """
        async with self._opened(repository) as opened:
            options = BranchOptions(
                remote=remote, pattern=pattern, merged=merged, no_merged=no_merged, contains=contains
            )
            return await list_branches(opened, options)

    @tool(Effect.READ, title="Current branch")
    async def git_current_branch(self, repository: Repository = ".") -> TextResult:
        """Name the current branch, or the commit if HEAD is detached.

        Returns the name alone. git_status shows the upstream and the changes too.
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
                description="name of a local branch; for one that only a remote has: create, with start='origin/NAME'"
            ),
            Aliases("name", "branch_name"),
        ] = "",
        repository: Repository = ".",
        *,
        create: Annotated[bool, Field(description="create the branch; it must not exist yet")] = False,
        start: Annotated[
            Branch, Field(description="with create: commit or branch where it begins, HEAD by default"), Aliases("base")
        ] = "",
        detach: Annotated[
            Branch, Field(description="commit or tag to check out without a branch, instead of branch")
        ] = "",
    ) -> TextResult:
        """Switch to another branch, create one, or check out a commit without a branch.

        Returns the branch, its commit and the call that switches back. Uncommitted changes are kept; where the switch
        would overwrite one it is refused, and nothing changes. git_branches lists the branches; git_restore takes
        single files from another commit.
        """
        async with self._opened(repository, access=Access.WORK_TREE) as opened:
            options = references.SwitchOptions(branch=branch, create=create, start=start, detach=detach)
            return await references.switch(opened, options)

    @tool(Effect.CHANGE, profiles=ALL, title="Git branch")
    async def git_branch(
        self,
        action: Annotated[
            Literal["create", "rename", "delete", "upstream"],
            Field(description="what to do with the branch; upstream: set the remote branch that it follows"),
        ],
        name: Annotated[Branch, Field(description="name of the branch"), Aliases("branch", "branch_name")],
        repository: Repository = ".",
        *,
        start: Annotated[Branch, Field(description="create: commit or branch where it begins, HEAD by default")] = "",
        new_name: Annotated[str, Field(description="rename: the name that it gets")] = "",
        force: Annotated[bool, Field(description="delete: even if its commits are in no other branch")] = False,
        upstream: Annotated[
            Branch, Field(description="upstream: branch to follow, such as origin/main; empty: follow none")
        ] = "",
    ) -> TextResult:
        """Create, rename or delete one branch, or set its upstream, without switching.

        Returns the branch, its commit and the call that undoes it. Nothing is replaced: a name that is taken is an
        error. The current branch is not deleted, and a branch that another work tree has checked out is neither deleted
        nor renamed. git_branches lists branches, git_switch switches to one.
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
        action: Annotated[Literal["list", "create", "delete"], Field(description="what to do")] = "list",
        name: Annotated[
            str,
            Field(description="name of the tag; list: only tags after this name, to go on with a longer list"),
            Aliases("tag"),
        ] = "",
        repository: Repository = ".",
        *,
        revision: Annotated[Branch, Field(description="create: commit that the tag names, HEAD by default")] = "",
        message: Annotated[
            str, Field(description="create: text of an annotated tag; without it the tag is a plain name")
        ] = "",
    ) -> TextResult:
        """List, create or delete tags; a tag is never moved.

        Returns the tags with commit, date and summary, or the changed tag and the call that undoes it. git_show shows
        the commit and the message of a tag.
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
