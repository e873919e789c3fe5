"""The wiring: from settings to roots, runner, tool sets and dispatcher. Every entry point builds its server here."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from coretools.dispatch import Dispatcher
from coretools.process.environment import child_environment
from coretools.process.runner import Runner
from coretools.registry import Registry
from coretools.sandbox.deny import DEFAULT_DENY, DenyRules
from coretools.sandbox.roots import Roots, RootSpec
from coretools.settings import Settings
from coretools.tools.ci.tools import Ci
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
    dispatcher: Dispatcher

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
    with Roots(specs, deny=deny, resolver=settings.resolver) as roots:
        runner = Runner(settings.limits, child_environment(environment, passed=settings.pass_environment))
        try:
            offer = registry_of(roots, runner, settings).offer(settings.profile, read_only=settings.read_only)
            yield Assembly(roots, runner, Dispatcher(offer, threads=settings.limits.threads))
        finally:
            await runner.close()


def registry_of(roots: Roots, runner: Runner, settings: Settings) -> Registry:
    """Every tool set, in the order in which tools are listed."""
    registry = Registry()
    registry.add_set("filesystem", Filesystem(roots, settings.limits))
    registry.add_set("search", Search(roots, runner, settings.limits))
    registry.add_set("git", Repository(roots, runner, settings.limits))
    registry.add_set("ci", Ci(roots, runner, settings.limits))
    registry.add_set("diagnostics", Diagnostics(roots, runner, settings.limits))
    return registry


def _spec(text: str, *, read_only: bool) -> RootSpec:
    """A root as the operator wrote it: `PATH`, `PATH:ro` or `PATH:rw`."""
    path, colon, rights = text.rpartition(":")
    if not colon or rights not in ("ro", "rw"):
        path, rights = text, "rw"
    return RootSpec(path, writable=rights == "rw" and not read_only)
