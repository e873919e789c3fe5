"""Tools that read: git_status, git_log, git_diff, git_show, git_blame and git_reflog."""

from typing import Annotated

from pydantic import Field

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
    Field(description="branch, tag, commit, or range a..b (commits of b that a lacks) to list; HEAD by default"),
    Aliases("rev", "ref", "branch"),
]
LogPath = Annotated[
    str,
    Field(description="only commits that changed this file or something in this directory"),
    Aliases("file_path", "file"),
]
LogLimit = Annotated[int, Field(ge=1, le=200, description="number of commits at most"), Aliases("max_count", "n")]
AuthorText = Annotated[
    str, Field(description="only commits of authors with this text in name or address"), Aliases("author")
]
Since = Annotated[
    str, Field(description="only commits from this date on: 2026-11-01, or '2 weeks ago'"), Aliases("after")
]
Until = Annotated[str, Field(description="only commits up to this date, the day included"), Aliases("before")]
MessageText = Annotated[
    str, Field(description="only commits with this text in the message"), Aliases("message", "query")
]
ChangedText = Annotated[str, Field(description="only commits that added or removed this text"), Aliases("pickaxe")]
InLines = Annotated[
    bool,
    Field(
        description="with changed: count every changed line with the text (git log -G), not only where its number"
        " differs (-S)"
    ),
]
AllBranches = Annotated[
    bool,
    Field(description="start from all branches and tags, remote ones too, instead of from one revision"),
    Aliases("all"),
]
Follow = Annotated[
    bool, Field(description="with the path of one file: go on under its former name before it was renamed")
]


class ReadingTools(GitToolSet):
    """Show the state of a work tree, its history and its differences."""

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
                most_bytes=opened.git.answer_bytes,
                is_summary=stat,
                skip=skip,
            )
            return await show(opened, revision=revision, options=options)

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

    @tool(Effect.READ, profiles=ALL, title="Git reflog")
    async def git_reflog(
        self,
        branch: Annotated[
            Branch, Field(description="HEAD, or the name of a branch"), Aliases("ref", "revision")
        ] = "HEAD",
        repository: Repository = ".",
        *,
        limit: Annotated[
            int, Field(ge=1, le=200, description="number of entries at most"), Aliases("max_count", "n")
        ] = 30,
        skip: Annotated[int, Field(ge=0, description="number of entries to leave out at the start")] = 0,
    ) -> TextResult:
        """List where HEAD or a branch was before, newest first.

        Returns for each move the commit, the date, what moved it, and the call that goes back; commits that no branch
        has any more are found here. 30 entries by default. git_log lists the commits of a branch.
        """
        async with self._opened(repository) as opened:
            return await reflog(opened, branch=branch, limit=limit, skip=skip)
