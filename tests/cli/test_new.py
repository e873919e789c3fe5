"""`coretools new`: a project that passes its own tests (docs/specs/application.md)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coretools.cli.main import main
from tests.checkout import TREE


def test_a_new_project_passes_its_own_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """application-25, application-26"""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["new", "deploy-tool"])
    assert not ended.value.code
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "deploy-tool",
        env={**os.environ, "PYTHONPATH": str(TREE)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "5 passed" in done.stdout, done.stdout
    with pytest.raises(SystemExit) as taken:
        main(["new", "deploy-tool"])
    assert taken.value.code == 73
    with pytest.raises(SystemExit) as wrong:
        main(["new", "../deploy"])
    assert wrong.value.code == 64
