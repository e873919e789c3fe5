"""A world with remotes: bare repositories beside the root, the rules that allow them, and the tools for both."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coretools.config.limits import Limits
from coretools.config.remote_policy import RemoteRule
from coretools.errors import CoreError
from coretools.tools.git.remotes.access import RemoteAccess
from coretools.tools.git.remotes.tools import RemoteTools
from tests.tools.git.world import GitTools, World

LIMITS = Limits(grace_seconds=0.3)


@dataclass(frozen=True)
class RemoteWorld:
    """The world of one test, and its bare repository."""

    world: World

    @property
    def bare(self) -> Path:
        return self.world.top / "srv" / "origin.git"

    def created(self) -> "RemoteWorld":
        """Make the bare repository, with the commits of the work tree."""
        self.bare.parent.mkdir(exist_ok=True)
        self.world.git("init", "-q", "--bare", "--initial-branch=main", str(self.bare), cwd=self.world.top)
        self.world.git("push", "-q", str(self.bare), "main:main")
        return self

    def rule(self, **keys: Any) -> RemoteRule:
        return RemoteRule(**{"url": f"{self.bare.parent}/*", "push": True, **keys})

    @asynccontextmanager
    async def tools(
        self, *rules: RemoteRule, limits: Limits = LIMITS, environment: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[RemoteTools, GitTools]]:
        environment = os.environ if environment is None else environment
        async with self.world.tools(limits=limits) as tools:
            access = RemoteAccess(rules or (self.rule(),), tools.repositories.git, environment=environment)
            yield RemoteTools(tools.repositories, access), tools


async def error_of(call: Awaitable[Any]) -> CoreError:
    """The error of a call that must fail."""
    try:
        result = await call
    except CoreError as error:
        return error
    raise AssertionError(result.text())


async def outcome(function: Callable[..., Awaitable[Any]], **arguments: Any) -> str:
    """The text of an answer or of an error."""
    try:
        found: str = (await function(**arguments)).text()
    except CoreError as error:
        return f"{error.kind}: {error}"
    return found
