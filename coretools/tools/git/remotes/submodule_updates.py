"""Register and clone submodules, each complete or not at all."""

from contextlib import suppress

from coretools.config.remote_policy import RemoteRule
from coretools.errors import CoreError, GitRefused, NotFound
from coretools.operations.call import Call
from coretools.roots.editor_settings import settings_at
from coretools.tools.git.remotes.access import RemoteAccess
from coretools.tools.git.remotes.clone import CloneOptions, clone
from coretools.tools.git.remotes.submodules import Wanted, choose, register
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.porcelain import single_line
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult, settings_line


class SubmoduleUpdates:
    """The submodules that one call registers or clones."""

    def __init__(self, repositories: Repositories, access: RemoteAccess, call: Call, *, clones: bool) -> None:
        self._repositories = repositories
        self._access = access
        self._call = call
        self._clones = clones
        self._done: list[str] = []
        self._failed: list[str] = []

    async def run(self, repository: str, paths: list[str], *, depth: int) -> TextResult:
        """Handle the submodules of one repository, and those within them down to a depth.

        Raises:
            GitRefused: at least one failed; the message has every failure and what was done. NotFound: there is none.
        """
        await self._enter(repository, paths, depth)
        lines = [*self._done, *self._failed]
        if self._failed:
            raise GitRefused("\n".join(lines), submodules=len(self._done))
        return TextResult(body="\n".join(lines), details={"submodules": len(self._done)})

    async def _enter(self, repository: str, paths: list[str], depth: int) -> None:
        async with self._repositories.opened(repository, paths, access=Access.GIT_DIRECTORY) as opened:
            chosen = await choose(opened, paths)
        self._failed += chosen.refused
        self._done += [f"{path}: is cloned already; git_switch there goes to another commit" for path in chosen.cloned]
        within = list(chosen.cloned)
        for wanted in chosen.wanted:
            try:
                await self._one(repository, wanted)
                within.append(wanted.path)
            except CoreError as error:
                self._failed.append(f"{single_line(wanted.path)}: {error}")
        for path in within if self._clones and depth else ():
            with suppress(NotFound):  # it has no submodules
                await self._enter(path, [], depth - 1)

    async def _one(self, repository: str, wanted: Wanted) -> None:
        rule = self._access.rule_for(wanted.url, "fetch", principal=self._call.principal)
        if self._clones:
            await self._clone(wanted, rule)
        opening = self._repositories.opened(repository, access=Access.GIT_DIRECTORY, is_shared=True)
        async with opening as opened:
            await register(opened, wanted)
        if not self._clones:
            self._done.append(single_line(f"{wanted.path}: registered ({wanted.url.text})"))

    async def _clone(self, wanted: Wanted, rule: RemoteRule) -> None:
        await self._access.ask(rule, "fetch", self._call, single_line(f"Clone {wanted.url.text}?"))
        options = CloneOptions(wanted.path, commit=wanted.submodule.commit)
        async with self._access.connected(wanted.url, rule, "fetch") as connected:
            cloned = await clone(self._repositories, connected, options)
        undo = (
            f"Undo: delete_directory path={wanted.path!r} with_repositories=True, then create_directory"
            f" path={wanted.path!r}"
        )
        at = wanted.submodule.commit[:10]
        self._done.append(single_line(f"{wanted.path}: cloned {wanted.url.text} at {at}. {undo}"))
        roots = self._repositories.roots
        self._done += [*cloned.remarks, *settings_line(roots, settings_at(roots, wanted.path))]
