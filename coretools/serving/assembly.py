"""The wiring: from settings to roots, runner, tool sets and dispatcher. Every entry point builds its server here."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial

from coretools.call import LOCAL
from coretools.confinement.domain import Domains
from coretools.dispatch import Dispatcher
from coretools.graph import Graph
from coretools.offer import Selection
from coretools.process.environment import child_environment
from coretools.process.keeper import Keeper
from coretools.process.runner import Runner
from coretools.process.runs import Runs
from coretools.redact import Redactor, secret_values
from coretools.redact_stream import StreamRedactor
from coretools.registry import Registry
from coretools.sandbox.deny import DEFAULT_DENY, DenyRules
from coretools.sandbox.programs.policy import ProgramPolicy
from coretools.sandbox.roots import Roots, RootSpec
from coretools.serving.resources import RunResources
from coretools.serving.server import Identity
from coretools.settings import Settings
from coretools.tools.ci.tools import Ci
from coretools.tools.commands.tools import Commands
from coretools.tools.diagnostics import Diagnostics
from coretools.tools.filesystem.tools import Filesystem
from coretools.tools.repository.tools import Repository
from coretools.tools.search.tools import Search

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Assembly:
    """What an entry point serves."""

    roots: Roots
    runner: Runner
    keeper: Keeper
    resources: RunResources
    graph: Graph
    dispatcher: Dispatcher
    domains: Domains

    @property
    def identity(self) -> Identity:
        """How the server introduces itself."""
        return Identity(instructions=self.instructions)

    @property
    def instructions(self) -> str:
        """What the model is told of this server when it connects."""
        first, *others = self.roots
        lines = [f"Files, search, git, builds, tests and commands beneath {first.path} ({_rights(first.writable)})."]
        lines += [f"Also beneath {root.path} ({_rights(root.writable)}), by absolute path." for root in others]
        lines.append(
            "Relative paths start there; a path left out is that directory. Nothing outside is reached. Prefer "
            "edit_file to write_file, search_text to reading whole files, and the git and ci tools to run_command, "
            "which takes one program and its arguments, not shell text."
        )
        return "\n".join(lines)


def _rights(writable: bool) -> str:
    return "read and write" if writable else "read only"


@asynccontextmanager
async def assembled(settings: Settings, environment: Mapping[str, str]) -> AsyncIterator[Assembly]:
    """Open the roots and build what serves them; at the end every child is gone and every handle closed.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    deny = DenyRules([*(DEFAULT_DENY if settings.default_deny else ()), *settings.deny])
    specs = [_spec(text, read_only=settings.read_only) for text in settings.roots]
    with Roots(specs, deny=deny, resolver=settings.resolver) as roots, closing(Domains()) as domains:
        inherited = child_environment(environment, passed=_passed(settings))
        keeper = Keeper(roots, settings.policy.confinement, inherited)
        programs = ProgramPolicy(settings.policy.commands, source=settings.policy.source)
        runner = Runner(settings.limits, inherited, keeper=keeper, programs=programs)
        redactor = output_redactor(settings, environment)
        make_filter = partial(StreamRedactor, redactor) if redactor else None
        async with Runs(runner, settings.limits, make_filter=make_filter) as runs:
            try:
                registry = registry_of(roots, runner, runs, settings, domains=domains, redactor=redactor)
                selection = Selection(profile=settings.profile, read_only=settings.read_only)
                graph = Graph(registry, lambda _: selection)
                graph.offer(LOCAL)  # what can't be offered ends the start
                dispatcher = Dispatcher(threads=settings.limits.threads)
                resources = RunResources(runs, settings.limits)
                yield Assembly(roots, runner, keeper, resources, graph, dispatcher, domains)
            finally:
                await runner.close()


def output_redactor(settings: Settings, environment: Mapping[str, str]) -> Redactor | None:
    """What takes the credentials out of what commands print; None unless the operator asks for it."""
    if settings.redact_output or settings.policy.redact_output:
        return Redactor(secret_values(environment))
    return None


def registry_of(
    roots: Roots, runner: Runner, runs: Runs, settings: Settings, *, domains: Domains, redactor: Redactor | None
) -> Registry:
    """Every tool set, in the order in which tools are listed."""
    registry = Registry()
    registry.add_set("filesystem", Filesystem(roots, settings.limits))
    registry.add_set("search", Search(roots, runner, settings.limits, domains=domains))
    registry.add_set("git", Repository(roots, runner, settings.limits, domains=domains), context=("git",))
    registry.add_set("ci", Ci(roots, runner, settings.limits, redactor=redactor), context=("ci",))
    registry.add_set("commands", Commands(roots, runs, settings.limits, redactor=redactor))
    registry.add_set("diagnostics", Diagnostics(roots, runner, settings.limits, domains=domains))
    return registry


def _passed(settings: Settings) -> tuple[str, ...]:
    return (*settings.pass_environment, *settings.policy.environment_pass)


def _spec(text: str, *, read_only: bool) -> RootSpec:
    """A root as the operator wrote it: `PATH`, `PATH:ro` or `PATH:rw`."""
    path, colon, rights = text.rpartition(":")
    if not colon or rights not in ("ro", "rw"):
        path, rights = text, "rw"
    return RootSpec(path, writable=rights == "rw" and not read_only)
