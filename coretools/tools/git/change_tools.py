"""Git tools of a day's work beside those in `tools`: show, switch, restore, reset, stash, merge, rebase, conflicts.

They are in the default profile, whose list stays small: descriptions are short, and rare parameters not listed there.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from coretools.errors import InvalidArguments
from coretools.operations.completion import Completes
from coretools.operations.declare import Aliases, Effect, Rare, tool
from coretools.tools.git.changes import branches, combine, rebase, resume
from coretools.tools.git.changes import hunks as hunk_changes
from coretools.tools.git.changes import stash as stashes
from coretools.tools.git.changes.conflicts import ConflictsResult, conflicts
from coretools.tools.git.changes.restore import RestoreOptions, reset, restore
from coretools.tools.git.reading.differences import DiffOptions
from coretools.tools.git.reading.show import show, show_file
from coretools.tools.git.repository.checkout import Checkout, git_names
from coretools.tools.git.repository.habits import rebase_autosquash
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult
from coretools.tools.git.tools import Repository

Branch = Annotated[str, Completes("branches")]
RareRepository = Annotated[Repository, Rare()]
"""Models know it from the tools that list it: `git_status`, `git_log`, `git_diff`, `git_add`, `git_commit`."""

Paths = Annotated[list[str], Aliases("files", hints=("path", "file_path"))]


class GitChangeTools:
    """Further tools for the git repositories beneath the roots."""

    def __init__(self, repositories: Repositories) -> None:
        self._opened = repositories.opened
        self._roots = repositories.roots
        self._git = repositories.git

    @tool(Effect.READ, title="Git show")
    async def git_show(
        self,
        revision: Annotated[Branch, Field(description="Commit or tag"), Aliases("rev", "ref", "commit")] = "HEAD",
        repository: RareRepository = ".",
        path: Annotated[str, Field(description="As it was there"), Aliases("file", "file_path")] = "",
        *,
        offset: Annotated[int, Field(ge=1, description="First line of the file"), Rare()] = 1,
        paths: Annotated[Paths, Field(description="Limit the difference to these"), Rare()] = [],  # noqa: B006
        stat: Annotated[bool, Field(description="Only counts instead of the difference"), Rare()] = False,
        skip: Annotated[int, Field(ge=0, description="Hunks to leave out first"), Rare()] = 0,
    ) -> TextResult:
        """Show one commit, tag or old file. Lists: git_log."""
        async with self._opened(repository, [path] if path else paths) as checkout:
            if path:
                [name] = git_names(self._roots, checkout, [path])
                return await show_file(self._roots, self._git, checkout, revision=revision, name=name, offset=offset)
            options = DiffOptions(
                names=git_names(self._roots, checkout, paths),
                most_bytes=self._git.answer_bytes,
                is_summary=stat,
                skip=skip,
            )
            return await show(self._roots, self._git, checkout, revision=revision, options=options)

    @tool(Effect.CHANGE, title="Git switch")
    async def git_switch(
        self,
        branch: Annotated[Branch, Field(description="Its name"), Aliases("name", "branch_name")] = "",
        repository: RareRepository = ".",
        *,
        create: Annotated[bool, Field(description="As a new one")] = False,
        start: Annotated[Branch, Field(description="create: from here"), Aliases("base"), Rare()] = "",
        detach: Annotated[Branch, Field(description="Revision to check out without a branch"), Rare()] = "",
    ) -> TextResult:
        """Switch to one branch. List: git_branches."""
        async with self._opened(repository, access=Access.WORK_TREE) as checkout:
            options = branches.SwitchOptions(branch=branch, create=create, start=start, detach=detach)
            return await branches.switch(self._roots, self._git, checkout, options)

    @tool(Effect.CHANGE, title="Git restore")
    async def git_restore(
        self,
        paths: Annotated[Paths, Field(min_length=1, description=". for all")],
        repository: RareRepository = ".",
        *,
        what: Annotated[
            Literal["worktree", "staged", "both"],
            Field(description="staged: unstage"),
            Aliases(switches={"staged": {True: "staged"}}),
        ] = "worktree",
        revision: Annotated[Branch, Field(description="Take them from this commit"), Aliases("source"), Rare()] = "",
        hunks: Annotated[list[str], Field(description="Only these hunks or lines, as in git_add"), Rare()] = [],  # noqa: B006
        side: Annotated[
            Literal["", "ours", "theirs", "conflict"],
            Field(description="Resolve conflicts: take this side, and stage it; conflict: as it was"),
            Rare(),
        ] = "",
    ) -> TextResult:
        """Restore or unstage only these files. All: git_reset."""
        async with self._opened(repository, paths, access=Access.WORK_TREE) as checkout:
            if hunks:
                return await self._restore_hunks(checkout, paths, hunks, what=what, is_plain=not (revision or side))
            commit = (await self._git.resolved(checkout, revision))[0] if revision else ""
            options = RestoreOptions(work_tree=what != "staged", index=what != "worktree", source=commit, side=side)
            names = git_names(self._roots, checkout, paths)
            return await restore(self._roots, self._git, checkout, names=names, options=options)

    async def _restore_hunks(
        self, checkout: Checkout, paths: list[str], choices: list[str], *, what: str, is_plain: bool
    ) -> TextResult:
        if not is_plain or what == "both":
            raise InvalidArguments("hunks: go with what 'staged' or 'worktree', without revision and side")
        change = hunk_changes.UNSTAGE if what == "staged" else hunk_changes.DISCARD
        names = git_names(self._roots, checkout, paths)
        return await hunk_changes.change_hunks(self._roots, self._git, checkout, names, choices, change)

    @tool(Effect.CHANGE, title="Git reset")
    async def git_reset(
        self,
        revision: Annotated[Branch, Field(description="Go there"), Aliases("rev", "ref", "commit")] = "HEAD",
        repository: RareRepository = ".",
        *,
        mode: Annotated[
            Literal["soft", "mixed", "keep", "hard"],
            Field(description="hard: files too"),
            Aliases(switches={"hard": {True: "hard"}, "soft": {True: "soft"}}),
        ] = "mixed",
        paths: Annotated[Paths, Field(description="Only the index, of these paths"), Rare()] = [],  # noqa: B006
    ) -> TextResult:
        """Move the branch, by default no file. Files: git_restore."""
        access = Access.WORK_TREE if mode in ("keep", "hard") else Access.GIT_DIRECTORY
        async with self._opened(repository, paths, access=access) as checkout:
            names = git_names(self._roots, checkout, paths)
            return await reset(self._roots, self._git, checkout, revision=revision, mode=mode, names=names)

    @tool(Effect.CHANGE, title="Git stash")
    async def git_stash(
        self,
        action: Annotated[
            Literal["push", "list", "show", "apply", "pop", "drop"],
            Field(description="Do this"),
        ] = "push",
        repository: RareRepository = ".",
        *,
        stash: Annotated[str, Field(description="Number"), Aliases("index")] = "0",
        paths: Annotated[Paths, Field(description="push, show: only these"), Rare()] = [],  # noqa: B006
        message: Annotated[str, Field(description="push: what it is"), Rare()] = "",
        untracked: Annotated[bool, Field(description="Too"), Aliases("include_untracked")] = False,
        with_index: Annotated[bool, Field(description="apply, pop: stage again what was staged"), Rare()] = False,
    ) -> TextResult:
        """Stash all changes, or bring them back. For good: git_commit."""
        access = Access.READ if action in ("list", "show") else Access.WORK_TREE
        async with self._opened(repository, paths, access=access) as checkout:
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
                    return await stashes.apply(
                        self._roots, self._git, checkout, stash=stash, drop=drop, with_index=with_index
                    )

    @tool(Effect.CHANGE, title="Git merge")
    async def git_merge(
        self,
        revision: Annotated[Branch, Field(description="Another branch"), Aliases("branch", "rev", "ref")],
        repository: RareRepository = ".",
        *,
        message: Annotated[str, Field(description="Of the merge commit, by default as git writes it"), Rare()] = "",
        fast_forward: Annotated[
            bool, Field(description="No merge commit if HEAD is behind"), Aliases("ff"), Rare()
        ] = True,
    ) -> TextResult:
        """Merge one branch into this. Conflicts: git_conflicts."""
        async with self._opened(repository, access=Access.WORK_TREE) as checkout:
            return await combine.merge(
                self._roots, self._git, checkout, revision=revision, message=message, fast_forward=fast_forward
            )

    @tool(Effect.CHANGE, title="Git rebase")
    async def git_rebase(
        self,
        upstream: Annotated[Branch, Field(description="New base"), Aliases("branch", "base")],
        repository: RareRepository = ".",
        *,
        onto: Annotated[Branch, Field(description="Where they go, by default onto upstream"), Rare()] = "",
        steps: Annotated[list[str], Field(description="pick ID, reword ID TEXT, drop ID")] = [],  # noqa: B006
        autosquash: Annotated[
            bool | None,
            Field(description="Join fixup! commits with theirs; default: git's configuration"),
            Rare(),
        ] = None,
    ) -> TextResult:
        """Move all commits of the branch. Conflicts: git_conflicts."""
        async with self._opened(repository, access=Access.WORK_TREE) as checkout:
            is_joined = not steps and await rebase_autosquash(self._git, checkout) if autosquash is None else autosquash
            options = rebase.RebaseOptions(upstream=upstream, onto=onto, autosquash=is_joined, steps=steps)
            return await rebase.rebase(self._roots, self._git, checkout, options)

    @tool(Effect.CHANGE, title="Git continue")
    async def git_continue(
        self,
        action: Annotated[Literal["continue", "skip", "abort", "resolve"], Field(description="How")] = "continue",
        repository: RareRepository = ".",
        *,
        resolutions: Annotated[dict[str, Any], Field(description="Path: ours, theirs, {text}")] = {},  # noqa: B006
        message: Annotated[str, Field(description="continue: instead of the commit's own message"), Rare()] = "",
    ) -> TextResult:
        """End what stopped, only without conflicts: git_conflicts."""
        async with self._opened(repository, list(resolutions), access=Access.WORK_TREE) as checkout:
            options = resume.ResumeOptions(action=action, message=message, resolutions=resolutions)
            return await resume.resume(self._roots, self._git, checkout, options)

    @tool(Effect.READ, structured=True, profiles=("dev",), title="Git conflicts")
    async def git_conflicts(
        self,
        repository: RareRepository = ".",
        paths: Annotated[Paths, Field(description="Only these"), Rare()] = [],  # noqa: B006
    ) -> ConflictsResult:
        """Show all conflicts, both sides. Then: git_continue."""
        async with self._opened(repository, paths) as checkout:
            names = git_names(self._roots, checkout, paths)
            return await conflicts(self._roots, self._git, checkout, names=names)
