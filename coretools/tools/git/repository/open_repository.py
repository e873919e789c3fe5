"""A repository that is open for one call: the roots it lies in, its examined work tree, and git to run there."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Self

from coretools.process.run import Completed, RunOptions
from coretools.roots.root_set import Roots
from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.commands import Git


@dataclass(frozen=True, slots=True)
class OpenRepository:
    """What a function about one repository needs. The methods of `Git` run in this checkout, with the same errors."""

    roots: Roots
    git: Git
    checkout: Checkout

    def with_environment(self, variables: Mapping[str, str]) -> Self:
        """Return the same repository with further variables for git."""
        environment = {**self.checkout.environment, **variables}
        return replace(self, checkout=replace(self.checkout, environment=environment))

    async def run(
        self,
        *words: str,
        options: Sequence[str] = (),
        stdin: bytes | None = None,
        keep_bytes: int | None = None,
    ) -> Completed:
        """Run one git command to its end, whatever its exit code. `options` are further `-c` options."""
        return await self.git.run(self.checkout, *words, options=options, stdin=stdin, keep_bytes=keep_bytes)

    async def output(self, *words: str, stdin: bytes | None = None) -> bytes:
        """Run a git command and return its complete standard output."""
        return await self.git.output(self.checkout, *words, stdin=stdin)

    def run_options(self, *, stdin: bytes | None = None, keep_bytes: int | None = None) -> RunOptions:
        """Return how git runs here: its complete environment, confinement and deadline."""
        return self.git.run_options(self.checkout, stdin=stdin, keep_bytes=keep_bytes)

    async def resolved(self, *revisions: str) -> list[str]:
        """Resolve revisions to commits, as hexadecimal names."""
        return await self.git.resolved(self.checkout, *revisions)

    async def objects(self, *revisions: str) -> list[tuple[str, str]]:
        """Resolve revisions to objects of any kind: the hexadecimal name and the type of each."""
        return await self.git.objects(self.checkout, *revisions)

    async def settings(self, pattern: str, *, only_user: bool = False) -> dict[str, str]:
        """Return settings whose key matches, as git reads them."""
        return await self.git.settings(self.checkout, pattern, only_user=only_user)


OpenShared = Callable[[], AbstractAsyncContextManager[OpenRepository]]
"""Opens a repository once more, to change what its work trees share; git may not write the work tree there."""
