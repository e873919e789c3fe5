"""Tools that bisect: git_bisect and git_bisect_run."""

from typing import Annotated, Literal, Protocol

from pydantic import Field

from coretools.operations.call import Call, SilentCall
from coretools.operations.content import Result
from coretools.operations.declare import Aliases, Effect, same_policy_as, tool
from coretools.tools.git.bisect import bisect
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult, settings_remark
from coretools.tools.git.repository.tool_set import ALL, Branch, GitToolSet, Repository

_NO_CALL = SilentCall()


class RunCommand(Protocol):
    """Runs a command as `run_command` does: confined, judged and bounded."""

    async def __call__(
        self, command: str | list[str], directory: str, *, timeout_seconds: int | None, call: Call
    ) -> Result:
        """The result; its facts have the exit code."""
        ...


class BisectTools(GitToolSet):
    """Find the commit that brought a change."""

    def __init__(self, repositories: Repositories, run_command: RunCommand) -> None:
        super().__init__(repositories)
        self._run_command = run_command

    @tool(Effect.CHANGE, profiles=ALL, title="Git bisect")
    async def git_bisect(
        self,
        action: Annotated[
            Literal["start", "good", "bad", "skip", "reset", "log"],
            Field(
                description=(
                    "`start`; `good`, `bad`: mark the commit that is checked out; `skip`: it can't be "
                    "tested; `reset`: end, back to the branch; `log`: the steps so far"
                )
            ),
        ],
        repository: Repository = ".",
        *,
        bad: Annotated[Branch, Field(description="With start: commit with the change; default HEAD")] = "",
        good: Annotated[
            list[str], Field(description="With start: commits without the change, older than the bad one")
        ] = [],  # noqa: B006
        revision: Annotated[
            Branch,
            Field(description="With good, bad and skip: commit to mark; default the one that is checked out"),
            Aliases("rev", "commit"),
        ] = "",
    ) -> TextResult:
        """Find the commit that brought a change, by checking out commits between a good and a bad one, step by step.

        Start with a good and a bad commit, test what is checked out, and mark it; about log2 of the number of commits
        are tested. Returns the commit to test next, or the first bad one, and the call that ends it. It is refused if a
        checkout would overwrite uncommitted changes. To do the steps with a command use git_bisect_run; to find a
        commit by the text that it changed, git_log with `changed`.
        """
        access = Access.READ if action == "log" else Access.WORK_TREE
        shared = self._shared(repository)
        async with self._opened(repository, access=access) as opened:
            match action:
                case "start":
                    return await bisect.start(opened, shared, bad=bad, good=good)
                case "reset":
                    return await bisect.reset(opened, shared)
                case "log":
                    return await bisect.log(opened)
                case _:
                    return await bisect.mark(opened, word=action, revision=revision)

    @tool(Effect.CHANGE, profiles=ALL, open_world=True, long_running=True, title="Git bisect run")
    @same_policy_as("run_command")
    async def git_bisect_run(
        self,
        command: Annotated[
            str | list[str], Field(description="A bash line, or a list of words that are started without a shell")
        ],
        repository: Repository = ".",
        *,
        timeout_seconds: Annotated[int | None, Field(ge=1, description="Seconds for each commit; default 120")] = None,
        call: Call = _NO_CALL,
    ) -> TextResult:
        """Run one command at each commit of a bisect until the first bad one is found, up to 60 times.

        Returns the steps and the first bad commit. The command is confined and judged as in run_command. Exit code 0
        means good, 125 can't be tested, any other up to 127 bad; anything else stops the bisect where it is. Begin with
        git_bisect action='start'.
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
