"""More git tools: look at one commit or file, move between branches, restore, reset, stash, tag, combine branches.

They are in the profile `all` only; the tools in `tools` are what most agents need, in a list that stays small.
"""

from typing import Annotated, Literal

from pydantic import Field

from coretools.errors import InvalidArguments
from coretools.operations.completion import Completes
from coretools.operations.declare import Aliases, Effect, tool
from coretools.tools.git.changes import branches, combine
from coretools.tools.git.changes import stash as stashes
from coretools.tools.git.changes.conflicts import ConflictsResult, conflicts
from coretools.tools.git.changes.restore import RestoreOptions, reset, restore
from coretools.tools.git.reading.show import BLAME_LINES, BlameOptions, blame, show, show_file
from coretools.tools.git.repository.checkout import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult
from coretools.tools.git.tools import Repository

ALL = ("all",)

Branch = Annotated[str, Completes("branches")]
Paths = Annotated[list[str], Aliases("files", hints=("path", "file_path"))]


class GitChangeTools:
    """Further tools for the git repositories beneath the roots."""

    def __init__(self, repositories: Repositories) -> None:
        self._opened = repositories.opened
        self._roots = repositories.roots
        self._git = repositories.git

    @tool(Effect.READ, profiles=ALL, title="Git show")
    async def git_show(
        self,
        revision: Annotated[Branch, Field(description="Commit or tag"), Aliases("rev", "ref", "commit")] = "HEAD",
        repository: Repository = ".",
        path: Annotated[str, Field(description="Show this file, or directory, as it was there"), Aliases("file")] = "",
        *,
        offset: Annotated[int, Field(ge=1, description="First line of the file")] = 1,
        paths: Annotated[Paths, Field(description="Limit the difference to these")] = [],  # noqa: B006
        stat: Annotated[bool, Field(description="Only counts instead of the difference")] = False,
    ) -> TextResult:
        """Show one commit with its message and difference, a tag, or a file of a revision. Lists: git_log."""
        async with self._opened(repository) as checkout:
            if path:
                [name] = git_names(self._roots, checkout, [path])
                return await show_file(self._roots, self._git, checkout, revision=revision, name=name, offset=offset)
            names = git_names(self._roots, checkout, paths)
            return await show(self._roots, self._git, checkout, revision=revision, names=names, summary=stat)

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
    ) -> TextResult:
        """Show which commit last changed each line of one file. What a commit did: git_show."""
        async with self._opened(repository) as checkout:
            [name] = git_names(self._roots, checkout, [path])
            [commit] = await self._git.resolved(checkout, revision) if revision else [""]
            wanted = BlameOptions(commit=commit, first=start, count=count, ignore_whitespace=ignore_whitespace)
            return await blame(self._roots, self._git, checkout, name, wanted)

    @tool(Effect.CHANGE, profiles=ALL, title="Git switch")
    async def git_switch(
        self,
        branch: Annotated[Branch, Field(description="Branch to switch to"), Aliases("name", "branch_name")] = "",
        repository: Repository = ".",
        *,
        create: Annotated[bool, Field(description="Make it first")] = False,
        start: Annotated[Branch, Field(description="Revision at which a new one begins"), Aliases("base")] = "",
        detach: Annotated[Branch, Field(description="Revision to check out without a branch")] = "",
    ) -> TextResult:
        """Switch to a branch or commit; never overwrites uncommitted changes. Other work on branches: git_branch."""
        async with self._opened(repository, access=Access.WORK_TREE) as checkout:
            options = branches.SwitchOptions(branch=branch, create=create, start=start, detach=detach)
            return await branches.switch(self._roots, self._git, checkout, options)

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
        async with self._opened(repository, access=Access.GIT_DIRECTORY) as checkout:
            match action:
                case "create":
                    return await branches.create_branch(self._git, checkout, name, start=start)
                case "rename":
                    return await branches.rename_branch(self._git, checkout, name, new_name=new_name)
                case "delete":
                    return await branches.delete_branch(self._git, checkout, name, force=force)
                case "upstream":
                    return await branches.set_upstream(self._git, checkout, name, upstream=upstream)

    @tool(Effect.CHANGE, profiles=ALL, title="Git restore")
    async def git_restore(
        self,
        paths: Annotated[Paths, Field(min_length=1, description="Files or directories; . for all")],
        repository: Repository = ".",
        *,
        what: Annotated[
            Literal["worktree", "staged", "both"],
            Field(description="worktree: discard unstaged changes; staged: unstage; both: discard all changes"),
        ] = "worktree",
        revision: Annotated[Branch, Field(description="Take them from this commit"), Aliases("source")] = "",
        side: Annotated[
            Literal["", "ours", "theirs"], Field(description="Resolve conflicts: take this side, and stage it")
        ] = "",
    ) -> TextResult:
        """Restore tracked files, or unstage them. What is overwritten is kept in a stash commit. HEAD: git_reset."""
        async with self._opened(repository, access=Access.WORK_TREE) as checkout:
            commit = (await self._git.resolved(checkout, revision))[0] if revision else ""
            options = RestoreOptions(work_tree=what != "staged", index=what != "worktree", source=commit, side=side)
            names = git_names(self._roots, checkout, paths)
            return await restore(self._roots, self._git, checkout, names=names, options=options)

    @tool(Effect.CHANGE, profiles=ALL, title="Git reset")
    async def git_reset(
        self,
        revision: Annotated[Branch, Field(description="Commit to go to"), Aliases("rev", "ref", "commit")] = "HEAD",
        repository: Repository = ".",
        *,
        mode: Annotated[
            Literal["soft", "mixed", "keep", "hard"],
            Field(
                description="soft: only the branch; mixed: also the index; keep: also files, but not those with "
                "uncommitted changes; hard: all files"
            ),
        ] = "mixed",
        paths: Annotated[Paths, Field(description="Only the index, of these paths")] = [],  # noqa: B006
    ) -> TextResult:
        """Move the branch to a commit; the default changes no file. Single files: git_restore."""
        access = Access.WORK_TREE if mode in ("keep", "hard") else Access.GIT_DIRECTORY
        async with self._opened(repository, access=access) as checkout:
            names = git_names(self._roots, checkout, paths)
            return await reset(self._roots, self._git, checkout, revision=revision, mode=mode, names=names)

    @tool(Effect.CHANGE, profiles=ALL, title="Git stash")
    async def git_stash(
        self,
        action: Annotated[
            Literal["push", "list", "show", "apply", "pop", "drop"], Field(description="What to do")
        ] = "push",
        repository: Repository = ".",
        *,
        stash: Annotated[str, Field(description="Its number in the list, or its commit"), Aliases("index")] = "0",
        paths: Annotated[Paths, Field(description="push, show: only these")] = [],  # noqa: B006
        message: Annotated[str, Field(description="push: what it is")] = "",
        untracked: Annotated[
            bool, Field(description="push: untracked files too, never ignored ones"), Aliases("include_untracked")
        ] = False,
    ) -> TextResult:
        """Stash uncommitted changes, list stashes, show, apply, pop or drop one. For good: git_commit."""
        access = Access.READ if action in ("list", "show") else Access.WORK_TREE
        async with self._opened(repository, access=access) as checkout:
            names = git_names(self._roots, checkout, paths)
            match action:
                case "push":
                    return await stashes.push(
                        self._roots, self._git, checkout, names=names, message=message, untracked=untracked
                    )
                case "list":
                    return await stashes.list_stashes(self._git, checkout)
                case "show":
                    return await stashes.show_stash(self._roots, self._git, checkout, stash=stash, names=names)
                case "drop":
                    return await stashes.drop_stash(self._git, checkout, stash=stash)
                case _:
                    drop = action == "pop"
                    return await stashes.apply(self._roots, self._git, checkout, stash=stash, drop=drop)

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
        async with self._opened(repository, access=access) as checkout:
            if action == "list":
                return await branches.list_tags(self._git, checkout, after=name)
            if not name:
                raise InvalidArguments("name: is needed to create or delete a tag")
            if action == "create":
                return await branches.create_tag(self._git, checkout, name, revision=revision, message=message)
            return await branches.delete_tag(self._git, checkout, name)

    @tool(Effect.CHANGE, profiles=ALL, title="Git merge")
    async def git_merge(
        self,
        revision: Annotated[Branch, Field(description="Branch or commit to merge"), Aliases("branch", "rev", "ref")],
        repository: Repository = ".",
        *,
        message: Annotated[str, Field(description="Of the merge commit, by default as git writes it")] = "",
        fast_forward: Annotated[bool, Field(description="No merge commit if HEAD is behind"), Aliases("ff")] = True,
    ) -> TextResult:
        """Merge one branch into the current one. Stops at conflicts; then git_conflicts and git_continue."""
        async with self._opened(repository, access=Access.WORK_TREE) as checkout:
            return await combine.merge(
                self._roots, self._git, checkout, revision=revision, message=message, fast_forward=fast_forward
            )

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

    @tool(Effect.CHANGE, profiles=ALL, title="Git rebase")
    async def git_rebase(
        self,
        upstream: Annotated[Branch, Field(description="Commits that this has are not moved"), Aliases("branch")],
        repository: Repository = ".",
        *,
        onto: Annotated[Branch, Field(description="Where they go, by default onto upstream")] = "",
        autosquash: Annotated[bool, Field(description="Join fixup! commits with those they are for")] = False,
    ) -> TextResult:
        """Move the commits of the current branch, up to 200. Stops at conflicts; then git_continue."""
        async with self._opened(repository, access=Access.WORK_TREE) as checkout:
            options = combine.RebaseOptions(upstream=upstream, onto=onto, autosquash=autosquash)
            return await combine.rebase(self._roots, self._git, checkout, options)

    @tool(Effect.CHANGE, profiles=ALL, title="Git continue")
    async def git_continue(
        self,
        action: Annotated[
            Literal["continue", "skip", "abort"],
            Field(description="continue: commit what was resolved; skip: leave the commit out; abort: undo it"),
        ],
        repository: Repository = ".",
        *,
        message: Annotated[str, Field(description="continue: instead of the commit's own message")] = "",
    ) -> TextResult:
        """End a merge, rebase, cherry-pick or revert that stopped; only when no conflict is left. See git_conflicts."""
        async with self._opened(repository, access=Access.WORK_TREE) as checkout:
            return await combine.resume(self._roots, self._git, checkout, action=action, message=message)

    @tool(Effect.READ, structured=True, profiles=ALL, title="Git conflicts")
    async def git_conflicts(
        self,
        repository: Repository = ".",
        paths: Annotated[Paths, Field(description="Only these")] = [],  # noqa: B006
    ) -> ConflictsResult:
        """Show both sides and the base of each file in conflict, up to ten. To take a side: git_restore."""
        async with self._opened(repository) as checkout:
            names = git_names(self._roots, checkout, paths)
            return await conflicts(self._roots, self._git, checkout, names=names)
