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
from coretools.operations.completion import MAX_VALUES, Completes
from coretools.operations.declare import Aliases, Effect, Rare, tool
from coretools.process.runner import Runner
from coretools.roots.root_set import Roots
from coretools.tools.git.changes.commit import CommitOptions, commit
from coretools.tools.git.changes.hunks import STAGE, change_hunks
from coretools.tools.git.changes.stage import StagingOptions, add
from coretools.tools.git.reading.branch_list import BranchesResult, BranchOptions, list_branches
from coretools.tools.git.reading.differences import DiffOptions, DiffResult, compared, diff
from coretools.tools.git.reading.history import head
from coretools.tools.git.reading.log import MAX_SKIP, LogOptions, LogResult, log
from coretools.tools.git.reading.status import STATUS, StatusResult
from coretools.tools.git.repository.checkout import git_names
from coretools.tools.git.repository.index_lock import index_lock
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.porcelain import read_status, single_line
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult, answer
from coretools.tools.git.repository.setup import PLAIN, GitSetup

Branch = Annotated[str, Completes("branches")]
Repository = Annotated[
    str,
    Field(description="Path"),
    Aliases("repo_path", "repo", "repository_path", "cwd", "workdir", "directory", "working_directory"),
]


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
        self._roots = roots
        self.repositories = Repositories(roots, runner, limits, confined_threads=confined_threads, setup=setup)
        self._git = self.repositories.git
        self._opened = self.repositories.opened

    @tool(Effect.READ, structured=True, title="Git status")
    async def git_status(self, repository: Repository = ".") -> StatusResult:
        """Show branch, changed paths, open work only. Content: git_diff."""
        async with self._opened(repository, refreshes=True) as checkout:
            status = read_status(await self._git.output(checkout, *STATUS))
            lock = await index_lock(checkout)
            return StatusResult.of(status, checkout, budget=self._git.answer_bytes, lock=str(lock or ""))

    @tool(Effect.READ, structured=True, title="Git log")
    async def git_log(
        self,
        repository: Repository = ".",
        revision: Annotated[Branch, Field(description="Revision or a..b"), Aliases("rev", "ref", "branch")] = "",
        *,
        path: Annotated[str, Field(description="Of this path"), Aliases("file_path", "file")] = "",
        limit: Annotated[int, Field(ge=1, le=200, description="At most"), Aliases("max_count", "n")] = 20,
        skip: Annotated[int, Field(ge=0, le=MAX_SKIP, description="Commits to leave out first"), Rare()] = 0,
        by: Annotated[str, Field(description="Text in the author's name or address"), Aliases("author"), Rare()] = "",
        since: Annotated[str, Field(description="2026-11-01, or '2 weeks ago'"), Aliases("after"), Rare()] = "",
        until: Annotated[str, Field(description="The same; a day counts to its end"), Aliases("before"), Rare()] = "",
        grep: Annotated[str, Field(description="Text in the message"), Aliases("message", "query"), Rare()] = "",
        changed: Annotated[str, Field(description="Text that was added or removed"), Aliases("pickaxe"), Rare()] = "",
        in_lines: Annotated[
            bool, Field(description="changed: in any changed line (-G), not by number (-S)"), Rare()
        ] = False,
        all_branches: Annotated[bool, Field(description="Tags and remote ones too"), Aliases("all"), Rare()] = False,
        follow: Annotated[bool, Field(description="Also from before the file of path was renamed"), Rare()] = False,
        stat: Annotated[bool, Field(description="With the changed files and counts"), Rare()] = False,
        body: Annotated[bool, Field(description="With the whole message"), Rare()] = False,
    ) -> LogResult:
        """List commits, newest first; by grep, changed, since too. One: git_show."""
        async with self._opened(repository, [path] if path else []) as checkout:
            options = LogOptions(
                revision=revision,
                names=git_names(self._roots, checkout, [path] if path else []),
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
            return await log(self._roots, self._git, checkout, options)

    @tool(Effect.READ, structured=True, title="Git diff")
    async def git_diff(
        self,
        repository: Repository = ".",
        paths: Annotated[  # the default is never changed; a tuple would be another schema
            list[str], Field(description="Only these"), Aliases("files", hints=("path", "file_path"))
        ] = [],  # noqa: B006
        *,
        staged: Annotated[bool, Field(description="Staged ones"), Aliases("cached")] = False,
        base: Annotated[Branch, Field(description="Since this; or a..b, a...b")] = "",
        target: Annotated[Branch, Field(description="Up to this"), Rare()] = "",
        stat: Annotated[bool, Field(description="Only counts")] = False,
        names: Annotated[bool, Field(description="Only the files"), Aliases("name_only"), Rare()] = False,
        word: Annotated[bool, Field(description="Word by word"), Aliases("word_diff"), Rare()] = False,
        skip: Annotated[int, Field(ge=0, description="Hunks to leave out first"), Rare()] = 0,
    ) -> DiffResult:
        """Show changes by hunk, by default unstaged. New files: git_status."""
        async with self._opened(repository, paths, refreshes=True) as checkout:
            options = DiffOptions(
                names=git_names(self._roots, checkout, paths),
                most_bytes=self._git.answer_bytes,
                is_summary=stat,
                by_name=names,
                by_word=word,
                skip=skip,
            )
            options = await compared(self._git, checkout, options, base=base, target=target, staged=staged)
            return await diff(self._roots, self._git, checkout, options)

    @tool(Effect.READ, structured=True, title="Git branches")
    async def git_branches(
        self,
        repository: Repository = ".",
        remote: Annotated[bool, Field(description="Remote ones too"), Aliases(hints=("branch_type",))] = False,
        *,
        pattern: Annotated[str, Field(description="Names, with *"), Rare()] = "",
        merged: Annotated[Branch, Field(description="Only those merged into this revision"), Rare()] = "",
        no_merged: Annotated[Branch, Field(description="Only those not merged into it"), Rare()] = "",
        contains: Annotated[Branch, Field(description="Only those with this commit"), Rare()] = "",
    ) -> BranchesResult:
        """List local branches, newest first. Change: git_switch."""
        async with self._opened(repository) as checkout:
            options = BranchOptions(
                remote=remote, pattern=pattern, merged=merged, no_merged=no_merged, contains=contains
            )
            return await list_branches(self._git, checkout, options)

    async def branches(self, _: str, given: Mapping[str, str]) -> list[str]:
        """Return branch names for completion, local branches first."""
        async with self._opened(given.get("repository", ".")) as checkout:
            words = ("for-each-ref", f"--count={MAX_VALUES}", "--format=%(refname:short)")
            output = await self._git.output(checkout, *words, "refs/heads", "refs/remotes")
        return output.decode("utf-8", "backslashreplace").splitlines()

    @tool(Effect.READ, title="Current branch")
    async def git_current_branch(self, repository: Repository = ".") -> TextResult:
        """Name the current branch. More: git_status."""
        async with self._opened(repository) as checkout:
            branch, commit = await head(self._git, checkout)
            if not branch:
                text = f"HEAD detached at {commit[:10]}"
            else:
                text = branch if commit else f"{branch} (no commits yet)"
            return answer(checkout, [single_line(text)], details={"branch": branch, "commit": commit})

    @tool(Effect.CHANGE, idempotent=True, title="Git add")
    async def git_add(
        self,
        paths: Annotated[
            list[str],
            Field(min_length=1, description="Paths, . for all"),
            Aliases("files", hints=("path", "file_path"), switches={"all": {True: ["."]}}),
        ],
        repository: Repository = ".",
        *,
        hunks: Annotated[list[str], Field(description="Only 2, ID, or lines +5-9, -3")] = [],  # noqa: B006
        update: Annotated[bool, Field(description="Tracked files only"), Rare()] = False,
        intent: Annotated[
            bool, Field(description="Note new files without their content"), Aliases("intent_to_add"), Rare()
        ] = False,
    ) -> TextResult:
        """Stage changes for git_commit; never ignored files."""
        async with self._opened(repository, paths, access=Access.GIT_DIRECTORY) as checkout:
            names = git_names(self._roots, checkout, paths)
            if hunks and (update or intent):
                raise InvalidArguments("hunks: go without update and intent")
            if hunks:
                return await change_hunks(self._roots, self._git, checkout, names, hunks, STAGE)
            options = StagingOptions(tracked_only=update, intent=intent)
            return await add(self._roots, self._git, checkout, names, options)

    @tool(Effect.CHANGE, title="Git commit")
    async def git_commit(
        self,
        message: Annotated[str, Field(description="Message"), Aliases("commit_message")] = "",
        repository: Repository = ".",
        *,
        amend: Annotated[bool, Field(description="Replace the last")] = False,
        by: Annotated[str, Field(description="Author, if another"), Aliases("author"), Rare()] = "",
        fixup: Annotated[str, Field(description="Of this"), Rare()] = "",
        signoff: Annotated[bool, Field(description="Add Signed-off-by"), Rare()] = False,
        paths: Annotated[
            list[str], Field(description="Only these tracked files, with their unstaged changes"), Rare()
        ] = [],  # noqa: B006
    ) -> TextResult:
        """Commit what git_add staged; only granted hooks run."""
        async with self._opened(repository, paths, access=Access.GIT_DIRECTORY) as checkout:
            names = git_names(self._roots, checkout, paths)
            options = CommitOptions(message, amend=amend, author=by, fixup=fixup, signoff=signoff, names=names)
            return await commit(self._roots, self._git, checkout, options)
