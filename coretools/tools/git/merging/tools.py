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
            Branch, Field(description="branch, tag or commit to merge"), Aliases("branch", "rev", "ref")
        ],
        repository: Repository = ".",
        *,
        message: Annotated[
            str, Field(description="message of the merge commit, by default the one that git writes")
        ] = "",
        fast_forward: Annotated[
            bool,
            Field(
                description=("only move the branch if it has no commits of its own; false: always make a merge commit")
            ),
            Aliases("ff"),
        ] = True,
    ) -> TextResult:
        """Merge another branch or commit into the current branch.

        Returns the new commit and the call that undoes it. If both sides changed the same lines it stops, and the
        answer names the files: git_conflicts shows them, git_continue resolves them and goes on or aborts.
        Uncommitted changes that would be overwritten refuse it. Only one revision can be merged at a time.
        """
        async with self._opened(repository, access=Access.WORK_TREE) as opened:
            return await merge(opened, revision=revision, message=message, fast_forward=fast_forward)

    @tool(Effect.CHANGE, title="Git rebase")
    async def git_rebase(
        self,
        upstream: Annotated[
            Branch,
            Field(description="branch or commit that becomes the base; its commits are not moved"),
            Aliases("branch", "base"),
        ],
        repository: Repository = ".",
        *,
        onto: Annotated[Branch, Field(description="put the commits onto this commit instead of onto upstream")] = "",
        steps: Annotated[
            list[str],
            Field(
                description=(
                    "what happens to each commit, oldest first: pick ID, reword ID TEXT, squash ID [TEXT], "
                    "fixup ID, edit ID or drop ID; every commit needs one"
                )
            ),
        ] = [],  # noqa: B006
        autosquash: Annotated[
            bool | None,
            Field(
                description=(
                    "join fixup! and squash! commits with those that they name; by default as in git's configuration"
                )
            ),
        ] = None,
    ) -> TextResult:
        """Move the commits of the current branch onto another base, or change, join, reorder or drop them by steps.

        Applies all commits that upstream lacks anew, oldest first; their ids change. Returns the new position and the
        call that undoes it. At a conflict it stops: git_conflicts shows the regions, git_continue goes on, skips or
        aborts. Merges among the commits and uncommitted changes refuse it; 200 commits at most. git_merge keeps the
        commits as they are.
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
            Field(min_length=1, description="commits in the order in which they are applied, or ranges a..b"),
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
                    "for a merge commit: number of the parent to compare it with, 1 or 2; 0 for ordinary commits"
                ),
            ),
        ] = 0,
    ) -> TextResult:
        """Apply the changes of commits of another branch to the current branch, as new commits, up to 200.

        Returns the new position and the call that undoes it. At a conflict it stops: git_conflicts shows it,
        git_continue goes on, skips or aborts. git_revert does the opposite of a commit.
        """
        return await self._pick(repository, revisions, mainline, revert=False)

    @tool(Effect.CHANGE, profiles=ALL, title="Git revert")
    async def git_revert(
        self,
        revisions: Annotated[
            list[str],
            Field(
                min_length=1,
                description="commits in the order in which they are reverted, newest first, or ranges a..b",
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
                description=("for a merge commit: number of the parent to return to, 1 or 2; 0 for ordinary commits"),
            ),
        ] = 0,
    ) -> TextResult:
        """Commit the opposite of commits, up to 200; the history stays as it is.

        Returns the new position and the call that undoes it. At a conflict it stops: git_conflicts shows it,
        git_continue goes on, skips or aborts. git_reset removes the last commits from the branch instead.
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
                    "continue: commit what is resolved and go on; skip: leave out the commit that stopped; "
                    "abort: back to the state before the operation; resolve: only apply resolutions"
                )
            ),
        ] = "continue",
        repository: Repository = ".",
        *,
        resolutions: Annotated[
            dict[str, Any],
            Field(
                description=(
                    "answer for each path in conflict: 'ours', 'theirs', 'base', 'delete', {'text': the whole"
                    " file}, or a list with one of 'ours', 'theirs', 'base', 'both', {'text': ...} for each "
                    "region"
                )
            ),
        ] = {},  # noqa: B006
        message: Annotated[str, Field(description="continue: message of the commit, instead of its own")] = "",
    ) -> TextResult:
        """Resolve conflicts, then continue, skip or abort the merge, rebase, cherry-pick or revert that stopped.

        Returns what was resolved, what is still in conflict, and where the operation ended or stopped again. It
        continues only when no conflict is left; all resolutions are checked before a file is written. Files can also
        be edited and staged with git_add first. git_conflicts shows what is to be resolved; git_status says whether
        an operation is in progress.
        """
        async with self._opened(repository, list(resolutions), access=Access.WORK_TREE) as opened:
            options = resume.ResumeOptions(action=action, message=message, resolutions=resolutions)
            return await resume.resume(opened, options)

    @tool(Effect.READ, structured=True, profiles=DEV, title="Git conflicts")
    async def git_conflicts(
        self,
        repository: Repository = ".",
        paths: Annotated[
            Paths, Field(description="only these files and directories; a single file is shown with more lines around")
        ] = [],  # noqa: B006
    ) -> ConflictsResult:
        """Show the conflicts of a merge, rebase, cherry-pick, revert or stash, region by region.

        Returns what ours and theirs are (branch, commit or stash), and for each path its kind and the regions between
        git's markers, with some lines around each. A file without regions (deleted on one side, binary) has its
        versions, shortened. At most 10 files have content, the rest is listed; one path named alone has more lines
        and whole versions. git_continue takes the answers.
        """
        async with self._opened(repository, paths) as opened:
            names = git_names(opened, paths)
            return await conflicts(opened, names=names)
