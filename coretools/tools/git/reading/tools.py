"""Tools that read: git_status, git_log, git_diff, git_show, git_blame and git_reflog."""

from typing import Annotated

from pydantic import Field

from coretools.errors import InvalidArguments
from coretools.operations.declare import Aliases, Effect, tool
from coretools.tools.git.reading.blame import BLAME_LINES, BlameOptions, blame
from coretools.tools.git.reading.differences import DiffOptions, DiffResult, compared, diff
from coretools.tools.git.reading.log import MAX_SKIP, LogOptions, LogResult, log
from coretools.tools.git.reading.reflog import reflog
from coretools.tools.git.reading.show import show, show_file
from coretools.tools.git.reading.status import STATUS, StatusResult
from coretools.tools.git.repository.checkout import folder_names
from coretools.tools.git.repository.index_lock import index_lock
from coretools.tools.git.repository.names import git_names
from coretools.tools.git.repository.porcelain import read_status
from coretools.tools.git.repository.results import TextResult
from coretools.tools.git.repository.tool_set import ALL, Branch, GitToolSet, Paths, Repository

LogRevision = Annotated[
    Branch,
    Field(
        description="Branch, tag or commit whose history is listed, or a range a..b: commits of b that a "
        "lacks; default HEAD"
    ),
    Aliases("rev", "ref", "branch"),
]
LogPath = Annotated[
    str,
    Field(description="Only commits that changed this file, or something in this directory; default all"),
    Aliases("file_path", "file"),
]
LogLimit = Annotated[
    int, Field(ge=1, le=200, description="Most commits to return, 1 to 200; default 20"), Aliases("max_count", "n")
]
AuthorText = Annotated[
    str, Field(description="Only commits whose author has this text in name or address"), Aliases("author")
]
Since = Annotated[
    str, Field(description="Only commits from this date on, as 2026-11-01 or '2 weeks ago'"), Aliases("after")
]
Until = Annotated[
    str, Field(description="Only commits up to this date, the day included; written as `since`"), Aliases("before")
]
MessageText = Annotated[
    str, Field(description="Only commits with this text in the message"), Aliases("message", "query")
]
ChangedText = Annotated[
    str,
    Field(
        description="Only commits that added or removed this text: after them it occurs more or less often (git log -S)"
    ),
    Aliases("pickaxe"),
]
InLines = Annotated[
    bool,
    Field(
        description="With `changed`: every commit with a changed line that contains the text (git log -G); "
        "default false"
    ),
]
AllBranches = Annotated[
    bool,
    Field(description="Start from all branches and tags, remote ones too, instead of from `revision`; default false"),
    Aliases("all"),
]
Follow = Annotated[
    bool,
    Field(description="With `path` of one file: go on under the name that it had before it was renamed; default false"),
]


class ReadingTools(GitToolSet):
    """Show the state of a work tree, its history and its differences."""

    @tool(Effect.READ, structured=True, title="Git status")
    async def git_status(self, repository: Repository = ".") -> StatusResult:
        """Show the branch, its distance to the upstream, and which files are changed, staged or new, and not committed.

        Returns a line "branch NAME" with upstream, distance and an unfinished operation, then one line for each path as
        git status --short does: staged letter, unstaged letter, path; ?? is a new file, UU a conflict. Then, where
        there are any, the number of stashes, the calls that end an unfinished merge or rebase, and a lock of the index.
        An untracked directory is one line; ignored files are not listed. Outside a repository it is an error. It
        contains no content: git_diff shows what changed, git_log the commits.
        """
        async with self._opened(repository, refreshes=True) as opened:
            status = read_status(await opened.output(*STATUS))
            lock = await index_lock(opened.checkout)
            return StatusResult.of(status, opened.checkout, budget=opened.git.answer_bytes, lock=str(lock or ""))

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
                description="Commits to leave out at the start, to go on with a longer list; default 0",
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
            bool,
            Field(description="Add the changed files of each commit with the lines added and removed; default false"),
        ] = False,
        body: Annotated[
            bool, Field(description="Add the whole message and the author's address; default false")
        ] = False,
    ) -> LogResult:
        """List commits, newest first: of a branch, a file, an author, a time, or with a text.

        Returns one line for each commit: short id, date, author, summary, and in parentheses the branches and tags that
        are there. The last line in brackets has the `skip` that goes on, if there are more. No such commit is no error,
        an unknown revision is one. All conditions must hold; texts are taken literally, not as patterns. To see the
        changes of one commit use git_show; for the changes between two, git_diff. Example: {"path": "src/api", "since":
        "2 weeks ago", "stat": true}.
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
        paths: Annotated[Paths, Field(description="Only these files and directories; default all")] = [],  # noqa: B006
        *,
        staged: Annotated[
            bool,
            Field(
                description="Show what is staged, compared with the last commit or with `base`; default false: what "
                "is not staged"
            ),
            Aliases("cached"),
        ] = False,
        base: Annotated[
            Branch,
            Field(
                description=(
                    "Compare with this commit or branch, or a range: a..b, or a...b for the changes of b "
                    "since both parted; default the index"
                )
            ),
        ] = "",
        target: Annotated[
            Branch,
            Field(
                description="Compare `base` with this commit; default the work tree. Needs `base`, which is then no "
                "range; excludes `staged`"
            ),
        ] = "",
        stat: Annotated[
            bool, Field(description="Only the files, with the lines added and removed in each; default false")
        ] = False,
        names: Annotated[
            bool, Field(description="Only the files, and how each changed; default false"), Aliases("name_only")
        ] = False,
        word: Annotated[
            bool,
            Field(description="Mark changed words within the lines, as [-old-]{+new+}; default false"),
            Aliases("word_diff"),
        ] = False,
        skip: Annotated[
            int,
            Field(ge=0, description="Hunks to leave out at the start, to go on with a longer difference; default 0"),
        ] = 0,
    ) -> DiffResult:
        """Show changed lines of tracked files: unstaged ones, staged ones, or between two commits.

        Returns a patch in whole hunks. Each has a number and an id, as in `@@ -3,4 +3,4 @@ [hunk 1 70ef08f0]`, which
        git_add and git_restore take in `hunks`. If it does not fit into one answer (20,000 bytes), the last line names
        the `skip` that goes on. Of lock files, generated, minified and very large files there are only counts, until
        their path is named. Without any the answer is "no differences"; an unknown revision is an error. New files that
        are not tracked have no difference: git_status lists them. For one commit use git_show. Example: {"base":
        "main...HEAD", "stat": true} is what the current branch changed since it left main.
        """
        async with self._opened(repository, paths, refreshes=True) as opened:
            options = DiffOptions(
                names=git_names(opened, paths) or folder_names(opened.checkout),
                most_bytes=opened.git.answer_bytes,
                is_summary=stat,
                by_name=names,
                by_word=word,
                skip=skip,
            )
            options = await compared(opened, options, base=base, target=target, staged=staged)
            return await diff(opened, options)

    @tool(Effect.READ, title="Git show")
    async def git_show(
        self,
        revision: Annotated[
            Branch, Field(description="Commit, branch or tag to show; default HEAD"), Aliases("rev", "ref", "commit")
        ] = "HEAD",
        repository: Repository = ".",
        path: Annotated[
            str,
            Field(
                description="Return this file as it was in the revision, or the names in this directory. Excludes "
                "`paths`, `stat` and `skip`"
            ),
            Aliases("file", "file_path"),
        ] = "",
        *,
        offset: Annotated[
            int, Field(ge=1, description="With `path`: number of the first line to return, from 1; default 1")
        ] = 1,
        paths: Annotated[
            Paths,
            Field(
                description="Limit the changes of the commit to these files and directories; default all. "
                "Excludes `path`"
            ),
        ] = [],  # noqa: B006
        stat: Annotated[
            bool,
            Field(
                description="List the changed files with counts of lines instead of the patch; default false. "
                "Excludes `path`"
            ),
        ] = False,
        skip: Annotated[
            int,
            Field(
                ge=0,
                description="Hunks to leave out at the start, to go on with a longer patch; default 0. Excludes `path`",
            ),
        ] = 0,
    ) -> TextResult:
        """Show one commit with its message and changes, a tag, or a file as it was in a commit.

        Returns id, author, date, message and the patch against the first parent in whole hunks, with the `skip` that
        goes on if it does not fit. With `path` it returns the content of that file in that commit instead, or the names
        in that directory. An unknown revision, or a path that is not in it, is an error. To find the commit use
        git_log; to compare two commits, git_diff. Example: {"revision": "v1.2", "path": "README.md"}.
        """
        if path and (paths or stat or skip):
            raise InvalidArguments(
                "path: shows one file, of which paths, stat and skip say nothing; for a commit's changes to it give"
                " paths in place of path"
            )
        async with self._opened(repository, [path] if path else paths) as opened:
            if path:
                [name] = git_names(opened, [path])
                return await show_file(opened, revision=revision, name=name, offset=offset)
            options = DiffOptions(
                names=git_names(opened, paths),
                most_bytes=opened.git.answer_bytes,
                is_summary=stat,
                skip=skip,
            )
            return await show(opened, revision=revision, options=options)

    @tool(Effect.READ, profiles=ALL, title="Git blame")
    async def git_blame(
        self,
        path: Annotated[str, Field(description="File to examine"), Aliases("file_path", "file")],
        repository: Repository = ".",
        revision: Annotated[
            Branch,
            Field(description="Blame the file as it was in this commit; by default as it is in the work tree"),
            Aliases("rev"),
        ] = "",
        *,
        start: Annotated[
            int, Field(ge=1, description="Number of the first line, from 1; default 1"), Aliases("start_line")
        ] = 1,
        count: Annotated[
            int, Field(ge=1, le=2000, description="Most lines to return, 1 to 2,000; default 200")
        ] = BLAME_LINES,
        ignore_whitespace: Annotated[
            bool, Field(description="Pass over commits that changed only whitespace in a line; default false")
        ] = False,
        ignore: Annotated[
            list[str],
            Field(description="Commits to pass over, such as those that only reformatted"),
            Aliases("ignore_revs"),
        ] = [],  # noqa: B006
        ignore_file: Annotated[
            str,
            Field(description="File with commits to pass over, such as .git-blame-ignore-revs"),
            Aliases("ignore_revs_file"),
        ] = "",
    ) -> TextResult:
        """Show for each line of one file which commit last changed it.

        Returns for each line: short commit, date, author, number of the line, text. 200 lines from the first on by
        default, at most 2,000. To see what such a commit changed, and why, use git_show; for the commits of a file,
        git_log with `path`.
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

    @tool(Effect.READ, profiles=ALL, title="Git reflog")
    async def git_reflog(
        self,
        branch: Annotated[
            Branch, Field(description="HEAD, or the name of a branch; default HEAD"), Aliases("ref", "revision")
        ] = "HEAD",
        repository: Repository = ".",
        *,
        limit: Annotated[
            int,
            Field(ge=1, le=200, description="Most entries to return, 1 to 200; default 30"),
            Aliases("max_count", "n"),
        ] = 30,
        skip: Annotated[int, Field(ge=0, description="Entries to leave out at the start; default 0")] = 0,
    ) -> TextResult:
        """List where HEAD or a branch pointed before, newest first: to find lost commits.

        Returns for each move: its name such as HEAD@{1}, the commit, the date, and what moved it; then the call that
        goes back. Commits that no branch has any more are found here, as after a reset or rebase. To list the commits
        of a branch use git_log.
        """
        async with self._opened(repository) as opened:
            return await reflog(opened, branch=branch, limit=limit, skip=skip)
