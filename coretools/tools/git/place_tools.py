"""Git tools about places: linked work trees, sparse checkout, reflog and bisect. Profile `all` only."""

from functools import partial
from typing import Annotated, Literal, Protocol

from pydantic import Field

from coretools.errors import InvalidArguments
from coretools.operations.call import Call, SilentCall
from coretools.operations.completion import Completes
from coretools.operations.content import Result
from coretools.operations.declare import Aliases, Effect, same_policy_as, tool
from coretools.tools.git.change_tools import GitChangeTools
from coretools.tools.git.changes import bisect, sparse, worktrees
from coretools.tools.git.extra_tools import GitExtraTools
from coretools.tools.git.reading.reflog import reflog
from coretools.tools.git.repository.checkout import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult, settings_remark
from coretools.tools.git.tools import Repository

ALL = ("all",)

Branch = Annotated[str, Completes("branches")]

_NO_CALL = SilentCall()


class RunCommand(Protocol):
    """Runs a command as `run_command` does: confined, judged and bounded."""

    async def __call__(
        self, command: str | list[str], directory: str, *, timeout_seconds: int | None, call: Call
    ) -> Result:
        """The result; its facts have the exit code."""
        ...


class GitPlaceTools:
    """Tools for work trees, their extent, and where HEAD has been."""

    def __init__(self, repositories: Repositories, run_command: RunCommand) -> None:
        self._opened = repositories.opened
        self._roots = repositories.roots
        self._git = repositories.git
        self._run_command = run_command

    @tool(Effect.READ, profiles=ALL, title="Git reflog")
    async def git_reflog(
        self,
        branch: Annotated[Branch, Field(description="HEAD, or a branch"), Aliases("ref", "revision")] = "HEAD",
        repository: Repository = ".",
        *,
        limit: Annotated[int, Field(ge=1, le=200, description="Entries at most"), Aliases("max_count", "n")] = 30,
        skip: Annotated[int, Field(ge=0, description="Entries left out first")] = 0,
    ) -> TextResult:
        """List where HEAD or one branch was, newest first. Commits: git_log."""
        async with self._opened(repository) as checkout:
            return await reflog(self._roots, self._git, checkout, branch=branch, limit=limit, skip=skip)

    @tool(Effect.CHANGE, profiles=ALL, title="Git worktree")
    async def git_worktree(
        self,
        action: Annotated[Literal["list", "add", "remove", "prune"], Field(description="What to do")] = "list",
        path: Annotated[str, Field(description="add, remove: its directory")] = "",
        repository: Repository = ".",
        *,
        branch: Annotated[Branch, Field(description="add: branch to check out, made if there is none")] = "",
        start: Annotated[Branch, Field(description="add: where a new branch begins, HEAD by default")] = "",
    ) -> TextResult:
        """List linked work trees, add or remove one, or forget those that are gone. One tree: git_switch."""
        if action in ("add", "remove") and not path:
            raise InvalidArguments("path: is needed to add or remove a work tree")
        access = Access.READ if action == "list" else Access.WORK_TREE
        async with self._opened(repository, access=access, is_shared=action != "list") as checkout:
            open_at = partial(self._opened, access=Access.WORK_TREE)
            match action:
                case "list":
                    return await worktrees.list_worktrees(self._roots, self._git, checkout)
                case "add":
                    wanted = worktrees.NewWorktree(path, branch, start)
                    return await worktrees.add_worktree(self._roots, self._git, checkout, open_at, wanted)
                case "remove":
                    return await worktrees.remove_worktree(self._roots, self._git, checkout, open_at, path=path)
                case "prune":
                    return await worktrees.prune_worktrees(self._git, checkout)

    @tool(Effect.CHANGE, profiles=ALL, title="Git sparse checkout")
    async def git_sparse_checkout(
        self,
        action: Annotated[Literal["list", "set", "add", "disable"], Field(description="What to do")] = "list",
        paths: Annotated[
            list[str], Field(description="set, add: directories to check out"), Aliases("directories")
        ] = [],  # noqa: B006
        repository: Repository = ".",
    ) -> TextResult:
        """Report or set which directories are checked out, or check out all (disable). Files: git_restore."""
        access = Access.READ if action == "list" else Access.WORK_TREE
        async with self._opened(repository, paths, access=access) as checkout:
            names = git_names(self._roots, checkout, paths)
            return await sparse.sparse_checkout(self._roots, self._git, checkout, action=action, names=names)

    @tool(Effect.CHANGE, profiles=ALL, title="Git bisect")
    async def git_bisect(
        self,
        action: Annotated[Literal["start", "good", "bad", "skip", "reset", "log"], Field(description="What to do")],
        repository: Repository = ".",
        *,
        bad: Annotated[Branch, Field(description="start: commit with the change, HEAD by default")] = "",
        good: Annotated[list[str], Field(description="start: commits without it")] = [],  # noqa: B006
        revision: Annotated[
            Branch, Field(description="good, bad, skip: HEAD by default"), Aliases("rev", "commit")
        ] = "",
    ) -> TextResult:
        """Find the commit that brought a change, one step at a time. With a command: git_bisect_run."""
        access = Access.READ if action == "log" else Access.WORK_TREE
        async with self._opened(repository, access=access) as checkout:
            match action:
                case "start":
                    return await bisect.start(self._roots, self._git, checkout, bad=bad, good=good)
                case "reset":
                    return await bisect.reset(self._roots, self._git, checkout)
                case "log":
                    return await bisect.log(self._git, checkout)
                case _:
                    return await bisect.mark(self._roots, self._git, checkout, word=action, revision=revision)

    @tool(Effect.CHANGE, profiles=ALL, open_world=True, long_running=True, title="Git bisect run")
    @same_policy_as("run_command")
    async def git_bisect_run(
        self,
        command: Annotated[str | list[str], Field(description="Bash line or argv: 0 is good, 125 skips")],
        repository: Repository = ".",
        *,
        timeout_seconds: Annotated[int | None, Field(ge=1, description="For each commit, 120 by default")] = None,
        call: Call = _NO_CALL,
    ) -> TextResult:
        """Run one command at each commit of a bisect, up to 60, until the first bad one is found. Begin: git_bisect."""

        async def run() -> int | None:
            result = await self._run_command(command, repository, timeout_seconds=timeout_seconds, call=call)
            code = result.facts().get("exit_code")
            return code if isinstance(code, int) and not result.facts().get("timed_out") else None

        async def marked(word: str) -> TextResult:
            async with self._opened(repository, access=Access.WORK_TREE) as checkout:
                return await bisect.mark(self._roots, self._git, checkout, word=word, revision="")

        # Open until the end, so that the settings are named which any step created.
        async with self._opened(repository, access=Access.WORK_TREE) as checkout:
            await bisect.log(self._git, checkout)  # refuses if none is in progress
            result, steps = await bisect.drive(run, marked)
            lines = [*steps, result.body, *settings_remark(checkout)]
        return TextResult(body="\n".join(lines), details={**result.details, "steps": len(steps)})


def further_tools(repositories: Repositories, run_command: RunCommand) -> tuple[object, ...]:
    """The git tools beside those of `GitTools` that need no network, in the order in which they are listed."""
    return (GitChangeTools(repositories), GitExtraTools(repositories), GitPlaceTools(repositories, run_command))
