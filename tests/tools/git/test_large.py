"""A bounded question costs as much as its answer, not the history: measured by the memory that git touches."""

import os
import resource
from pathlib import Path
from typing import Any

from tests.tools.git.change_calls import function_of
from tests.tools.git.world import GitTools, World

COMMITS = int(os.environ.get("CORETOOLS_GIT_COMMITS", "10000"))
"""100,000 take some seconds more, with the same ratios."""

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("git_status", {}),
    ("git_log", {"limit": 50}),
    ("git_log", {"limit": 20, "stat": True, "body": True}),
    ("git_log", {"revision": "HEAD~20..HEAD"}),
    ("git_log", {"limit": 5, "path": "work/often.txt"}),
    ("git_diff", {}),
    ("git_diff", {"base": "HEAD~5"}),
    ("git_diff", {"base": "HEAD~5...HEAD"}),
    ("git_show", {}),
    ("git_show", {"path": "work/often.txt"}),
    ("git_branches", {}),
    ("git_branches", {"merged": "HEAD", "pattern": "topic"}),
    ("git_blame", {"path": "work/often.txt", "count": 2}),
    ("git_current_branch", {}),
    ("git_add", {"paths": ["work/often.txt"]}),
    ("git_commit", {"message": "x"}),
)


def _made(top: Path, commits: int) -> World:
    """One file that each commit changes; everything in one pack."""
    world = World(top).created()
    parts = []
    for number in range(commits):
        parts.append(f"commit refs/heads/main\ncommitter A <a@x> {1_000_000_000 + number} +0000\ndata 2\nx\n")
        if number == 0 or number > commits - 100:
            parts.append(f"M 100644 inline often.txt\ndata 12\noften {number:6}\n")
    world.git("fast-import", "--quiet", stdin="".join(parts).encode())
    world.git("reset", "--quiet", "--hard", "main")
    world.git("branch", "topic", "HEAD~10")
    world.write("often.txt", "changed\n")
    return world


async def _pages(tools: GitTools, name: str, arguments: dict[str, Any]) -> int:
    """Pages of memory that the processes of one call touched."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    await function_of(tools, name)(repository="work", **arguments)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before


async def test_no_bounded_question_reads_the_history(tmp_path: Path) -> None:
    """git-49: the same calls in a repository of 200 commits and in one with fifty times as many."""
    small, large = _made(tmp_path / "small", 200), _made(tmp_path / "large", COMMITS)
    async with small.tools() as few, large.tools() as many:
        await few.git_status("work")
        await many.git_status("work")
        found = [
            (name, arguments, await _pages(few, name, arguments), await _pages(many, name, arguments))
            for name, arguments in CALLS
        ]
        everything = await _pages(many, "git_log", {"grep": "nothing"})
    assert [one for one in found if one[3] > 1.5 * one[2] + 50] == []
    # A commit is three processes, each with pages of its own.
    assert everything > 2 * max(one[3] for one in found if one[0] != "git_commit"), (everything, found)


async def test_a_commit_graph_is_used(tmp_path: Path) -> None:
    """git-49: what is there already makes a walk shorter; nothing is started to make one."""
    world = _made(tmp_path, 4_000)
    walk = {"contains": "HEAD~3900"}
    async with world.tools() as tools:
        without = await _pages(tools, "git_branches", walk)
        world.git("commit-graph", "write", "--reachable")
        assert await _pages(tools, "git_branches", walk) < without
