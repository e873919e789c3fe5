"""The command tools for a directory, with real children that are all ended."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from coretools.command_policy.verdict import ProgramPolicy
from coretools.config.limits import Limits
from coretools.config.operator_policy import CommandPolicy, ConfinementPolicy
from coretools.process.environment import child_environment
from coretools.process.fork_server.pool import SandboxPool
from coretools.process.jobs.job_table import JobTable
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.commands.tools import CommandTools

LIMITS = Limits(grace_seconds=0.3)


@dataclass(frozen=True)
class World:
    commands: CommandTools
    runs: JobTable
    runner: Runner
    roots: Roots


@asynccontextmanager
async def world_in(
    directory: Path,
    *,
    writable: bool = True,
    limits: Limits = LIMITS,
    is_confined: bool = False,
    policy: CommandPolicy | None = None,
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[World]:
    """Tools beneath a directory. With `is_confined` the kernel confines their commands, as on a server.

    `variables` replace the environment of commands.
    """
    environment = child_environment(os.environ if variables is None else variables, passed=())
    with Roots([RootSpec(str(directory), writable=writable)], deny=DenyRules(DEFAULT_DENY)) as roots:
        sandbox_pool = (
            SandboxPool(roots, ConfinementPolicy(allow_unconfined=True), environment) if is_confined else None
        )
        programs = None if policy is None else ProgramPolicy(policy)
        runner = Runner(limits, environment, sandbox_pool=sandbox_pool, programs=programs)
        async with JobTable(runner, limits) as runs:
            try:
                yield World(CommandTools(roots, runs, limits), runs, runner, roots)
            finally:
                await runner.close()


@asynccontextmanager
async def commands_in(
    directory: Path,
    *,
    writable: bool = True,
    limits: Limits = LIMITS,
    is_confined: bool = False,
    policy: CommandPolicy | None = None,
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[CommandTools]:
    async with world_in(
        directory, writable=writable, limits=limits, is_confined=is_confined, policy=policy, variables=variables
    ) as world:
        yield world.commands
