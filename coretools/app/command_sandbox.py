"""Build the sandbox of commands from the settings: with the login shell's PATH and the caches that the policy names."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from coretools.config.operator_policy import CONTAINER_DIRECTORIES, ConfinementPolicy
from coretools.config.settings import Settings
from coretools.confinement.caches import DEFAULT_CACHE_BYTES, CommandCaches, cache_base
from coretools.confinement.command_confinement import command_confinement
from coretools.confinement.toolchains import home_of
from coretools.process.fork_server.pool import SandboxPool
from coretools.process.login_shell import LoginShell
from coretools.process.runner import Runner
from coretools.roots.root_set import Roots
from coretools.tools.failure_explanations import (
    Explanations,
    HiddenFileExplanations,
    NetworkPolicy,
    terminal_explanation,
)
from coretools.tools.tier_restrictions import TierRestrictions
from coretools.tools.toolchain_explanations import ToolchainExplanations


def sandbox_pool_for(
    roots: Roots,
    settings: Settings,
    inherited: Mapping[str, str],
    login_shell: LoginShell | None,
    exit_stack: ExitStack,
) -> SandboxPool:
    """Create the sandbox, with the caches that the policy names as further writable directories.

    Raises:
        BadSetting: the caches would lie in a root.
    """
    policy = settings.policy.confinement
    caches = CommandCaches(
        policy.caches,
        roots=roots,
        writable=_writable_besides(policy),
        base=cache_base(inherited, home_of(inherited)),
        limit_bytes=policy.cache_bytes or DEFAULT_CACHE_BYTES,
    )
    exit_stack.callback(caches.close)
    confine = partial(command_confinement, caches=caches)
    if login_shell is not None:
        confine = partial(command_confinement, caches=caches, login_path=login_shell.path)
    return SandboxPool(roots, replace(policy, writable=(*policy.writable, *caches.paths)), inherited, confine)


def writable_paths(roots: Roots, policy: ConfinementPolicy) -> list[str]:
    """Return the real paths of what tools and commands may write."""
    writable = [root.path for root in roots if root.writable]
    return [*writable, *map(os.path.realpath, _writable_besides(policy))]


def _writable_besides(policy: ConfinementPolicy) -> tuple[str, ...]:
    return (*policy.writable, *(CONTAINER_DIRECTORIES if policy.own_container else ()))


def explanations_of(roots: Roots, runner: Runner, network: NetworkPolicy, closed: TierRestrictions) -> Explanations:
    """Return the explanations for failures that the sandbox or a missing terminal causes."""
    hidden = HiddenFileExplanations(roots, runner.hidden)
    toolchains = ToolchainExplanations(runner.toolchains)
    causes = (network.explanation, *closed.explanations(), hidden.explanation, toolchains.explanation)
    return Explanations(*causes, terminal_explanation)
