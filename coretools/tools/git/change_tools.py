"""Git tools of a day's work beside those in `tools`: show, switch, restore, reset, stash, merge, rebase, conflicts.

They are in the default profile, whose list stays small: descriptions are short, and rare parameters not listed there.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from coretools.errors import InvalidArguments
from coretools.operations.declare import Aliases, Effect, tool
from coretools.tools.git.changes import branches, combine, rebase, resume
from coretools.tools.git.changes import hunks as hunk_changes
from coretools.tools.git.changes import stash as stashes
from coretools.tools.git.changes.conflicts import ConflictsResult, conflicts
from coretools.tools.git.changes.restore import RestoreOptions, reset, restore
from coretools.tools.git.parameters import Branch, Paths, Repository
from coretools.tools.git.reading.differences import DiffOptions
from coretools.tools.git.reading.show import show, show_file
from coretools.tools.git.repository.checkout import folder_names
from coretools.tools.git.repository.habits import rebase_autosquash
from coretools.tools.git.repository.names import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult


class GitChangeTools:
    """Further tools for the git repositories beneath the roots."""

    def __init__(self, repositories: Repositories) -> None:
        self._opened = repositories.opened
        self._git = repositories.git

    @tool(Effect.READ, title="Git show")
    async def git_show(
        self,
        revision: Annotated[
            Branch, Field(description="commit, branch or tag to show, HEAD by default"), Aliases("rev", "ref", "commit")
        ] = "HEAD",
        repository: Repository = ".",
        path: Annotated[
            str,
            Field(description="return this file, or list this directory, as it was in the revision"),
            Aliases("file", "file_path"),
        ] = "",
        *,
        offset: Annotated[int, Field(ge=1, description="with path: number of the first line to return")] = 1,
        paths: Annotated[
            Paths, Field(description="limit the changes of the commit to these files and directories")
        ] = [],  # noqa: B006
        stat: Annotated[
            bool, Field(description="list the changed files with counts of lines instead of the patch")
        ] = False,
        skip: Annotated[
            int, Field(ge=0, description="number of hunks to leave out at the start, to go on with a longer patch")
        ] = 0,
    ) -> TextResult:
        """Show one commit with its message and changes, a tag, or a file as it was in a commit.

        Returns the patch against the first parent in whole hunks, with the skip that goes on if it does not fit. With
        path it returns the content of that file there instead, or the names in that directory. git_log lists commits.
        """
        async with self._opened(repository, [path] if path else paths) as opened:
            if path:
                [name] = git_names(opened, [path])
                return await show_file(opened, revision=revision, name=name, offset=offset)
            options = DiffOptions(
                names=git_names(opened, paths),
                most_bytes=self._git.answer_bytes,
                is_summary=stat,
                skip=skip,
            )
            return await show(opened, revision=revision, options=options)

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
            options = branches.SwitchOptions(branch=branch, create=create, start=start, detach=detach)
            return await branches.switch(opened, options)

    @tool(Effect.CHANGE, title="Git restore")
    async def git_restore(
        self,
        paths: Annotated[Paths, Field(min_length=1, description="files and directories to restore; . for everything")],
        repository: Repository = ".",
        *,
        what: Annotated[
            Literal["worktree", "staged", "both"],
            Field(
                description=(
                    "worktree: discard unstaged changes; staged: unstage, files stay as they are; both: "
                    "discard staged changes too"
                )
            ),
            Aliases(switches={"staged": {True: "staged"}}),
        ] = "worktree",
        revision: Annotated[
            Branch,
            Field(
                description=(
                    "take the content from this commit; by default from the index, or from HEAD if what is "
                    "staged or both"
                )
            ),
            Aliases("source"),
        ] = "",
        hunks: Annotated[
            list[str], Field(description="only these hunks or lines, written as for git_add; without revision and side")
        ] = [],  # noqa: B006
        side: Annotated[
            Literal["", "ours", "theirs", "conflict"],
            Field(
                description=("files in conflict: take ours or theirs and stage it; conflict: bring the conflict back")
            ),
        ] = "",
    ) -> TextResult:
        """Restore files from the index or a commit: discard changes, unstage, or take one side of a conflict.

        By default it discards unstaged changes of the paths. Returns the restored paths and how to undo it; discarded
        content is kept in a stash commit that the answer names, but not that of files in conflict. Only the named
        files change; git_reset moves the branch.
        """
        async with self._opened(repository, paths, access=Access.WORK_TREE) as opened:
            if hunks:
                return await self._restore_hunks(opened, paths, hunks, what=what, is_plain=not (revision or side))
            commit = (await opened.resolved(revision))[0] if revision else ""
            options = RestoreOptions(work_tree=what != "staged", index=what != "worktree", source=commit, side=side)
            names = git_names(opened, paths)
            return await restore(opened, names=names, options=options)

    async def _restore_hunks(
        self, repository: OpenRepository, paths: list[str], choices: list[str], *, what: str, is_plain: bool
    ) -> TextResult:
        if not is_plain or what == "both":
            raise InvalidArguments("hunks: go with what 'staged' or 'worktree', without revision and side")
        change = hunk_changes.UNSTAGE if what == "staged" else hunk_changes.DISCARD
        names = git_names(repository, paths)
        return await hunk_changes.change_hunks(repository, names, choices, change)

    @tool(Effect.CHANGE, title="Git reset")
    async def git_reset(
        self,
        revision: Annotated[
            Branch,
            Field(
                description=("commit or branch to which the current branch moves; HEAD by default, which moves nothing")
            ),
            Aliases("rev", "ref", "commit"),
        ] = "HEAD",
        repository: Repository = ".",
        *,
        mode: Annotated[
            Literal["soft", "mixed", "keep", "hard"],
            Field(
                description=(
                    "soft: index and files stay; mixed: unstage everything, files stay; keep: update files, "
                    "refuse if that would overwrite changes; hard: discard all changes of tracked files"
                )
            ),
            Aliases(switches={"hard": {True: "hard"}, "soft": {True: "soft"}}),
        ] = "mixed",
        paths: Annotated[
            Paths,
            Field(
                description=(
                    "unstage only these, or set them in the index as in the revision, without moving the "
                    "branch; mode mixed only"
                )
            ),
        ] = [],  # noqa: B006
    ) -> TextResult:
        """Move the current branch to another commit, or unstage everything.

        By default HEAD stays and everything is unstaged; files do not change. Returns the new position and the call
        that undoes it. Mode hard keeps discarded changes of tracked files in a stash commit that the answer names.
        git_restore changes single files.
        """
        access = Access.WORK_TREE if mode in ("keep", "hard") else Access.GIT_DIRECTORY
        async with self._opened(repository, paths, access=access) as opened:
            names = git_names(opened, paths)
            return await reset(opened, revision=revision, mode=mode, names=names)

    @tool(Effect.CHANGE, title="Git stash")
    async def git_stash(
        self,
        action: Annotated[
            Literal["push", "list", "show", "apply", "pop", "drop"],
            Field(
                description=(
                    "push: put changes away; list: all stashes; show: the changes of one; apply, pop: bring "
                    "one back; drop: delete one"
                )
            ),
        ] = "push",
        repository: Repository = ".",
        *,
        stash: Annotated[
            str,
            Field(description="number of the stash in the list, 0 for the newest, or its commit id"),
            Aliases("index"),
        ] = "0",
        paths: Annotated[Paths, Field(description="push, show: only these files and directories")] = [],  # noqa: B006
        message: Annotated[str, Field(description="push: a line that says what is stashed")] = "",
        untracked: Annotated[
            bool, Field(description="push: stash untracked files too, ignored ones never"), Aliases("include_untracked")
        ] = False,
        with_index: Annotated[
            bool,
            Field(description=("apply, pop: stage again what was staged; by default everything comes back unstaged")),
        ] = False,
    ) -> TextResult:
        """Stash uncommitted changes, list stashes, or apply one.

        Push takes the changes of tracked files away and keeps them as a stash; pop brings them back and removes the
        stash, apply keeps it. Returns the paths and the call that undoes it. A file that has changed meanwhile can
        end in conflict; then the stash stays and git_conflicts shows the regions. For a lasting state use git_commit.
        """
        access = Access.READ if action in ("list", "show") else Access.WORK_TREE
        is_shared = action in ("pop", "drop")  # the last one deletes the reference, for which git locks `packed-refs`
        async with self._opened(repository, paths, access=access, is_shared=is_shared) as opened:
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
                    return await stashes.drop_stash(opened, stash=stash)
                case _:
                    drop = action == "pop"
                    return await stashes.apply(opened, stash=stash, drop=drop, with_index=with_index)

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
            return await combine.merge(opened, revision=revision, message=message, fast_forward=fast_forward)

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

    @tool(Effect.READ, structured=True, profiles=("dev",), title="Git conflicts")
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
