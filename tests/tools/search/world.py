"""A tree to search, and the two engines that must find the same matches in it."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anyio import CapacityLimiter

from coretools.config.limits import Limits
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.environment import child_environment
from coretools.process.ripgrep import Ripgrep, packaged_ripgrep
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.search.engines import RipgrepEngine, SearchEngine, WalkEngine
from coretools.tools.search.tools import SearchTools

LIMITS = Limits()
RIPGREP = packaged_ripgrep() or shutil.which("rg")
needs_ripgrep = pytest.mark.skipif(RIPGREP is None, reason="ripgrep")
ENGINES = [pytest.param("walk", id="walk"), pytest.param("ripgrep", id="ripgrep", marks=needs_ripgrep)]


def planted(top: Path, files: dict[str, str | bytes]) -> None:
    """Write files and their directories; a path that ends in `/` is a directory."""
    for name, content in files.items():
        path = top / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@asynccontextmanager
async def searching(
    *tops: Path,
    engine: str = "",
    limits: Limits = LIMITS,
    deny: tuple[str, ...] = DEFAULT_DENY,
    environment: dict[str, str] | None = None,
    packaged: str | None = "",
) -> AsyncIterator[SearchTools]:
    """The search tools for these roots, with one engine only if it is named.

    `packaged` is the ripgrep that is installed with coretools: by default what is, or none if `environment` is given.
    """
    if packaged == "":
        packaged = packaged_ripgrep() if environment is None else None
    runner = Runner(limits, child_environment(os.environ, passed=()) if environment is None else environment)
    with Roots([RootSpec(str(top)) for top in tops], deny=DenyRules(deny)) as roots:
        limiter, confined_threads = CapacityLimiter(4), ConfinedThreadPool()
        confined = ConfinedRunner(runner, confined_threads)
        ripgrep = Ripgrep(confined, packaged=lambda: packaged)
        by_ripgrep = RipgrepEngine(roots, confined, ripgrep=ripgrep, limits=limits, limiter=limiter)
        walk = WalkEngine(roots, limiter)
        engines: dict[str, tuple[SearchEngine, ...]] = {
            "": (by_ripgrep, walk),
            "walk": (walk,),
            "ripgrep": (by_ripgrep,),
        }
        try:
            yield SearchTools(roots, runner, limits, confined_threads=confined_threads, engines=engines[engine])
        finally:
            await runner.close()
            confined_threads.close()
