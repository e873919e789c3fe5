"""Build the sandbox of language servers: one for each root, which they read, and nothing else of the user's."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from coretools.app.command_sandbox import inherited_environment
from coretools.app.root_specs import open_roots
from coretools.command_policy.verdict import ProgramPolicy
from coretools.config.operator_policy import ConfinementPolicy
from coretools.config.settings import Settings
from coretools.confinement.caches import DEFAULT_CACHE_BYTES, SERVER_CACHES, CommandCaches
from coretools.confinement.command_confinement import CommandConfinement, command_confinement
from coretools.confinement.toolchains import home_of
from coretools.own_state import cache_directory
from coretools.process.fork_server.pool import SandboxPool
from coretools.process.fork_server.scratch import scratch_path
from coretools.process.runner import Runner
from coretools.roots.root import Root
from coretools.roots.root_set import Roots


@dataclass(frozen=True, slots=True)
class RootServerSandbox:
    """Where the language servers of one root run."""

    roots: Roots
    runner: Runner
    cache: str
    exit_stack: ExitStack

    async def close(self) -> None:
        """End everything in it."""
        await self.runner.close()
        self.exit_stack.close()


def open_server_sandbox(
    settings: Settings, environment: Mapping[str, str], login_path: Callable[[], Sequence[str]], root: Root
) -> RootServerSandbox:
    """Open the sandbox of one root: it is read, the network is closed, and one cache alone can be written.

    Variables that the operator passes to commands are not passed on. `login_path` is that of commands.

    Raises:
        BadSetting: the root is gone, or the cache would lie in it.
    """
    allowed, most_bytes = settings.policy.confinement, settings.limits.language_server_bytes
    confinement = ConfinementPolicy(
        require=allowed.require,
        allow_git_credentials=allowed.allow_git_credentials,
        readable=allowed.readable,
        memory_bytes=min(allowed.memory_bytes or most_bytes, most_bytes),
        file_bytes=allowed.file_bytes,
        processes=allowed.processes,
    )
    own = replace(
        settings,
        roots=(f"{root.path}:ro",),
        pass_environment=(),
        policy=replace(settings.policy, confinement=confinement),
    )
    with ExitStack() as stack:
        roots = stack.enter_context(open_roots(own, environment))
        inherited = inherited_environment(own, environment)
        base = cache_directory(inherited, home_of(inherited))
        caches = CommandCaches(
            tuple(SERVER_CACHES),
            table=SERVER_CACHES,
            roots=[one for one in roots if one.path == root.path],
            base=os.path.join(base, "language-servers") if base else "",
            limit_bytes=allowed.cache_bytes or DEFAULT_CACHE_BYTES,
        )
        stack.callback(caches.close)
        policy = replace(confinement, writable=caches.paths)
        confine = partial(_confinement, settings.limits.language_server_cpu_seconds, caches, login_path)
        pool = SandboxPool(roots.for_git, policy, inherited, confine, scratch=scratch_path(roots, policy))
        programs = ProgramPolicy(settings.policy.commands, source=settings.policy.source)
        runner = Runner(settings.limits, inherited, sandbox_pool=pool, programs=programs)
        return RootServerSandbox(roots, runner, next(iter(caches.paths), ""), stack.pop_all())


def _confinement(
    cpu_seconds: int,
    caches: CommandCaches,
    login_path: Callable[[], Sequence[str]],
    roots: Roots,
    policy: ConfinementPolicy,
    environment: Mapping[str, str],
) -> CommandConfinement:
    commands = command_confinement(roots, policy, environment, caches=caches, login_path=login_path)
    return replace(commands, cpu_seconds=cpu_seconds)
