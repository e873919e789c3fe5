"""A runner and a working directory, both closed after the test."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import Directory, RootSpec
from coretools.roots.root_set import Roots

PATH = os.environ["PATH"]


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    runner = Runner(Limits(grace_seconds=0.3), {"PATH": PATH})
    yield runner
    await runner.close()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Directory]:
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(())) as roots, open_directory(roots, ".") as directory:
        yield directory
