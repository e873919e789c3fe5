"""The fixture server on a socket, with a journal of what was run, and the suite's own Node.js."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.conftest import without
from tests.conformance.suite import NODE_FOLDER

TREE = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Served:
    """A server of the fixture."""

    url: str
    journal: Path

    def mark(self) -> int:
        """Where the journal ends now."""
        return len(self.journal.read_text().splitlines())

    def since(self, mark: int) -> dict[str, set[str]]:
        """Commands that were run since, and how they ended."""
        found: dict[str, set[str]] = {}
        for line in self.journal.read_text().splitlines()[mark:]:
            name, _, how = line.partition(": ")
            found.setdefault(name, set()).add(how.partition(" ")[0])
        return found


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[Served]:
    """A process that serves a fixture."""
    journal = folder / "journal"
    line = [sys.executable, "-m", "tests.conformance.server", "--journal", str(journal), *words]
    process = subprocess.Popen(line, cwd=TREE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), url
        yield Served(url, journal)
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The fixture of the revisions."""
    with serving(tmp_path_factory.mktemp("conformance")) as one:
        yield one


@pytest.fixture(scope="session")
def node() -> Path:
    """The Node.js that comes with the suite."""
    found = NODE_FOLDER / "node_modules" / ".bin" / "node"
    if not found.exists():
        without("npm packages of the conformance suite: run `npm ci` in tests/conformance/node")
    return found
