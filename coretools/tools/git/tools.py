"""The git tools: status, history, differences, branches, staging and commits.

git runs through the runner, and only in repositories that were examined first. `checkout` examines them; `policy`
lists the settings that a repository may not impose on git.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from coretools.config.settings import Limits
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.errors import InvalidArguments
from coretools.operations.completion import MAX_VALUES
from coretools.operations.declare import Aliases, Effect, tool
from coretools.process.runner import Runner
from coretools.roots.root_set import Roots
from coretools.tools.git.changes.commit import CommitOptions, commit
from coretools.tools.git.changes.hunks import STAGE, change_hunks
from coretools.tools.git.changes.stage import StagingOptions, add
from coretools.tools.git.parameters import (
    AllBranches,
    AuthorText,
    Branch,
    ChangedText,
    Follow,
    InLines,
    LogLimit,
    LogPath,
    LogRevision,
    MessageText,
    Paths,
    Repository,
    Since,
    Until,
)
from coretools.tools.git.reading.branch_list import BranchesResult, BranchOptions, list_branches
from coretools.tools.git.reading.differences import DiffOptions, DiffResult, compared, diff
from coretools.tools.git.reading.history import head
from coretools.tools.git.reading.log import MAX_SKIP, LogOptions, LogResult, log
from coretools.tools.git.reading.status import STATUS, StatusResult
from coretools.tools.git.repository.checkout import folder_names
from coretools.tools.git.repository.index_lock import index_lock
from coretools.tools.git.repository.names import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.porcelain import read_status, single_line
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult, answer
from coretools.tools.git.repository.setup import PLAIN, GitSetup


class GitTools:
    """Tools for the git repositories beneath the roots."""

    def __init__(
        self,
        roots: Roots,
        runner: Runner,
        limits: Limits,
        *,
        confined_threads: ConfinedThreadPool,
        setup: GitSetup = PLAIN,
    ) -> None:
        self.repositories = Repositories(roots, runner, limits, confined_threads=confined_threads, setup=setup)
        self._roots = self.repositories.roots
        self._git = self.repositories.git
        self._opened = self.repositories.opened

    @tool(Effect.READ, structured=True, title="Git status")
    async def git_status(self, repository: Repository = ".") -> StatusResult:
        """Show the branch, its distance to the upstream, and every path that differs from the last commit.

        Returns one line for each path as git status --short does: staged letter, unstaged letter, path; also the
        number of stashes, an unfinished merge or rebase with the calls that end it, and a lock of the index. It
        contains no content: git_diff shows what changed. An untracked directory is one line, and ignored files are
        not listed.
        """
        async with self._opened(repository, refreshes=True) as opened:
            status = read_status(await opened.output(*STATUS))
            lock = await index_lock(opened.checkout)
            return StatusResult.of(status, opened.checkout, budget=self._git.answer_bytes, lock=str(lock or ""))

    @tool(Effect.READ, structured=True, title="Git log")
    async def git_log(
        self,
        repository: Repository = ".",
        revision: LogRevision = "",
        *,
        path: LogPath = "",
        limit: LogLimit = 20,
        skip: Annotated[
            int,
            Field(
                ge=0,
                le=MAX_SKIP,
                description="number of commits to leave out at the start, to go on with a longer list",
            ),
        ] = 0,
        by: AuthorText = "",
        since: Since = "",
        until: Until = "",
        grep: MessageText = "",
        changed: ChangedText = "",
        in_lines: InLines = False,
        all_branches: AllBranches = False,
        follow: Follow = False,
        stat: Annotated[
            bool, Field(description="add the changed files of each commit, with the lines added and removed")
        ] = False,
        body: Annotated[bool, Field(description="add the whole message and the author's address")] = False,
    ) -> LogResult:
        """List commits, newest first, by default the last 20 of the current branch.

        Returns one line for each commit (short id, date, author, summary, branches and tags that are there) and, if
        there are more, the skip that goes on. Commits are selected by path, author, date, text of the message or text
        that they changed; texts are taken literally, not as patterns. git_show shows the changes of one commit.
        """
        async with self._opened(repository, [path] if path else []) as opened:
            options = LogOptions(
                revision=revision,
                names=git_names(opened, [path] if path else []) or folder_names(opened.checkout),
                limit=limit,
                skip=skip,
                author=by,
                since=since,
                until=until,
                message=grep,
                changed=changed,
                in_lines=in_lines,
                all_branches=all_branches,
                follow=follow,
                stat=stat,
                body=body,
            )
            return await log(opened, options)

    @tool(Effect.READ, structured=True, title="Git diff")
    async def git_diff(
        self,
        repository: Repository = ".",
        # The default is never changed; a tuple would be another schema.
        paths: Annotated[Paths, Field(description="only these files and directories")] = [],  # noqa: B006
        *,
        staged: Annotated[
            bool,
            Field(description="show what is staged, compared with the last commit (or with base)"),
            Aliases("cached"),
        ] = False,
        base: Annotated[
            Branch,
            Field(
                description=(
                    "compare with this commit or branch, or a range: a..b, or a...b for the changes of b "
                    "since both parted"
                )
            ),
        ] = "",
        target: Annotated[
            Branch, Field(description="compare base with this commit instead of with the work tree")
        ] = "",
        stat: Annotated[bool, Field(description="only the files, with the lines added and removed in each")] = False,
        names: Annotated[bool, Field(description="only the files and how each changed"), Aliases("name_only")] = False,
        word: Annotated[
            bool, Field(description="mark changed words in the lines: [-old-]{+new+}"), Aliases("word_diff")
        ] = False,
        skip: Annotated[
            int, Field(ge=0, description="number of hunks to leave out at the start, to go on with a longer difference")
        ] = 0,
    ) -> DiffResult:
        """Show changed lines of tracked files, by default those that are not staged.

        Returns a patch in whole hunks, each with a number and an id that git_add and git_restore take in hunks, and,
        if it does not fit, the skip that goes on. Of lock files, generated, minified and very large files it has only
        the counts until the path is named. New files that are not tracked have no difference: git_status lists them.
        One commit: git_show.
        """
        async with self._opened(repository, paths, refreshes=True) as opened:
            options = DiffOptions(
                names=git_names(opened, paths) or folder_names(opened.checkout),
                most_bytes=self._git.answer_bytes,
                is_summary=stat,
                by_name=names,
                by_word=word,
                skip=skip,
            )
            options = await compared(opened, options, base=base, target=target, staged=staged)
            return await diff(opened, options)

    @tool(Effect.READ, structured=True, title="Git branches")
    async def git_branches(
        self,
        repository: Repository = ".",
        remote: Annotated[
            bool,
            Field(description="list the branches of remotes too, as they were at the last fetch"),
            Aliases(hints=("branch_type",)),
        ] = False,
        *,
        pattern: Annotated[
            str, Field(description="only names that match, with * for any text, such as feature/*")
        ] = "",
        merged: Annotated[Branch, Field(description="only branches whose commits are all in this revision")] = "",
        no_merged: Annotated[Branch, Field(description="only branches with commits that this revision lacks")] = "",
        contains: Annotated[Branch, Field(description="only branches that contain this commit")] = "",
    ) -> BranchesResult:
        """List branches, the last used first, with the last commit of each.

        Returns one line for each branch: * at the current one, name, short commit, date, upstream with the distance
        to it, and summary; 500 at most. git_switch switches to one or creates one.
        """
        async with self._opened(repository) as opened:
            options = BranchOptions(
                remote=remote, pattern=pattern, merged=merged, no_merged=no_merged, contains=contains
            )
            return await list_branches(opened, options)

    async def branches(self, _: str, given: Mapping[str, str]) -> list[str]:
        """Return branch names for completion, local branches first."""
        async with self._opened(given.get("repository", ".")) as opened:
            words = ("for-each-ref", f"--count={MAX_VALUES}", "--format=%(refname:short)")
            output = await opened.output(*words, "refs/heads", "refs/remotes")
        return output.decode("utf-8", "backslashreplace").splitlines()

    @tool(Effect.READ, title="Current branch")
    async def git_current_branch(self, repository: Repository = ".") -> TextResult:
        """Name the current branch, or the commit if HEAD is detached.

        Returns the name alone. git_status shows the upstream and the changes too.
        """
        async with self._opened(repository) as opened:
            branch, commit = await head(opened)
            if not branch:
                text = f"HEAD detached at {commit[:10]}"
            else:
                text = branch if commit else f"{branch} (no commits yet)"
            return answer(opened.checkout, [single_line(text)], details={"branch": branch, "commit": commit})

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
                return await change_hunks(opened, names, hunks, STAGE)
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
