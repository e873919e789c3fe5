"""Git tools about places: linked work trees, sparse checkout, reflog and bisect. Profile `all` only."""

from functools import partial
from typing import Annotated, Literal, Protocol

from pydantic import Field

from coretools.errors import InvalidArguments
from coretools.operations.call import Call, SilentCall
from coretools.operations.content import Result
from coretools.operations.declare import Aliases, Effect, same_policy_as, tool
from coretools.tools.git.change_tools import GitChangeTools
from coretools.tools.git.changes import bisect, sparse, worktrees
from coretools.tools.git.extra_tools import GitExtraTools
from coretools.tools.git.parameters import Branch, Repository
from coretools.tools.git.reading.reflog import reflog
from coretools.tools.git.repository.names import git_names
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult, settings_remark

ALL = ("all",)


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
        self._run_command = run_command

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

    @tool(Effect.CHANGE, profiles=ALL, title="Git worktree")
    async def git_worktree(
        self,
        action: Annotated[
            Literal["list", "add", "remove", "prune"],
            Field(description="what to do; prune: forget work trees whose directory is gone"),
        ] = "list",
        path: Annotated[str, Field(description="add, remove: directory of the work tree, relative to the root")] = "",
        repository: Repository = ".",
        *,
        branch: Annotated[
            Branch, Field(description="add: branch to check out there; created if there is none of that name")
        ] = "",
        start: Annotated[
            Branch, Field(description="add: commit or branch where a new branch begins, HEAD by default")
        ] = "",
    ) -> TextResult:
        """List the work trees of a repository, add or remove a linked one, or forget those that are gone.

        A linked work tree is a second directory with another branch checked out. Returns its path, branch and the
        call that undoes it. It is made beneath a writable root only; one with changes is not removed. git_switch
        changes the branch in the same directory.
        """
        if action in ("add", "remove") and not path:
            raise InvalidArguments("path: is needed to add or remove a work tree")
        access = Access.READ if action == "list" else Access.WORK_TREE
        async with self._opened(repository, access=access, is_shared=action != "list") as opened:
            open_at = partial(self._opened, access=Access.WORK_TREE)
            match action:
                case "list":
                    return await worktrees.list_worktrees(opened)
                case "add":
                    wanted = worktrees.NewWorktree(path, branch, start)
                    return await worktrees.add_worktree(opened, open_at, wanted)
                case "remove":
                    return await worktrees.remove_worktree(opened, open_at, path=path)
                case "prune":
                    return await worktrees.prune_worktrees(opened)

    @tool(Effect.CHANGE, profiles=ALL, title="Git sparse checkout")
    async def git_sparse_checkout(
        self,
        action: Annotated[
            Literal["list", "set", "add", "disable"],
            Field(description="list; set: only these directories; add: these too; disable: check out everything"),
        ] = "list",
        paths: Annotated[
            list[str], Field(description="set, add: directories to check out"), Aliases("directories")
        ] = [],  # noqa: B006
        repository: Repository = ".",
    ) -> TextResult:
        """Report or set which directories of the repository are checked out.

        Files at the top are always there; other directories that are not set are removed from the work tree, but not
        from the repository. Returns the directories. git_restore brings back single files.
        """
        access = Access.READ if action == "list" else Access.WORK_TREE
        async with self._opened(repository, paths, access=access) as opened:
            names = git_names(opened, paths)
            return await sparse.sparse_checkout(opened, action=action, names=names)

    @tool(Effect.CHANGE, profiles=ALL, title="Git bisect")
    async def git_bisect(
        self,
        action: Annotated[
            Literal["start", "good", "bad", "skip", "reset", "log"],
            Field(
                description=(
                    "start; good, bad: mark the commit that is checked out; skip: it can't be tested; reset: "
                    "end, and back to the branch; log: the steps so far"
                )
            ),
        ],
        repository: Repository = ".",
        *,
        bad: Annotated[Branch, Field(description="start: commit with the change, HEAD by default")] = "",
        good: Annotated[list[str], Field(description="start: commits without the change, older than the bad one")] = [],  # noqa: B006
        revision: Annotated[
            Branch,
            Field(description="good, bad, skip: commit to mark, by default the one that is checked out"),
            Aliases("rev", "commit"),
        ] = "",
    ) -> TextResult:
        """Find the commit that brought a change by checking out commits between a good and a bad one, step by step.

        Start with a good and a bad commit, test what is checked out, and mark it; about log2 of the number of commits
        are tested. Returns the next commit to test, or the first bad one. Uncommitted changes that a checkout would
        overwrite refuse it. git_bisect_run does the steps with a command.
        """
        access = Access.READ if action == "log" else Access.WORK_TREE
        is_shared = action in ("start", "reset")  # these delete references, for which git locks `packed-refs`
        async with self._opened(repository, access=access, is_shared=is_shared) as opened:
            match action:
                case "start":
                    return await bisect.start(opened, bad=bad, good=good)
                case "reset":
                    return await bisect.reset(opened)
                case "log":
                    return await bisect.log(opened)
                case _:
                    return await bisect.mark(opened, word=action, revision=revision)

    @tool(Effect.CHANGE, profiles=ALL, open_world=True, long_running=True, title="Git bisect run")
    @same_policy_as("run_command")
    async def git_bisect_run(
        self,
        command: Annotated[str | list[str], Field(description="line for bash, or list of words without a shell")],
        repository: Repository = ".",
        *,
        timeout_seconds: Annotated[int | None, Field(ge=1, description="time for each commit, 120 by default")] = None,
        call: Call = _NO_CALL,
    ) -> TextResult:
        """Run one command at each commit of a bisect until the first bad one is found, up to 60 times.

        Returns the steps and the first bad commit. The command is confined and judged as in run_command; exit code 0
        means good, 125 can't be tested, any other up to 127 bad, and anything else stops the bisect where it is.
        Begin with git_bisect.
        """

        async def run() -> int | None:
            result = await self._run_command(command, repository, timeout_seconds=timeout_seconds, call=call)
            code = result.facts().get("exit_code")
            return code if isinstance(code, int) and not result.facts().get("timed_out") else None

        async def marked(word: str) -> TextResult:
            async with self._opened(repository, access=Access.WORK_TREE) as opened:
                return await bisect.mark(opened, word=word, revision="")

        # Open until the end, so that the settings are named which any step created; each step is a change by itself.
        async with self._opened(repository, access=Access.WORK_TREE, is_exclusive=False) as opened:
            await bisect.log(opened)  # refuses if none is in progress
            result, steps = await bisect.drive(run, marked)
            lines = [*steps, result.body, *settings_remark(opened.checkout)]
        return TextResult(body="\n".join(lines), details={**result.details, "steps": len(steps)})


def further_tools(repositories: Repositories, run_command: RunCommand) -> tuple[object, ...]:
    """The git tools beside those of `GitTools` that need no network, in the order in which they are listed."""
    return (GitChangeTools(repositories), GitExtraTools(repositories), GitPlaceTools(repositories, run_command))
