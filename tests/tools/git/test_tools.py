"""The git tools as a whole: each is listed, and its revisions complete."""

from pathlib import Path

import pytest

from coretools.operations.completion import complete_parameter, require_sources
from coretools.operations.declare import declaration_of
from coretools.operations.registry import Registry
from coretools.tools.git.remotes.tools import RemoteTools
from coretools.tools.git.tools import git_tools
from tests.tools.git.world import GitTools, World, no_command

pytestmark = pytest.mark.anyio


async def test_every_declared_tool_is_listed_once(tmp_path: Path) -> None:
    async with World(tmp_path).tools() as tools:
        functions = git_tools(tools.repositories, no_command, remote_rules=(), environment={})
    listed = [function.__name__ for function in functions]
    declared = {name for one in (GitTools, RemoteTools) for name in dir(one) if declaration_of(getattr(one, name))}
    assert sorted(listed) == sorted(declared)


async def test_revisions_of_every_tool_complete_to_branches(tmp_path: Path) -> None:
    """completion-8: whatever set has the tool."""
    world = World(tmp_path).filled()
    world.git("branch", "feature")
    registry = Registry()
    async with world.tools() as tools:
        for function in git_tools(tools.repositories, no_command, remote_rules=(), environment={}):
            registry.add(function)
        require_sources(registry)
        [switch] = [command for command in registry if command.name == "git_switch"]
        assert await complete_parameter(switch, "branch", "f", {"repository": "work"}) == ["feature"]
