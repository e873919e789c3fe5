"""The tool for stashes: git_stash."""

from typing import Annotated, Literal

from pydantic import Field

from coretools.operations.declare import Aliases, Effect, tool
from coretools.tools.git.repository.checkout import folder_names
from coretools.tools.git.repository.names import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.results import TextResult
from coretools.tools.git.repository.tool_set import GitToolSet, Paths, Repository
from coretools.tools.git.stash import stash as stashes


class StashTools(GitToolSet):
    """Put uncommitted changes away, and bring them back."""

    @tool(Effect.CHANGE, title="Git stash")
    async def git_stash(
        self,
        action: Annotated[
            Literal["push", "list", "show", "apply", "pop", "drop"],
            Field(
                description=(
                    "`push` (default): put changes away; `list`: all stashes; `show`: the changes of one; "
                    "`apply`, `pop`: bring one back; `drop`: delete one"
                )
            ),
        ] = "push",
        repository: Repository = ".",
        *,
        stash: Annotated[
            str,
            Field(description="Number of the stash in the list, or its commit id; default 0, the newest"),
            Aliases("index"),
        ] = "0",
        paths: Annotated[
            Paths, Field(description="With push and show: only these files and directories; default all")
        ] = [],  # noqa: B006
        message: Annotated[str, Field(description="With push: a line that says what is stashed")] = "",
        untracked: Annotated[
            bool,
            Field(description="With push: stash untracked files too, ignored ones never; default false"),
            Aliases("include_untracked"),
        ] = False,
        with_index: Annotated[
            bool,
            Field(
                description=(
                    "With apply and pop: stage again what was staged; default false: everything comes back unstaged"
                )
            ),
        ] = False,
    ) -> TextResult:
        """Stash uncommitted changes, or list, show, apply and drop stashes.

        push takes the changes of tracked files away and keeps them as a stash; pop brings them back and removes the
        stash, apply keeps it. Returns the paths or the list, and the call that undoes it. With nothing to stash, or no
        such stash, it is an error. Where a file has changed meanwhile it can end in a conflict; then the stash stays,
        and git_conflicts shows the regions. For a lasting state use git_commit.
        """
        access = Access.READ if action in ("list", "show") else Access.WORK_TREE
        shared = self._shared(repository, paths)  # the last stash is dropped with its reference
        async with self._opened(repository, paths, access=access) as opened:
            names = git_names(opened, paths)
            match action:
                case "push":
                    names = names or folder_names(opened.checkout)
                    return await stashes.push(opened, names=names, message=message, untracked=untracked)
                case "list":
                    return await stashes.list_stashes(opened)
                case "show":
                    return await stashes.show_stash(opened, stash=stash, names=names)
                case "drop":
                    return await stashes.drop_stash(opened, shared, stash=stash)
                case _:
                    dropping = shared if action == "pop" else None
                    return await stashes.apply(opened, stash=stash, dropping=dropping, with_index=with_index)
