"""Git tools for rarer work: blame, branches, tags, single commits. They are in the profile `all` only."""

from functools import partial
from typing import Annotated, Literal

from anyio import to_thread
from pydantic import Field

from coretools.errors import GitRefused, InvalidArguments
from coretools.operations.declare import Aliases, Effect, tool
from coretools.tools.git.changes import branches, combine
from coretools.tools.git.parameters import Branch, Repository
from coretools.tools.git.reading.blame import BLAME_LINES, BlameOptions, blame
from coretools.tools.git.reading.trust import TrustReport, examine_trust
from coretools.tools.git.repository.names import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult

ALL = ("all",)


class GitExtraTools:
    """Further tools for the git repositories beneath the roots, for rarer work."""

    def __init__(self, repositories: Repositories) -> None:
        self._opened = repositories.opened
        self._roots = repositories.roots
        self._git = repositories.git
        self._threads = repositories.threads

    @tool(Effect.READ, profiles=ALL, structured=True, title="Git trust report")
    async def git_trust_report(
        self,
        repository: Repository = ".",
        kind: Annotated[str, Field(description="only findings of this kind, such as alias, and all of them")] = "",
        offset: Annotated[int, Field(ge=0, description="with kind: number of findings to leave out at the start")] = 0,
    ) -> TrustReport:
        """List what plain git would run or reach in this repository: hooks, filters, aliases, remotes, includes.

        Returns the findings by kind with their files, and whether the git tools refuse the repository; nothing of it
        is run. git_status lists changed files.
        """
        if offset and not kind:
            raise InvalidArguments("offset: goes with a kind; name one with kind")
        examine = partial(examine_trust, self._roots, repository, self._git.setup.grants, kind=kind, offset=offset)
        findings, grants, directory = await to_thread.run_sync(examine, limiter=self._threads)
        refused = ""
        try:
            async with self._opened(repository):
                pass
        except GitRefused as error:
            refused = str(error)
        return TrustReport.of(
            findings, repository=directory, refused=refused, grants=grants, budget=self._git.answer_bytes
        )

    @tool(Effect.READ, profiles=ALL, title="Git blame")
    async def git_blame(
        self,
        path: Annotated[str, Field(description="the file"), Aliases("file_path", "file")],
        repository: Repository = ".",
        revision: Annotated[
            Branch,
            Field(description="blame the file as it was in this commit, instead of in the work tree"),
            Aliases("rev"),
        ] = "",
        *,
        start: Annotated[int, Field(ge=1, description="number of the first line"), Aliases("start_line")] = 1,
        count: Annotated[int, Field(ge=1, le=2000, description="number of lines at most")] = BLAME_LINES,
        ignore_whitespace: Annotated[
            bool, Field(description="pass over commits that changed only whitespace in a line")
        ] = False,
        ignore: Annotated[
            list[str],
            Field(description="pass over these commits, such as those that only reformatted"),
            Aliases("ignore_revs"),
        ] = [],  # noqa: B006
        ignore_file: Annotated[
            str,
            Field(description="pass over the commits listed in this file, such as .git-blame-ignore-revs"),
            Aliases("ignore_revs_file"),
        ] = "",
    ) -> TextResult:
        """Show for each line of one file which commit last changed it.

        Returns commit, date, author, number and text of each line, 200 lines by default. git_show shows what such a
        commit changed, and why.
        """
        async with self._opened(repository, [path]) as opened:
            [name] = git_names(opened, [path])
            options = BlameOptions(
                name=name,
                revision=revision,
                first=start,
                count=count,
                ignore_whitespace=ignore_whitespace,
                ignored=ignore,
                ignored_file=ignore_file,
            )
            return await blame(opened, options)

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
                    return await branches.create_branch(opened, name, start=start)
                case "rename":
                    return await branches.rename_branch(opened, name, new_name=new_name)
                case "delete":
                    return await branches.delete_branch(opened, name, force=force)
                case "upstream":
                    return await branches.set_upstream(opened, name, upstream=upstream)

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
                return await branches.list_tags(opened, after=name)
            if not name:
                raise InvalidArguments("name: is needed to create or delete a tag")
            if action == "create":
                return await branches.create_tag(opened, name, revision=revision, message=message)
            return await branches.delete_tag(opened, name)

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
            return await combine.pick(opened, revisions=revisions, revert=revert, mainline=mainline)
