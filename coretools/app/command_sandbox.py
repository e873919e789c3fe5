"""Build the sandbox of commands from the settings: with the login shell's PATH and the caches that the policy names."""

import argparse
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from coretools.app.root_specs import open_roots
from coretools.command_policy.verdict import ProgramPolicy, safe_variables
from coretools.config.agent_reach import reach_of_change
from coretools.config.operator_policy import CONTAINER_DIRECTORIES
from coretools.config.options import add_options, settings_from
from coretools.config.settings import Settings
from coretools.confinement.caches import DEFAULT_CACHE_BYTES, CommandCaches
from coretools.confinement.command_confinement import command_confinement
from coretools.confinement.toolchains import home_of
from coretools.confinement.user_git import NO_USER_GIT, UserGit, read_user_configuration
from coretools.own_state import cache_directory
from coretools.process.children.reaper import GIT_SUFFIX
from coretools.process.environment import child_environment, login_variables
from coretools.process.fork_server.command_recording import CommandRecording
from coretools.process.fork_server.pool import SandboxPool
from coretools.process.fork_server.scratch import remove, scratch_path
from coretools.process.login_shell import LoginShell
from coretools.process.runner import Runner
from coretools.reach import Reach
from coretools.roots.root_set import Roots
from coretools.tools.commands.workspace import Workspace
from coretools.tools.failure_explanations import (
    Explanations,
    git_config_explanation,
    git_remote_explanation,
    no_repository_explanation,
    terminal_explanation,
)
from coretools.tools.hidden_file_explanations import HiddenFileExplanations
from coretools.tools.network_policy import NetworkPolicy
from coretools.tools.tier_restrictions import TierRestrictions
from coretools.tools.toolchain_explanations import ToolchainExplanations

logger = logging.getLogger(__name__)


def open_user_git(
    settings: Settings, inherited: Mapping[str, str], reach: Reach, scratch: str, exit_stack: ExitStack
) -> UserGit:
    """Read the user's git configuration, and write what is taken from it for git; removed when the stack closes."""
    has_identity = settings.has_git_identity and settings.policy.git.identity != "caller"
    configuration = read_user_configuration(inherited, reach, has_identity=has_identity)
    directory = f"{scratch}{GIT_SUFFIX}"
    try:
        os.mkdir(directory, 0o700)
        exit_stack.callback(remove, directory)
        user_git = configuration.written(directory)
    except OSError as error:
        logger.warning("git runs without the user's configuration: %s: %s", directory, error.strerror)
        return NO_USER_GIT
    for what in user_git.left_out:
        logger.info("git configuration of the user, not used: %s", what)
    return user_git


def sandbox_pool_for(
    roots: Roots,
    settings: Settings,
    inherited: Mapping[str, str],
    login_shell: LoginShell | None,
    exit_stack: ExitStack,
    recording: CommandRecording | None = None,
) -> tuple[SandboxPool, UserGit, Reach]:
    """Create the sandbox, with the caches that the policy names as further writable directories, and git's files.

    Commands have the repositories of roots that are linked work trees too.

    The third result is what tools and commands can change.

    Raises:
        BadSetting: the caches would lie in a root.
    """
    roots = roots.for_git
    repositories = [root.path for root in roots if root.only_git and root.writable]
    policy = settings.policy.confinement
    caches = CommandCaches(
        policy.caches,
        roots=roots,
        writable=(*policy.writable, *(CONTAINER_DIRECTORIES if policy.own_container else ())),
        base=cache_directory(inherited, home_of(inherited)),
        limit_bytes=policy.cache_bytes or DEFAULT_CACHE_BYTES,
    )
    exit_stack.callback(caches.close)
    policy = replace(policy, writable=(*policy.writable, *caches.paths))
    scratch = scratch_path(roots, policy)
    reach = reach_of_change([settings], caches.paths, repositories)
    user_git = open_user_git(settings, inherited, reach, scratch, exit_stack)
    confine = partial(command_confinement, caches=caches, user_git=user_git)
    if login_shell is not None:
        confine = partial(confine, login_path=login_shell.path)
    pool = SandboxPool(roots, policy, inherited, confine, scratch=scratch)
    pool.recording = recording
    return pool, user_git, reach


def open_commands(
    settings: Settings, environment: Mapping[str, str], exit_stack: ExitStack, programs: ProgramPolicy | None = None
) -> tuple[Roots, Runner, SandboxPool]:
    """Open roots, runner and sandbox without the tools. The caller closes the runner. No policy: all are allowed.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    roots = exit_stack.enter_context(open_roots(settings, environment))
    inherited = inherited_environment(settings, environment)
    sandbox_pool, _, reach = sandbox_pool_for(roots, settings, inherited, None, exit_stack)
    runner = Runner(settings.limits, inherited, sandbox_pool=sandbox_pool, programs=programs, reach=reach)
    return roots, runner, sandbox_pool


@asynccontextmanager
async def open_workspace(
    root: "str | os.PathLike[str]",
    *roots: "str | os.PathLike[str]",
    policy: str | None = None,
    network: str | None = None,
    allow_unconfined: bool | None = None,
) -> AsyncIterator[Workspace]:
    """Open directories, to run programs and use files beneath them; `DIRECTORY:ro` is read-only. POSIX only.

    Programs run as those of `coretools serve`, by its policy file (`policy` is another one) and environment variables.
    `network` is what they reach: `allow`, `deny` (the default) or hosts, such as `pypi,github.com`. Where the system
    can't confine them they are refused, unless `allow_unconfined`. At the end every process of theirs is ended.

    Raises:
        BadSetting: a root, the policy or a variable can't be used.
    """
    parser = argparse.ArgumentParser()
    add_options(parser, profile="all", log_level="info")
    given = argparse.Namespace(policy=policy, network=network, allow_unconfined=allow_unconfined)
    options = parser.parse_args([], given)
    settings = settings_from(options, [os.fspath(one) for one in (root, *roots)], os.environ, None)
    programs = ProgramPolicy(settings.policy.commands, source=settings.policy.source)
    with ExitStack() as stack:
        opened, runner, _ = open_commands(settings, os.environ, stack, programs)
        workspace = Workspace(opened, runner, settings.limits)
        try:
            yield workspace
        finally:
            workspace.close()
            await runner.close()


def inherited_environment(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of child processes: passed variables, and the author of commits."""
    author = {} if settings.author is None else settings.author.variables
    judged = safe_variables(settings.policy.commands)  # what the operator passes wins over these
    return {**login_variables(), **judged, **child_environment(environment, passed=settings.pass_environment), **author}


def explanations_of(
    roots: Roots, runner: Runner, network: NetworkPolicy, tier_restrictions: TierRestrictions
) -> Explanations:
    """Return the explanations for failures that the sandbox or a missing terminal causes."""
    hidden = HiddenFileExplanations(roots, runner.hidden)
    toolchains = ToolchainExplanations(runner.toolchains)
    causes = (network.explanation, *tier_restrictions.explanations(), hidden.explanation, toolchains.explanation)
    git = (git_config_explanation, git_remote_explanation, no_repository_explanation(roots.git_refusals))
    return Explanations(*causes, terminal_explanation, *git)
