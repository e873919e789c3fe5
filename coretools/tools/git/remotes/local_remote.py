"""A remote on this machine: a repository that the operator named, examined as every other before git runs in it.

git serves it by `upload-pack` or `receive-pack`, confined to this repository. No program of it runs; a hook that
decides about pushes is not ignored but ends the push.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from anyio import to_thread

from coretools.config.remote_policy import Direction, RemoteRule, matching_rule
from coretools.config.remote_urls import RemoteUrl
from coretools.confinement.landlock import Rule
from coretools.errors import BadSetting, DeniedRemote, GitRefused, NotFound
from coretools.git_remotes.exchange import Service
from coretools.git_remotes.process_transport import ProcessTransport
from coretools.process.run import Completed
from coretools.roots import directory_access
from coretools.roots.hidden_files import DenyRules
from coretools.roots.linked_repository import GIT
from coretools.roots.read import open_directory
from coretools.roots.root import Directory, RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.git.remotes.connected_git import serve
from coretools.tools.git.remotes.settings import RECEIVE_SETTINGS, SEND_SETTINGS
from coretools.tools.git.repository.access_rules import read_rules, write_rules
from coretools.tools.git.repository.configuration import GitConfigurations
from coretools.tools.git.repository.git_directory import (
    GitDirectory,
    examine,
    examine_changeable,
    examine_shared,
    unusable,
)
from coretools.tools.git.repository.open_checkout import installed_hooks
from coretools.tools.git.repository.open_repository import Git

_DECIDING = frozenset({"pre-receive", "update", "proc-receive", "reference-transaction", "push-to-checkout"})
"""Hooks that can refuse or change a push."""


@dataclass(frozen=True, slots=True)
class _LocalRepository:
    """A repository that was examined; open as long as its stack."""

    directory: Directory
    rules: tuple[Rule, ...]
    overrides: tuple[str, ...]


@asynccontextmanager
async def local_transport(
    git: Git, url: RemoteUrl, rules: Sequence[RemoteRule], direction: Direction
) -> AsyncIterator[ProcessTransport]:
    """Open the repository and return the way to it.

    Raises:
        NotFound: there is none. GitRefused: git is not run in it. DeniedRemote: its path leads to another one.
    """
    with ExitStack() as stack:
        repository = await to_thread.run_sync(_opened, url, rules, direction, stack)

        async def start(service: Service, connection: int) -> Completed:
            settings = RECEIVE_SETTINGS if service == "git-receive-pack" else SEND_SETTINGS
            words = (*repository.overrides, *settings, service.removeprefix("git-"), ".")
            return await serve(git, repository.directory, connection, words, rules=repository.rules)

        yield ProcessTransport(start, limit_bytes=git.limits.transfer_bytes, explain=lambda _: "")


def _opened(url: RemoteUrl, rules: Sequence[RemoteRule], direction: Direction, stack: ExitStack) -> _LocalRepository:
    writes = direction == "push"
    try:
        roots = stack.enter_context(Roots([RootSpec(url.path, writable=writes)], deny=DenyRules((), by_content=False)))
    except BadSetting as error:
        why = str(error).removeprefix(f"root {url.path}: ")
        raise NotFound(f"{url.path}: no repository there: {why}") from error
    path = roots.first.path
    if path != url.path and matching_rule(rules, RemoteUrl("path", path)) is not matching_rule(rules, url):
        raise DeniedRemote(f"{url.path}: is a link to {path}, about which another rule of the policy decides, or none")
    top = stack.enter_context(open_directory(roots, path))
    is_bare = directory_access.entry_kind(top.fd, GIT) is None
    directory = top if is_bare else stack.enter_context(open_directory(roots, f"{path}/{GIT}"))
    handle = stack.enter_context(directory_access.open_subdirectory(directory.fd, "."))
    own = GitDirectory(handle, directory.path, url.path, roots.first, is_entry=True)
    entries = examine(own)
    if "commondir" in entries:
        raise unusable(own.display_path, "is a linked work tree; name the repository that it belongs to")
    borrowed = examine_shared(roots, own, entries, stack)
    policy = GitConfigurations(roots).policy(own, own)
    if policy.external_includes:
        raise unusable(own.display_path, "includes configuration from elsewhere")
    if "core.alternaterefscommand" in policy.not_used:
        raise unusable(own.display_path, "sets core.alternateRefsCommand, which would run a program")
    granted = read_rules(roots, dict.fromkeys((handle, *borrowed)), policy.included, stack)
    if writes:
        examine_changeable(own, entries)
        _require_no_decision(own, entries, policy.not_used)
        granted += write_rules(own, entries, own, entries, stack)
    return _LocalRepository(directory, tuple(granted), policy.overrides)


def _require_no_decision(own: GitDirectory, entries: dict[str, str], not_used: Sequence[str]) -> None:
    """Refuse a push to a repository whose hooks decide about pushes: they do not run here.

    Raises:
        GitRefused: it has one.
    """
    hooks = sorted(_DECIDING.intersection(installed_hooks(own, entries)))
    hooks += [key for key in not_used if key == "core.hookspath" or key.startswith("hook.")]
    if hooks:
        raise GitRefused(
            f"{own.display_path}: has hooks that decide about pushes ({', '.join(hooks)}), and no hook runs here;"
            " push with git itself"
        )
