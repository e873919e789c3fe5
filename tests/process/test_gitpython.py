"""GitPython, loaded so that it can start no child."""

import logging
import os
import subprocess
from pathlib import Path

import pytest

from coretools.process import gitpython


def repository(path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(path)], check=True, env={"PATH": os.environ["PATH"]})
    return path


def test_what_would_run_git_is_refused(tmp_path: Path) -> None:
    """repository-16: an attribute that needs a child fails instead of starting one."""
    git = gitpython.load()
    with git.Repo(repository(tmp_path)) as found:
        assert found.active_branch.name
        with pytest.raises(PermissionError, match="runner"):
            found.git.status()


def test_loading_leaves_the_environment_as_it_was() -> None:
    """repository-16: the switch that keeps the import quiet is taken back."""
    before = dict(os.environ)
    assert gitpython.load() is gitpython.load()
    assert dict(os.environ) == before


def test_its_own_words_stay_out_of_the_log_but_for_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """repository-16: its logger is set to everything for the refusal's sake, and passes on what it did before."""
    gitpython.load()
    logger = logging.getLogger("git.cmd")
    logger.debug("small talk")
    logger.warning("worth a word")
    assert [record.getMessage() for record in caplog.records] == ["worth a word"]
