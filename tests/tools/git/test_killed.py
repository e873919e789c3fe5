"""A server that is killed in the middle of a change (docs/specs/git-changes.md)."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.checkout import TREE

STEP = os.environ.get("CORETOOLS_GIT_KILL_STEP", "9")
"""Every so many places are tried; 1 tries all."""


def test_nothing_is_lost_if_the_server_is_killed(tmp_path: Path) -> None:
    """git-changes-25: the repository is usable, no content is lost, and what is unfinished is mentioned."""
    command = [sys.executable, "-m", "tests.tools.git.killed", str(tmp_path), STEP]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TREE), "PYTHONDONTWRITEBYTECODE": "1"}
    completed = subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, timeout=600)
    assert completed.returncode == 0, completed.stderr
    found = json.loads(completed.stdout)
    assert found["wrong"] == {}
    assert found["places"] > 5
