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
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.changes.commit import CommitOptions, add, commit
from coretools.tools.git.reading.history import DiffOptions, diff, head, log
from coretools.tools.git.repository.checkout import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.porcelain import read_records, read_status, single_line
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import StatusResult, TextResult, answer, branch_lines
from coretools.tools.git.repository.setup import PLAIN, GitSetup

_STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=all")

_BRANCH_FORMAT = "%(HEAD)%00%(refname:short)%00%(objectname:short=10)%00"
_BRANCH_FORMAT += "%(upstream:short)%00%(upstream:track,nobracket)%00%(committerdate:short)%00%(contents:subject)%00"


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
        """Show branch and changed paths only. Content: git_diff."""
        async with self._opened(repository) as checkout:
            status = read_status(await self._git.output(checkout, *_STATUS))
            return StatusResult.of(status, checkout, budget=self._git.answer_bytes)

    @tool(Effect.READ, title="Git log")
    async def git_log(
        self,
        repository: Repository = ".",
        revision: Annotated[
            Branch,
            Field(description="Revision or a..b"),
            Aliases("rev", "ref", "branch"),
        ] = "",
        *,
        path: Annotated[str, Field(description="Of this path"), Aliases("file_path", "file")] = "",
        limit: Annotated[int, Field(ge=1, le=200, description="At most"), Aliases("max_count", "n")] = 20,
    ) -> TextResult:
        """List commits, newest first. Their changes: git_diff."""
        async with self._opened(repository) as checkout:
            names = git_names(self._roots, checkout, [path] if path else [])
            return await log(self._roots, self._git, checkout, revision=revision, names=names, limit=limit)

    @tool(Effect.READ, title="Git diff")
    async def git_diff(
        self,
        repository: Repository = ".",
        paths: Annotated[  # the default is never changed; a tuple would be another schema
            list[str], Field(description="Only these"), Aliases("files", hints=("path", "file_path"))
        ] = [],  # noqa: B006
        *,
        staged: Annotated[bool, Field(description="Staged ones"), Aliases("cached")] = False,
        base: Annotated[Branch, Field(description="Since this revision")] = "",
        target: Annotated[Branch, Field(description="Up to this")] = "",
        stat: Annotated[bool, Field(description="Only counts")] = False,
    ) -> TextResult:
        """Show changes, by default unstaged. New files: git_status."""
        async with self._opened(repository) as checkout:
            if target and (staged or not base):
                raise InvalidArguments("target: goes with base, and not with staged; a range is base and target")
            revisions = await self._git.resolved(checkout, *(revision for revision in (base, target) if revision))
            what = [*(["--cached"] if staged else []), *revisions]
            shape = DiffOptions(is_summary=stat, most_bytes=self._git.answer_bytes)
            names = git_names(self._roots, checkout, paths)
            return await diff(self._roots, self._git, checkout, what=what, names=names, shape=shape)

    @tool(Effect.READ, title="Git branches")
    async def git_branches(
        self,
        repository: Repository = ".",
        remote: Annotated[bool, Field(description="Remote ones too"), Aliases(hints=("branch_type",))] = False,
    ) -> TextResult:
        """List local branches, newest first. Switch: run_command."""
        async with self._opened(repository) as checkout:
            spaces = ("refs/heads", "refs/remotes") if remote else ("refs/heads",)
            words = ("for-each-ref", "--sort=-committerdate", f"--format={_BRANCH_FORMAT}", *spaces)
            # One record per line. No field holds a newline: each is a name, a number or a summary.
            output = (await self._git.output(checkout, *words)).replace(b"\0\n", b"\0")
            records = read_records(output, 7)
            lines = fitting(map(cut_line, branch_lines(records)), self._git.answer_bytes)
            if len(records) > len(lines):
                way = "run_command with git branch --list PATTERN finds them"
                lines.append(f"[{len(records) - len(lines)} more branches; {way}]")
            lines = lines if records else ["no branches yet"]
            return answer(checkout, lines, details={"branches": len(records)})

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
            Aliases("files", hints=("path", "file_path")),
        ],
        repository: Repository = ".",
    ) -> TextResult:
        """Stage changes for git_commit; never ignored files."""
        async with self._opened(repository, access=Access.GIT_DIRECTORY) as checkout:
            return await add(self._roots, self._git, checkout, git_names(self._roots, checkout, paths))

    @tool(Effect.CHANGE, title="Git commit")
    async def git_commit(
        self,
        message: Annotated[str, Field(description="Message"), Aliases("commit_message")] = "",
        repository: Repository = ".",
        *,
        amend: Annotated[bool, Field(description="Replace the last")] = False,
        by: Annotated[str, Field(description="Author, if another"), Aliases("author"), Rare()] = "",
        fixup: Annotated[str, Field(description="Of this"), Rare()] = "",
    ) -> TextResult:
        """Commit what git_add staged. No hooks, no signature."""
        options = CommitOptions(message=message, amend=amend, author=by, fixup=fixup)
        async with self._opened(repository, access=Access.GIT_DIRECTORY) as checkout:
            return await commit(self._git, checkout, options)
