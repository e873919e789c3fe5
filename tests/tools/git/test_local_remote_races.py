"""docs/specs/git-remotes.md: a remote on this machine whose path changes while it is opened."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coretools.config.remote_policy import RemoteRule
from tests.tools.git.remote_world import RemoteWorld, outcome
from tests.tools.git.world import SECRET, World

pytestmark = pytest.mark.anyio

CALLS = 40
"""Calls for each entry. When a remote was opened by the path that had been judged, 1 to 40 calls were enough."""

EXCHANGED = ("srv", "srv/origin.git", "srv/origin.git/objects", "srv/origin.git/objects/info")
"""Entries on the way to the remote and in it, outermost first."""

_EXCHANGE = """
import os, sys
from coretools.roots.open_beneath import rename
at = os.open(sys.argv[1], os.O_RDONLY)
print(flush=True)
while True:
    rename(at, sys.argv[2], at, "other", flags=2)  # RENAME_EXCHANGE
"""


@contextmanager
def exchanging(entry: Path) -> Iterator[None]:
    """Exchange an entry and its neighbour `other` all the time, as a command in a writable root can."""
    words = [sys.executable, "-c", _EXCHANGE, str(entry.parent), entry.name]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield
        finally:
            child.kill()


def plant(entry: Path, outside: Path) -> None:
    """Put beside an entry what leads to the same place of the repository outside."""
    if entry.name == "info":
        (entry.parent / "other").mkdir()
        (entry.parent / "other" / "alternates").write_text(f"{outside}/origin.git/objects\n")
    else:
        below = entry.relative_to(next(one for one in entry.parents if one.name == "root") / "srv")
        os.symlink(outside / below, entry.parent / "other")


@pytest.mark.parametrize("exchanged", EXCHANGED)
async def test_a_remote_that_is_exchanged_for_a_link_leads_to_no_other_repository(
    tmp_path: Path, exchanged: str
) -> None:
    """git-remotes-28: the rule is about the directory that is served, not about what its path named before."""
    world = World(tmp_path).filled()
    entry = world.root / exchanged
    bare, other = world.root / "srv" / "origin.git", world.outside / "origin.git"
    bare.parent.mkdir()
    for place in (bare, other):
        world.git("init", "-q", "--bare", "--initial-branch=main", str(place))
        world.git("push", "-q", str(place), "main:main")
    secret = world.git("commit-tree", "-m", SECRET, "main^{tree}")
    world.git("push", "-q", str(other), f"{secret}:refs/heads/secret")
    if "objects" in exchanged:  # the reference is there, and its object is not
        (bare / "refs" / "heads" / "secret").write_text(f"{secret}\n")
    plant(entry, world.outside)
    async with RemoteWorld(world).tools(RemoteRule(url=f"{world.root}/**")) as (tools, _):
        with exchanging(entry):
            for number in range(CALLS):
                await outcome(tools.git_clone, url=str(bare), path=f"copy{number}")
                copy = world.root / f"copy{number}"
                assert not copy.exists() or secret not in world.git("log", "--all", "--format=%H", cwd=copy), number + 1
