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

    @tool(Effect.CHANGE, idempotent=True, title="Git add")
    async def git_add(
        self,
        paths: Annotated[
            list[str],
            Field(min_length=1, description="files and directories to stage; . for everything"),
            Aliases("files", hints=("path", "file_path"), switches={"all": {True: ["."]}}),
        ],
        repository: Repository = ".",
        *,
        hunks: Annotated[
            list[str],
            Field(
                description="only these hunks: by number (2, or 1-3) if one file is named, by id as git_diff shows it,"
                " or lines by their numbers: +5-9 added ones, -3 a removed one"
            ),
        ] = [],  # noqa: B006
        update: Annotated[
            bool, Field(description="stage changes and deletions of tracked files only, no new files")
        ] = False,
        intent: Annotated[
            bool,
            Field(description=("record new files as known without staging their content, so that git_diff shows it")),
            Aliases("intent_to_add"),
        ] = False,
    ) -> TextResult:
        """Stage changes, new files and deletions for git_commit.

        Returns the staged paths and the call that undoes it. Ignored files, hidden files (with secrets) and
        repositories within the work tree are not staged, and listed if they were covered by a directory. It also
        marks a conflict in a file as resolved. With hunks it stages only parts of files: get their numbers and ids
        from git_diff.
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
            Field(description=("message of the commit: a summary line, then optionally an empty line and more text")),
            Aliases("commit_message"),
        ] = "",
        repository: Repository = ".",
        *,
        amend: Annotated[
            bool,
            Field(
                description=("replace the last commit by one with what is staged; without a message its message stays")
            ),
        ] = False,
        by: Annotated[
            str, Field(description="author, if not the usual one, as Ada Lovelace <ada@example.com>"), Aliases("author")
        ] = "",
        fixup: Annotated[
            str,
            Field(
                description=(
                    "commit that this one corrects: the message becomes fixup! with its summary, and "
                    "git_rebase with autosquash joins them"
                )
            ),
        ] = "",
        signoff: Annotated[
            bool, Field(description="end the message with Signed-off-by and the committer's name")
        ] = False,
        paths: Annotated[
            list[str],
            Field(
                description=(
                    "commit only these tracked files as they are in the work tree; what else is staged stays staged"
                )
            ),
        ] = [],  # noqa: B006
    ) -> TextResult:
        """Commit what git_add staged.

        It takes everything that is staged, by whomever. Returns the new commit, the branch, its files (the first 20),
        what is left uncommitted, and the call that undoes it. The author comes from git's configuration or from the
        operator. Hooks of the repository do not run unless the operator grants them; the answer names those that were
        skipped (git commit in run_command runs them). An empty commit is refused.
        """
        async with self._opened(repository, paths, access=Access.GIT_DIRECTORY) as opened:
            names = git_names(opened, paths)
            options = CommitOptions(message, amend=amend, author=by, fixup=fixup, signoff=signoff, names=names)
            return await commit(opened, options)

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
