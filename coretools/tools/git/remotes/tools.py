"""The tools for remotes: git_fetch, git_pull and git_push; in `all` git_clone, git_submodule and git_remote."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from coretools.config.remote_policy import Direction, RemoteRule
from coretools.config.remote_urls import RemoteUrl
from coretools.errors import DeniedRemote, GitRefused, InvalidArguments
from coretools.operations.call import Call, SilentCall
from coretools.operations.declare import Aliases, Effect, asks, tool
from coretools.tools.git.branches import references
from coretools.tools.git.reading.references import head
from coretools.tools.git.remotes import manage
from coretools.tools.git.remotes.access import CONFIRM, RemoteAccess
from coretools.tools.git.remotes.clone import CloneOptions, clone
from coretools.tools.git.remotes.configured import ConfiguredRemote, RemoteSettings, parsed_url, remote_settings
from coretools.tools.git.remotes.fetch import FetchOptions, TagMode, fetch, outcome_of
from coretools.tools.git.remotes.pull import (
    current_upstream,
    integrate,
    pulled_branch,
)
from coretools.tools.git.remotes.push import ForceMode, PushOptions, plan, push
from coretools.tools.git.remotes.recorded_submodules import list_submodules
from coretools.tools.git.remotes.results import TransferResult
from coretools.tools.git.remotes.submodule_updates import SubmoduleUpdates
from coretools.tools.git.remotes.submodules import MAX_DEPTH
from coretools.tools.git.repository.habits import PullMode, pull_mode
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import single_line
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import TextResult
from coretools.tools.git.repository.tool_set import ALL, DEV, GitToolSet, Repository

_NO_CALL = SilentCall(trusts_answers=False)

RemoteName = Annotated[
    str, Field(description="Name of the remote, or a URL; default that of the upstream, else origin or the only one")
]


@dataclass(frozen=True, slots=True)
class _Used:
    """An open repository, and a remote of it that may be used."""

    repository: OpenRepository
    settings: RemoteSettings
    remote: ConfiguredRemote
    url: RemoteUrl
    rule: RemoteRule


class RemoteTools(GitToolSet):
    """Tools that reach other repositories, as far as the operator's policy allows."""

    def __init__(self, repositories: Repositories, access: RemoteAccess) -> None:
        super().__init__(repositories)
        self._access = access

    @tool(Effect.CHANGE, profiles=ALL, open_world=True, title="Git fetch")
    @asks(CONFIRM, is_listed=False)
    async def git_fetch(
        self,
        repository: Repository = ".",
        remote: RemoteName = "",
        branch: Annotated[
            str, Field(description="Only this branch of the remote; default all that its configuration names")
        ] = "",
        *,
        prune: Annotated[
            bool,
            Field(
                description="Delete remote branches here (origin/x) that the remote does not have any more; default "
                "false"
            ),
        ] = False,
        tags: Annotated[
            TagMode, Field(description="`follow` (default): tags of fetched commits; `all`: every tag; `none`: no tag")
        ] = "follow",
        depth: Annotated[
            int, Field(ge=0, description="Newest commits of each branch to fetch, as a number; default 0: all")
        ] = 0,
        call: Call = _NO_CALL,
    ) -> TransferResult:
        """Fetch commits, branches and tags from a remote; local branches and files do not change.

        Returns the branches of the remote that moved, and the distance of the current branch to its upstream. Only
        remotes that the operator allows can be reached. To bring the commits into the current branch too, use git_pull.
        """
        using = self._used(repository, remote, "fetch", call, access=Access.GIT_DIRECTORY, is_shared=prune)
        async with using as used:
            await self._access.ask(used.rule, "fetch", call, single_line(f"Fetch from {used.url.text}?"))
            async with self._access.connected(used.url, used.rule, "fetch") as connected:
                options = FetchOptions(branch, tags, prune, depth)
                fetched = await fetch(used.repository, used.remote, connected, options)
                upstream = await current_upstream(used.repository, used.settings)
                outcome = await outcome_of(used.repository, used.remote, connected, fetched, upstream=upstream)
            return TransferResult.of(outcome, used.repository, verb="fetched")

    @tool(Effect.CHANGE, profiles=DEV, open_world=True, title="Git pull")
    @asks(CONFIRM, is_listed=False)
    async def git_pull(
        self,
        repository: Repository = ".",
        mode: Annotated[
            PullMode | None,
            Field(
                description=(
                    "`ff-only`: move the branch only if it has no commits of its own; `merge`: with a merge "
                    "commit; `rebase`: its own commits on top; default as in git's configuration, else "
                    "ff-only"
                )
            ),
        ] = None,
        *,
        remote: RemoteName = "",
        branch: Annotated[
            str, Field(description="Branch of the remote to pull; default the upstream of the current branch")
        ] = "",
        call: Call = _NO_CALL,
    ) -> TextResult:
        """Fetch one branch of a remote, and merge it into the current branch or rebase that onto it.

        Returns what was fetched, the new position and the call that undoes it. It stops at conflicts: git_conflicts
        shows them, git_continue goes on or aborts. It is refused if uncommitted changes would be overwritten. Only
        remotes that the operator allows can be reached; an error names what is missing. For a branch that is here
        already use git_merge.
        """
        async with self._used(repository, remote, "fetch", call, access=Access.WORK_TREE) as used:
            if unfinished := used.repository.checkout.in_progress:
                raise GitRefused(f"a {unfinished} is in progress; git_continue continues or aborts it")
            local, _ = await head(used.repository)
            wanted = pulled_branch(used.settings, used.remote, branch, local)
            tracking = used.remote.tracking(f"refs/heads/{wanted}")
            if not tracking:
                raise InvalidArguments("remote: pull takes one with a name; git_remote action='add' gives a URL one")
            await self._access.ask(used.rule, "fetch", call, single_line(f"Fetch from {used.url.text}?"))
            async with self._access.connected(used.url, used.rule, "fetch") as connected:
                options = FetchOptions(branch=wanted)
                fetched = await fetch(used.repository, used.remote, connected, options)
        # Opened again: what was fetched is part of the repository that is examined before the work tree changes.
        async with self._opened(repository, access=Access.WORK_TREE) as opened:
            how = mode or await pull_mode(opened, local)
            done = await integrate(opened, tracking=tracking, mode=how)
        lines = [single_line(one.line()) for one in fetched.updates[:20]]
        first = single_line(f"fetched {used.remote.name} ({used.url.text})")
        updates = [one.fields() for one in fetched.updates[:20]]
        return TextResult(body="\n".join((first, *lines, done.body)), details={**done.details, "updates": updates})

    @tool(Effect.CHANGE, profiles=DEV, open_world=True, title="Git push")
    @asks(CONFIRM, is_listed=False)
    async def git_push(
        self,
        repository: Repository = ".",
        remote: RemoteName = "",
        branch: Annotated[
            str, Field(description="Local branch to push; default the current one, or none with `tags`")
        ] = "",
        *,
        to: Annotated[
            str,
            Field(description=("Name of the branch at the remote; default that of its upstream, or the same name")),
        ] = "",
        tags: Annotated[
            list[str], Field(description="Names of tags to push, with `branch` if it is given, else alone")
        ] = [],  # noqa: B006
        delete: Annotated[
            str, Field(description="Branch or tag to delete at the remote. Excludes all other arguments but `remote`")
        ] = "",
        set_upstream: Annotated[
            bool,
            Field(
                description="Make the pushed branch the upstream, which git_status and git_pull then use; default false"
            ),
        ] = False,
        force: Annotated[
            ForceMode,
            Field(
                description=(
                    "`no` (default); `lease`: overwrite the remote branch only if it is still where it was "
                    "last seen here; `plain`: overwrite whatever is there, if the operator allows that"
                )
            ),
        ] = "no",
        call: Call = _NO_CALL,
    ) -> TransferResult:
        """Push one branch, or tags, to a remote, or delete one there.

        Returns what moved at the remote, or why it was rejected and what to do. Only remotes that the operator allows
        for pushing can be reached, and nothing there is overwritten without `force`; what `force` or `delete` removes
        there cannot be undone from here. A rejected push is an error. Hooks of the repository (pre-push) do not run. If
        the remote has commits that the branch lacks, git_pull first. To commit use git_commit before. Example of a
        first push: {"branch": "fix-1", "set_upstream": true}.
        """
        options = PushOptions(branch, to, tuple(tags), delete, force, set_upstream)
        is_shared = set_upstream or bool(delete)
        using = self._used(repository, remote, "push", call, access=Access.GIT_DIRECTORY, is_shared=is_shared)
        async with using as used:
            if force == "plain" and not used.rule.plain_force:
                raise DeniedRemote(
                    "force='plain' could overwrite commits that nobody here has seen; use force='lease', or the"
                    " operator allows it with plain_force = true in the [[remote]]"
                )
            prepared = await plan(used.repository, used.settings, used.remote, options)
            if set_upstream and not prepared.tracking:
                raise InvalidArguments("set_upstream: takes a branch, and a remote with a name")
            await self._access.ask(used.rule, "push", call, prepared.description(used.url.text, force=force != "no"))
            async with self._access.connected(used.url, used.rule, "push") as connected:
                outcome, is_accepted = await push(used.repository, used.remote, connected, prepared)
            result = TransferResult.of(outcome, used.repository, verb="pushed")
            if not is_accepted:
                raise GitRefused(result.text(), updates=result.updates)
            if set_upstream:
                upstream = prepared.tracking.removeprefix("refs/remotes/")
                await references.set_upstream(used.repository, prepared.branch, upstream=upstream)
            return result

    @tool(Effect.ADD, profiles=ALL, open_world=True, title="Git clone")
    @asks(CONFIRM, is_listed=False)
    async def git_clone(
        self,
        url: Annotated[str, Field(description="URL, or absolute path, of the repository")],
        path: Annotated[
            str, Field(description="New directory, relative to the root; default named like the repository")
        ] = "",
        *,
        branch: Annotated[str, Field(description="Branch to check out; default that of the remote")] = "",
        single_branch: Annotated[
            bool, Field(description="Fetch only the branch that is checked out; default false")
        ] = False,
        depth: Annotated[int, Field(ge=0, description="Newest commits to fetch, as a number; default 0: all")] = 0,
        tags: Annotated[
            TagMode,
            Field(description="`follow` (default): tags of the fetched commits; `all`: every tag; `none`: no tag"),
        ] = "follow",
        call: Call = _NO_CALL,
    ) -> TransferResult:
        """Clone a remote repository into a new directory beneath a root.

        Returns its path, the branch and the call that undoes it; if it fails, nothing is left. Only remotes that the
        operator allows can be cloned. Later changes come by git_pull or git_fetch; a submodule by git_submodule.
        """
        address = parsed_url(url)
        rule = self._access.rule_for(address, "fetch", principal=call.principal)
        await self._access.ask(rule, "fetch", call, single_line(f"Clone {address.text}?"))
        options = CloneOptions(path, branch, single_branch, depth, tags)
        async with self._access.connected(address, rule, "fetch") as connected:
            return await clone(self.repositories, connected, options)

    @tool(Effect.CHANGE, profiles=ALL, open_world=True, title="Git submodule")
    @asks(CONFIRM, is_listed=False)
    async def git_submodule(
        self,
        action: Annotated[
            Literal["list", "status", "init", "update"],
            Field(
                description=(
                    "`list` (default), `status`: the same; `init`: register those in `paths`; `update`: "
                    "register and clone them at their commits"
                )
            ),
        ] = "list",
        repository: Repository = ".",
        paths: Annotated[
            list[str],
            Field(description="With init and update: only these submodules, by their directories; default all"),
        ] = [],  # noqa: B006
        *,
        depth: Annotated[
            int,
            Field(
                ge=0,
                le=MAX_DEPTH,
                description="With update: levels of submodules within submodules to clone too, 0 to 5; default 0",
            ),
        ] = 0,
        call: Call = _NO_CALL,
    ) -> TextResult:
        """List the submodules of a repository, or clone them.

        Returns path, commit and URL of each, 50 at most in one call. Submodules are cloned only from remotes that the
        operator allows; they are other repositories, which the other git tools take by their own directory. For an
        independent repository use git_clone.
        """
        if action in ("list", "status"):
            async with self._opened(repository) as opened:
                return await list_submodules(opened)
        updates = SubmoduleUpdates(self.repositories, self._access, call, clones=action == "update")
        return await updates.run(repository, paths, depth=depth)

    @tool(Effect.CHANGE, profiles=ALL, title="Git remote")
    async def git_remote(
        self,
        action: Annotated[
            Literal["list", "add", "rename", "remove", "set-url"],
            Field(description="`list` (default), `add`, `rename`, `remove` or `set-url`"),
        ] = "list",
        name: Annotated[str, Field(description="Name of the remote. Not with list"), Aliases("remote")] = "",
        repository: Repository = ".",
        *,
        url: Annotated[
            str, Field(description="With add and set-url: where the remote is, without user and password")
        ] = "",
        new_name: Annotated[str, Field(description="With rename: the name that it gets")] = "",
    ) -> TextResult:
        """List the remotes of a repository, add, rename or remove one, or change its URL.

        Returns each remote with its URL and what the operator allows with it (fetch, push, nothing). No remote is
        reached: git_fetch, git_pull and git_push do that.
        """
        access = Access.READ if action == "list" else Access.GIT_DIRECTORY
        async with self._opened(repository, access=access, is_shared=action != "list") as opened:
            allowed = self._access
            settings = await remote_settings(opened)
            match action:
                case "list":
                    return await manage.list_remotes(opened, settings, allowed)
                case "add":
                    return await manage.add_remote(opened, settings, allowed, name=name, url=url)
                case "rename":
                    return await manage.rename_remote(opened, settings, name=name, to=new_name)
                case "remove":
                    return await manage.remove_remote(opened, settings, name=name)
                case "set-url":
                    return await manage.set_url(opened, settings, allowed, name=name, url=url)

    @asynccontextmanager
    async def _used(
        self, repository: str, remote: str, direction: Direction, call: Call, *, access: Access, is_shared: bool = False
    ) -> AsyncIterator[_Used]:
        """Open a repository, and resolve the remote that a call names.

        Not exclusive: a person may be asked, a transfer may take minutes, and neither HEAD nor the index changes.
        """
        opening = self._opened(repository, access=access, is_shared=is_shared, is_exclusive=False)
        async with opening as opened:
            settings = await remote_settings(opened)
            branch, _ = await head(opened)
            configured = settings.remote(remote or settings.default(branch))
            url = configured.url(push=direction == "push")
            rule = self._access.rule_for(url, direction, principal=call.principal)
            yield _Used(opened, settings, configured, url, rule)
