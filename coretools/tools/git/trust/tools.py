"""The tool that reports what plain git would run or reach: git_trust_report."""

from functools import partial
from typing import Annotated

from anyio import to_thread
from pydantic import Field

from coretools.errors import GitRefused, InvalidArguments
from coretools.operations.declare import Effect, tool
from coretools.tools.git.repository.tool_set import ALL, GitToolSet, Repository
from coretools.tools.git.trust.report import TrustReport, examine_trust


class TrustTools(GitToolSet):
    """Report what plain git would run or reach."""

    @tool(Effect.READ, profiles=ALL, structured=True, title="Git trust report")
    async def git_trust_report(
        self,
        repository: Repository = ".",
        kind: Annotated[
            str, Field(description="Only findings of this kind, such as alias, all of them; default every kind")
        ] = "",
        offset: Annotated[
            int, Field(ge=0, description="With `kind`: findings to leave out at the start; default 0")
        ] = 0,
    ) -> TrustReport:
        """List what plain git would run or reach in this repository: hooks, filters, aliases, remotes, includes.

        Returns the findings by kind with their files, 20 of each kind, and whether the git tools refuse the repository.
        Nothing of it is run. For changed files use git_status.
        """
        if offset and not kind:
            raise InvalidArguments("offset: goes with a kind; name one with kind")
        roots, git = self.repositories.roots, self.repositories.git
        examine = partial(examine_trust, roots, repository, git.setup.grants, kind=kind, offset=offset)
        findings, grants, directory = await to_thread.run_sync(examine, limiter=self.repositories.threads)
        refused = ""
        try:
            async with self._opened(repository):
                pass
        except GitRefused as error:
            refused = str(error)
        return TrustReport.of(findings, repository=directory, refused=refused, grants=grants, budget=git.answer_bytes)
