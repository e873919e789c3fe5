"""Tools that combine commits: git_merge, git_rebase, git_cherry_pick, git_revert, git_continue and git_conflicts."""

from typing import Annotated, Any, Literal

from pydantic import Field

from coretools.operations.declare import Aliases, Effect, tool
from coretools.tools.git.merging import rebase, resume
from coretools.tools.git.merging.conflicts import ConflictsResult, conflicts
from coretools.tools.git.merging.merge import merge
from coretools.tools.git.merging.pick import pick
from coretools.tools.git.repository.habits import rebase_autosquash
from coretools.tools.git.repository.names import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.results import TextResult
from coretools.tools.git.repository.tool_set import ALL, DEV, Branch, GitToolSet, Paths, Repository


class MergingTools(GitToolSet):
    """Merge, rebase, cherry-pick and revert, and what ends one that stopped."""

    @tool(Effect.CHANGE, title="Git merge")
    async def git_merge(
        self,
        revision: Annotated[
            Branch, Field(description="Branch, tag or commit to merge"), Aliases("branch", "rev", "ref")
        ],
        repository: Repository = ".",
        *,
        message: Annotated[str, Field(description="Message of the merge commit; default the one that git writes")] = "",
        fast_forward: Annotated[
            bool,
            Field(
                description=(
                    "Only move the branch if it has no commits of its own; default true. false: always make "
                    "a merge commit"
                )
            ),
            Aliases("ff"),
        ] = True,
    ) -> TextResult:
        """Merge another branch or commit into the current branch.

        Returns the new commit and the call that undoes it. If both sides changed the same lines, it stops, and the
        answer names the files: git_conflicts shows them, git_continue resolves them and goes on or aborts. It is
        refused if uncommitted changes would be overwritten. An unknown revision is an error. One revision at a time.
        For a branch of a remote use git_pull.
        """
        async with self._opened(repository, access=Access.WORK_TREE) as opened:
            return await merge(opened, revision=revision, message=message, fast_forward=fast_forward)

    @tool(Effect.CHANGE, profiles=ALL, title="Git rebase")
    async def git_rebase(
        self,
        upstream: Annotated[
            Branch,
            Field(description="Branch or commit that becomes the base; its commits are not moved"),
            Aliases("branch", "base"),
        ],
        repository: Repository = ".",
        *,
        onto: Annotated[Branch, Field(description="Put the commits onto this commit; default `upstream`")] = "",
        steps: Annotated[
            list[str],
            Field(
                description=(
                    "What happens to each commit, oldest first, one step for every commit: pick ID, reword "
                    "ID TEXT, squash ID [TEXT], fixup ID, edit ID or drop ID; default pick"
                )
            ),
        ] = [],  # noqa: B006
        autosquash: Annotated[
            bool | None,
            Field(
                description=(
                    "Join fixup! and squash! commits with those that they name; default as in git's configuration"
                )
            ),
        ] = None,
    ) -> TextResult:
        """Move the commits of the current branch onto another base, or change, join, reorder or drop them by steps.

        Applies all commits that `upstream` lacks anew, oldest first; their ids change. Returns the new position and the
        call that undoes it. At a conflict it stops: git_conflicts shows the regions, git_continue goes on, skips or
        aborts. It is refused with merges among the commits and with uncommitted changes; 200 commits at most. To keep
        the commits as they are use git_merge.
        """
        async with self._opened(repository, access=Access.WORK_TREE) as opened:
            is_joined = not steps and await rebase_autosquash(opened) if autosquash is None else autosquash
            options = rebase.RebaseOptions(upstream=upstream, onto=onto, autosquash=is_joined, steps=steps)
            return await rebase.rebase(opened, options)

    @tool(Effect.CHANGE, profiles=ALL, title="Git cherry-pick")
    async def git_cherry_pick(
        self,
        revisions: Annotated[
            list[str],
            Field(
                min_length=1, description="Commits in the order in which they are applied, or ranges a..b; at least one"
            ),
            Aliases("commits"),
        ],
        repository: Repository = ".",
        *,
        mainline: Annotated[
            int,
            Field(
                ge=0,
                le=9,
                description=(
                    "Of a merge commit: number of the parent to compare it with, 1 to 9; default 0, for "
                    "ordinary commits"
                ),
            ),
        ] = 0,
    ) -> TextResult:
        """Apply the changes of commits of another branch to the current branch, as new commits.

        Returns the new position and the call that undoes it. At a conflict it stops: git_conflicts shows it,
        git_continue goes on, skips or aborts. 200 commits at most. To take all of a branch use git_merge; for the
        opposite of a commit, git_revert.
        """
        return await self._pick(repository, revisions, mainline, revert=False)

    @tool(Effect.CHANGE, profiles=ALL, title="Git revert")
    async def git_revert(
        self,
        revisions: Annotated[
            list[str],
            Field(
                min_length=1,
                description="Commits in the order in which they are reverted, newest first, or ranges a..b; at least "
                "one",
            ),
            Aliases("commits"),
        ],
        repository: Repository = ".",
        *,
        mainline: Annotated[
            int,
            Field(
                ge=0,
                le=9,
                description=(
                    "Of a merge commit: number of the parent to return to, 1 to 9; default 0, for ordinary commits"
                ),
            ),
        ] = 0,
    ) -> TextResult:
        """Commit the opposite of commits; the history stays as it is.

        Returns the new position and the call that undoes it. At a conflict it stops: git_conflicts shows it,
        git_continue goes on, skips or aborts. 200 commits at most. To remove the last commits from the branch instead
        use git_reset.
        """
        return await self._pick(repository, revisions, mainline, revert=True)

    async def _pick(self, repository: str, revisions: list[str], mainline: int, *, revert: bool) -> TextResult:
        async with self._opened(repository, access=Access.WORK_TREE) as opened:
            return await pick(opened, revisions=revisions, revert=revert, mainline=mainline)

    @tool(Effect.CHANGE, title="Git continue")
    async def git_continue(
        self,
        action: Annotated[
            Literal["continue", "skip", "abort", "resolve"],
            Field(
                description=(
                    "`continue` (default): commit what is resolved and go on; `skip`: leave out the commit "
                    "that stopped; `abort`: back to the state before the operation; `resolve`: only apply "
                    "`resolutions`"
                )
            ),
        ] = "continue",
        repository: Repository = ".",
        *,
        resolutions: Annotated[
            dict[str, Any],
            Field(
                description=(
                    "An answer for each path in conflict: 'ours', 'theirs', 'base', 'delete' or {'text': the "
                    "whole file}; or a list with 'ours', 'theirs', 'base', 'both' or {'text': ...} for each "
                    "region in order. Default none: what was edited and staged counts"
                )
            ),
        ] = {},  # noqa: B006
        message: Annotated[str, Field(description="With continue: message of the commit; default its own")] = "",
    ) -> TextResult:
        r"""Resolve conflicts, then continue, skip or abort the merge, rebase, cherry-pick or revert that stopped.

        Returns what was resolved, what is still in conflict, and where the operation ended or stopped again. It goes on
        only when no conflict is left; all resolutions are checked before a file is written. With nothing in progress it
        is an error. Files can also be edited, and staged with git_add, before. To see the conflicts use git_conflicts;
        whether an operation is in progress, git_status. Example: {"resolutions": {"a.txt": "theirs", "b.py": ["ours",
        {"text": "x = 2\n"}]}}.
        """
        async with self._opened(repository, list(resolutions), access=Access.WORK_TREE) as opened:
            options = resume.ResumeOptions(action=action, message=message, resolutions=resolutions)
            return await resume.resume(opened, options)

    @tool(Effect.READ, structured=True, profiles=DEV, title="Git conflicts")
    async def git_conflicts(
        self,
        repository: Repository = ".",
        paths: Annotated[
            Paths,
            Field(
                description="Only these files and directories; one file alone is shown with more lines and whole "
                "versions. Default all in conflict"
            ),
        ] = [],  # noqa: B006
    ) -> ConflictsResult:
        """Show the conflicts of a merge, rebase, cherry-pick, revert or stash, region by region.

        Returns what ours and theirs are (branch, commit or stash), and for each path its kind and its numbered regions
        with both sides and some lines around. A file without regions (deleted on one side, binary) has its versions,
        shortened. At most 10 files have content, the others are listed. Without conflicts it says so, which is no
        error. To answer use git_continue with `resolutions`; to take one side of a whole file, git_restore with `side`.
        """
        async with self._opened(repository, paths) as opened:
            names = git_names(opened, paths)
            return await conflicts(opened, names=names)
