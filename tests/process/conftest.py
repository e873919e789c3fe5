"""A runner that is closed, and a directory that is closed."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from coretools.process.runner import Runner
from coretools.sandbox.deny import DenyRules
from coretools.sandbox.reading import Directory, open_directory
from coretools.sandbox.roots import Roots, RootSpec
from coretools.settings import Limits

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
