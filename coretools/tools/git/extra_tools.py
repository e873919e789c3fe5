"""Git tools for rarer work: blame, branches, tags, single commits. They are in the profile `all` only."""

from functools import partial
from typing import Annotated, Literal

from anyio import to_thread
from pydantic import Field

from coretools.errors import GitRefused, InvalidArguments
from coretools.operations.completion import Completes
from coretools.operations.declare import Aliases, Effect, tool
from coretools.tools.git.changes import branches, combine
from coretools.tools.git.reading.blame import BLAME_LINES, BlameOptions, blame
from coretools.tools.git.reading.trust import TrustReport, examine_trust
from coretools.tools.git.repository.checkout import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult
from coretools.tools.git.tools import Repository

ALL = ("all",)

Branch = Annotated[str, Completes("branches")]


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
        kind: Annotated[str, Field(description="Only findings of this kind, such as alias: all of them")] = "",
        offset: Annotated[int, Field(ge=0, description="Leave out the first findings of the kind")] = 0,
    ) -> TrustReport:
        """List what plain git would run or reach here (hooks, remotes); runs nothing. Changed files: git_status."""
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
        path: Annotated[str, Field(description="One file"), Aliases("file_path", "file")],
        repository: Repository = ".",
        revision: Annotated[Branch, Field(description="As of this commit, not the work tree"), Aliases("rev")] = "",
        *,
        start: Annotated[int, Field(ge=1, description="First line"), Aliases("start_line")] = 1,
        count: Annotated[int, Field(ge=1, le=2000, description="Lines at most")] = BLAME_LINES,
        ignore_whitespace: Annotated[bool, Field(description="Skip commits that changed only whitespace")] = False,
        ignore: Annotated[list[str], Field(description="Skip these commits"), Aliases("ignore_revs")] = [],  # noqa: B006
        ignore_file: Annotated[
            str,
            Field(description="Skip those listed in this file, such as .git-blame-ignore-revs"),
            Aliases("ignore_revs_file"),
        ] = "",
    ) -> TextResult:
        """Show which commit last changed each line of one file. What a commit did: git_show."""
        async with self._opened(repository, [path]) as checkout:
            [name] = git_names(self._roots, checkout, [path])
            options = BlameOptions(
                name=name,
                revision=revision,
                first=start,
                count=count,
                ignore_whitespace=ignore_whitespace,
                ignored=ignore,
                ignored_file=ignore_file,
            )
            return await blame(self._roots, self._git, checkout, options)

    @tool(Effect.CHANGE, profiles=ALL, title="Git branch")
    async def git_branch(
        self,
        action: Annotated[
            Literal["create", "rename", "delete", "upstream"], Field(description="What to do with the branch")
        ],
        name: Annotated[Branch, Field(description="The branch"), Aliases("branch", "branch_name")],
        repository: Repository = ".",
        *,
        start: Annotated[Branch, Field(description="create: revision at which it begins, HEAD by default")] = "",
        new_name: Annotated[str, Field(description="rename: the name that it gets")] = "",
        force: Annotated[bool, Field(description="delete: even if its commits are in no other branch")] = False,
        upstream: Annotated[Branch, Field(description="upstream: a branch, or nothing to have none")] = "",
    ) -> TextResult:
        """Create, rename or delete one branch, or set its upstream. To list them: git_branches."""
        async with self._opened(repository, access=Access.GIT_DIRECTORY, is_shared=True) as checkout:
            match action:
                case "create":
                    return await branches.create_branch(self._git, checkout, name, start=start)
                case "rename":
                    return await branches.rename_branch(self._git, checkout, name, new_name=new_name)
                case "delete":
                    return await branches.delete_branch(self._git, checkout, name, force=force)
                case "upstream":
                    return await branches.set_upstream(self._git, checkout, name, upstream=upstream)

    @tool(Effect.CHANGE, profiles=ALL, title="Git tag")
    async def git_tag(
        self,
        action: Annotated[Literal["list", "create", "delete"], Field(description="What to do")] = "list",
        name: Annotated[str, Field(description="The tag; list: only those after it"), Aliases("tag")] = "",
        repository: Repository = ".",
        *,
        revision: Annotated[Branch, Field(description="create: what it names, HEAD by default")] = "",
        message: Annotated[str, Field(description="create: an annotated tag with this text")] = "",
    ) -> TextResult:
        """List, create or delete tags; one is never moved. What a tag names: git_show."""
        access = Access.READ if action == "list" else Access.GIT_DIRECTORY
        async with self._opened(repository, access=access, is_shared=action == "delete") as checkout:
            if action == "list":
                return await branches.list_tags(self._git, checkout, after=name)
            if not name:
                raise InvalidArguments("name: is needed to create or delete a tag")
            if action == "create":
                return await branches.create_tag(self._git, checkout, name, revision=revision, message=message)
            return await branches.delete_tag(self._git, checkout, name)

    @tool(Effect.CHANGE, profiles=ALL, title="Git cherry-pick")
    async def git_cherry_pick(
        self,
        revisions: Annotated[
            list[str],
            Field(min_length=1, description="Commits in the order to apply, or ranges a..b"),
            Aliases("commits"),
        ],
        repository: Repository = ".",
        *,
        mainline: Annotated[int, Field(ge=0, le=9, description="Of a merge: number of the parent to compare to")] = 0,
    ) -> TextResult:
        """Apply commits to the current branch, up to 200. Stops at conflicts. To take them back: git_revert."""
        return await self._pick(repository, revisions, mainline, revert=False)

    @tool(Effect.CHANGE, profiles=ALL, title="Git revert")
    async def git_revert(
        self,
        revisions: Annotated[
            list[str],
            Field(min_length=1, description="Commits in the order to revert, newest first, or ranges a..b"),
            Aliases("commits"),
        ],
        repository: Repository = ".",
        *,
        mainline: Annotated[int, Field(ge=0, le=9, description="Of a merge: number of the parent to return to")] = 0,
    ) -> TextResult:
        """Commit the opposite of commits, up to 200. Stops at conflicts. To move the branch instead: git_reset."""
        return await self._pick(repository, revisions, mainline, revert=True)

    async def _pick(self, repository: str, revisions: list[str], mainline: int, *, revert: bool) -> TextResult:
        async with self._opened(repository, access=Access.WORK_TREE) as checkout:
            return await combine.pick(
                self._roots, self._git, checkout, revisions=revisions, revert=revert, mainline=mainline
            )
