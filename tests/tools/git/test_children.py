"""Which module starts git, and how often."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import TREE
from tests.tools.git.world import World


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.tools.git.children", str(tmp_path_factory.mktemp("watched"))]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TREE), "PYTHONDONTWRITEBYTECODE": "1"}
    completed = subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, timeout=60)
    assert completed.returncode == 0, completed.stderr
    counted: dict[str, Any] = json.loads(completed.stdout)
    return counted


def test_only_the_runner_starts_children(watched: dict[str, Any]) -> None:
    """git-16: with every tool."""
    assert watched["strangers"] == []


def test_a_plain_status_is_one_process(watched: dict[str, Any]) -> None:
    """git-5: plain git plus the check of the repository."""
    for tool in ("git_status", "git_branches", "git_current_branch"):
        [program] = watched["by_tool"][tool]
        assert program.rpartition("/")[2] == "git"


def test_each_question_is_one_process(watched: dict[str, Any]) -> None:
    """git-38: more only where attributes are needed, or an author to commit as. The user has a filter here."""
    counts = {name: len(programs) for name, programs in watched["by_tool"].items()}
    assert counts["git_log"] == 1
    assert counts["git_log of a range"] == 1
    assert counts["git_diff"] == 1
    assert (counts["git_add"], counts["git_commit"]) == (2, 3)


async def test_git_sees_no_more_than_it_is_given(tmp_path: Path) -> None:
    """git-19: the environment of git is built from nothing."""
    world = World(tmp_path).filled()
    program = world.outside / "git"
    program.write_text(f"#!/bin/sh\nenv | cut -d= -f1 | sort > {tmp_path}/names\n")
    program.chmod(0o755)
    world.environment.update({"PATH": f"{world.outside}:{os.environ['PATH']}", "TOKEN": "secret", "LD_PRELOAD_X": "x"})
    async with world.tools() as tools:
        await tools.git_branches("work")
    names = set((tmp_path / "names").read_text().split())
    assert {"TOKEN", "LD_PRELOAD_X", "GIT_CONFIG_COUNT", "GIT_EXTERNAL_DIFF"}.isdisjoint(names)
    assert {"PATH", "HOME", "GIT_DIR", "GIT_WORK_TREE", "GIT_CONFIG_GLOBAL", "GIT_LITERAL_PATHSPECS"} <= names
