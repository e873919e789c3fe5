"""A disk that fills up in the middle of a git operation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """An error; what was not committed stays, nothing is locked, and what only stores works later."""
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c"]
    mount = f"mount -t tmpfs -o size=12m none '{tmp_path}'"
    if subprocess.run([*unshare, mount], capture_output=True).returncode:
        pytest.skip("needs to mount a tmpfs in a mount namespace (root, or user namespaces)")
    command = f"{mount} && exec '{sys.executable}' -m tests.tools.git.full_disk '{tmp_path}'"
    completed = subprocess.run([*unshare, command], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    outcomes = json.loads(completed.stdout)
    assert len(outcomes) == 6
    assert [(name, what) for name, facts in outcomes.items() for what, holds in facts.items() if not holds] == []
