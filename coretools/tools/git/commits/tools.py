"""Tools for the index and commits: git_add, git_commit, git_restore and git_reset."""

from typing import Annotated, Literal

from pydantic import Field

from coretools.errors import InvalidArguments
from coretools.operations.declare import Aliases, Effect, tool
from coretools.tools.git.commits import hunks as hunk_changes
from coretools.tools.git.commits.commit import CommitOptions, commit
from coretools.tools.git.commits.restore import RestoreOptions, reset, restore
from coretools.tools.git.commits.stage import StagingOptions, add
from coretools.tools.git.repository.names import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.results import TextResult
from coretools.tools.git.repository.tool_set import Branch, GitToolSet, Paths, Repository


class CommitTools(GitToolSet):
    """Stage, commit, and take either back."""

    @tool(Effect.CHANGE, title="Git add")
    async def git_add(
        self,
        paths: Annotated[
            list[str],
            Field(min_length=1, description='Files and directories to stage, at least one; "." for everything'),
            Aliases("files", hints=("path", "file_path"), switches={"all": {True: ["."]}}),
        ],
        repository: Repository = ".",
        *,
        hunks: Annotated[
            list[str],
            Field(
                description='Only these hunks: by number ("2", "1-3") if `paths` is one file, by id as git_diff '
                'shows it, or single lines by their numbers ("+5-9" added ones, "-3" a removed one). '
                "Excludes `update` and `intent`"
            ),
        ] = [],  # noqa: B006
        update: Annotated[
            bool,
            Field(
                description="Stage changes and deletions of tracked files only, no new files; default false. "
                "Excludes `hunks`"
            ),
        ] = False,
        intent: Annotated[
            bool,
            Field(
                description=(
                    "Record new files as known without staging their content, so that git_diff shows it; "
                    "default false. Excludes `hunks`"
                )
            ),
            Aliases("intent_to_add"),
        ] = False,
    ) -> TextResult:
        """Stage changes, new files and deletions for git_commit, whole files or parts of them.

        Returns the staged paths with a letter each (A added, M modified, D deleted), and the call that undoes it.
        Ignored files, hidden files (with secrets) and repositories within the work tree are not staged; they are listed
        if a directory covered them. A path that does not exist, or a hunk that is out of date, is an error and stages
        nothing. Staging a file also marks its conflict as resolved. For parts of files take numbers and ids of hunks
        from git_diff. To unstage use git_restore with what='staged'. Example: {"paths": ["a.py"], "hunks": ["2"]}.
        """
        async with self._opened(repository, paths, access=Access.GIT_DIRECTORY) as opened:
            names = git_names(opened, paths)
            if hunks and (update or intent):
                raise InvalidArguments("hunks: go without update and intent")
            if hunks:
                return await hunk_changes.change_hunks(opened, names, hunks, hunk_changes.STAGE)
            options = StagingOptions(tracked_only=update, intent=intent)
            return await add(opened, names, options)

    @tool(Effect.CHANGE, title="Git commit")
    async def git_commit(
        self,
        message: Annotated[
            str,
            Field(
                description=(
                    "Message: a summary line, then optionally an empty line and more text. Required, except "
                    "with `amend` or `fixup`"
                )
            ),
            Aliases("commit_message"),
        ] = "",
        repository: Repository = ".",
        *,
        amend: Annotated[
            bool,
            Field(
                description=(
                    "Replace the last commit by one with what is staged too; without `message` its message "
                    "stays. Default false"
                )
            ),
        ] = False,
        by: Annotated[
            str, Field(description="Author, if not the usual one, as Ada Lovelace <ada@example.com>"), Aliases("author")
        ] = "",
        fixup: Annotated[
            str,
            Field(
                description=(
                    "Commit that this one corrects: the message becomes fixup! with its summary, for a "
                    "rebase with autosquash. Excludes `message`"
                )
            ),
        ] = "",
        signoff: Annotated[
            bool, Field(description="End the message with Signed-off-by and the committer's name; default false")
        ] = False,
        paths: Annotated[
            list[str],
            Field(
                description=(
                    "Commit only these tracked files, as they are in the work tree; what else is staged "
                    "stays staged. Default what is staged"
                )
            ),
        ] = [],  # noqa: B006
    ) -> TextResult:
        """Commit what git_add staged: everything that is staged, by whomever.

        Returns the new commit, the branch, its first 20 files, what is left uncommitted, and the call that undoes it.
        The author comes from git's configuration or from the operator. Hooks of the repository do not run unless the
        operator grants them; the answer names those that were skipped (git commit in run_command runs them). With
        nothing staged it is an error. Nothing is sent to a remote: git_push does that. Example of a correction of the
        last message: {"amend": true, "message": "New text"}.
        """
        async with self._opened(repository, paths, access=Access.GIT_DIRECTORY) as opened:
            names = git_names(opened, paths)
            options = CommitOptions(message, amend=amend, author=by, fixup=fixup, signoff=signoff, names=names)
            return await commit(opened, options)

    @tool(Effect.CHANGE, title="Git restore")
    async def git_restore(
        self,
        paths: Annotated[
            Paths, Field(min_length=1, description='Files and directories to restore, at least one; "." for everything')
        ],
        repository: Repository = ".",
        *,
        what: Annotated[
            Literal["worktree", "staged", "both"],
            Field(
                description=(
                    "`worktree` (default): discard unstaged changes; `staged`: unstage, files stay as they "
                    "are; `both`: discard staged changes too"
                )
            ),
            Aliases(switches={"staged": {True: "staged"}}),
        ] = "worktree",
        revision: Annotated[
            Branch,
            Field(
                description=(
                    "Commit from which the content is taken; by default the index, or HEAD if `what` is "
                    "staged or both. Excludes `hunks`"
                )
            ),
            Aliases("source"),
        ] = "",
        hunks: Annotated[
            list[str],
            Field(
                description='Only these hunks or lines, written as for git_add, and not with what="both". Excludes '
                "`revision` and `side`"
            ),
        ] = [],  # noqa: B006
        side: Annotated[
            Literal["", "ours", "theirs", "conflict"],
            Field(
                description=(
                    "Files in conflict only: take `ours` or `theirs` and stage it; `conflict`: bring the "
                    "conflict back. Excludes `hunks`"
                )
            ),
        ] = "",
    ) -> TextResult:
        """Restore files from the index or a commit: discard changes, unstage, or take one side of a conflict.

        By default it discards the unstaged changes of `paths`. Returns the restored paths and the call that undoes it:
        discarded content is kept in a stash commit that the answer names, except that of files in conflict, which is
        lost permanently. A path that matches nothing is an error. Only the named files change; to move the branch use
        git_reset. Examples: {"paths": ["b.py"], "what": "staged"} unstages and keeps the content; {"paths": ["b.py"],
        "revision": "main"} takes the content from main.
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
                description=("Commit or branch to which the current branch moves; default HEAD, which moves nothing")
            ),
            Aliases("rev", "ref", "commit"),
        ] = "HEAD",
        repository: Repository = ".",
        *,
        mode: Annotated[
            Literal["soft", "mixed", "keep", "hard"],
            Field(
                description=(
                    "`soft`: index and files stay; `mixed` (default): unstage everything, files stay; "
                    "`keep`: update files, refuse if that would overwrite changes; `hard`: discard all "
                    "changes of tracked files"
                )
            ),
            Aliases(switches={"hard": {True: "hard"}, "soft": {True: "soft"}}),
        ] = "mixed",
        paths: Annotated[
            Paths,
            Field(
                description=(
                    "Unstage only these, or set them in the index as in the revision, without moving the "
                    "branch; default all. Only with mode mixed"
                )
            ),
        ] = [],  # noqa: B006
    ) -> TextResult:
        """Move the current branch to another commit, or unstage everything.

        Without arguments HEAD stays, everything is unstaged, and no file changes. Returns the new position and the call
        that undoes it. mode='hard' discards changes of tracked files, and keeps them in a stash commit that the answer
        names; untracked files stay. An unknown revision is an error, and nothing changes. To change single files use
        git_restore. Example: {"revision": "HEAD~1", "mode": "soft"} takes back the last commit and keeps its changes
        staged.
        """
        access = Access.WORK_TREE if mode in ("keep", "hard") else Access.GIT_DIRECTORY
        async with self._opened(repository, paths, access=access) as opened:
            names = git_names(opened, paths)
            return await reset(opened, revision=revision, mode=mode, names=names)
