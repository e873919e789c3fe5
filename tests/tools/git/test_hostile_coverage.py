"""Every git tool that the server has is called in the hostile repositories, and reads no planted sparse patterns."""

from pathlib import Path

import pytest

from coretools.app.assembly import open_assembly
from coretools.config.settings import Settings
from coretools.errors import NotFound
from tests.tools.git import change_calls, test_hostile_remotes
from tests.tools.git.traps import answers, snapshot
from tests.tools.git.world import SECRET, GitTools, World

pytestmark = pytest.mark.anyio


class _Names(GitTools):
    """Notes which tools are called, and runs none."""

    def __init__(self) -> None:
        self.called: set[str] = set()

    def __getattribute__(self, name: str) -> object:
        if name.startswith("git_"):
            self.called.add(name)
            raise NotFound("only noted")
        return super().__getattribute__(name)


async def test_every_served_tool_is_called_in_hostile_repositories(tmp_path: Path) -> None:
    """git-12, git-changes-12, git-remotes-6: a tool that a server gets is tried too, whatever class declares it."""
    settings = Settings(roots=(str(tmp_path),), profile="all")
    async with open_assembly(settings, {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}) as assembly:
        served = {name for name in (one.name for one in assembly.catalog.current) if name.startswith("git_")}
    names = _Names()
    await answers(names)
    remote = {name for name, _ in (*test_hostile_remotes.CALLS, *test_hostile_remotes.CLONES)}
    assert len(served) > 30
    for table in (change_calls.CALLS, change_calls.EACH):
        assert served == names.called | remote | {name for name, _ in table}


SPARSE = (
    "!/*\n/../outside/\n/..\n",
    "/*\n!/*/\n/.git/\n/.git/config\n",
    "\\\n[\n[!\n**/**/**\n/\x01\n",
    "/folder/\n" * 2000,
)


@pytest.mark.parametrize("cone", ["true", "false"])
async def test_planted_sparse_patterns_reach_nothing(tmp_path: Path, cone: str) -> None:
    """git-changes-12: neither patterns nor a link in their place; files with changes stay."""
    world = change_calls.with_other(World(tmp_path).filled())
    for key, value in {"sparseCheckout": "true", "sparseCheckoutCone": cone}.items():
        world.git("config", f"core.{key}", value)
    file = world.git_dir / "info" / "sparse-checkout"
    file.parent.mkdir(exist_ok=True)
    before = snapshot(world)
    async with world.tools() as tools:
        for patterns in SPARSE:
            file.write_text(patterns)
            for call in (("list", []), ("add", ["work/folder"])):
                text = await _outcome(tools, *call)
                assert SECRET not in text
            text = (await change_calls.change_answers(tools, (("git_switch", {"branch": "other"}),)))[0]
            assert SECRET not in text
            assert (world.repository / "a.txt").read_text() == "unstaged\n"
        file.unlink()
        file.symlink_to(world.canary)
        for call in (("list", []), ("add", ["work/folder"]), ("set", ["work/folder"]), ("disable", [])):
            assert SECRET not in await _outcome(tools, *call)
    assert snapshot(world) == before


async def _outcome(tools: GitTools, action: str, paths: list[str]) -> str:
    [text] = await change_calls.change_answers(tools, (("git_sparse_checkout", {"action": action, "paths": paths}),))
    return text
