"""The fixture served by a `coretools-http`, whose log has the calls, and the suite's own Node.js."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.conftest import without
from tests.conformance.suite import NODE_FOLDER
from tests.web.http_server_peer import HttpServer, http_server

FIXTURE = "tests.conformance.fixture:FIXTURE"
TASK_FIXTURE = "tests.conformance.task_fixture:JOBS"

POLICY = """[catalog]
only = ["test_*", "*_tool", "*_prompt", "static_*", "template_data", "watched_resource"]
"""
"""The fixture only: the suite calls the first tool of the list."""

CONFIGURATION = """auth.anonymous = "user"

[limits]
sessions_per_principal = 1024

[roles.default]
requests_per_second = 0
"""
"""The suite deletes few of its sessions, and all requests have one principal."""


@dataclass(frozen=True)
class Served:
    """The server of the fixture."""

    server: HttpServer

    @property
    def url(self) -> str:
        return self.server.url

    def mark(self) -> int:
        """The number of completed calls."""
        return len(self.server.calls)

    def since(self, mark: int) -> dict[str, set[str]]:
        """Commands called since, with their outcomes."""
        found: dict[str, set[str]] = {}
        for name, how in self.server.calls[mark:]:
            found.setdefault(name, set()).add(how)
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve the fixture of the revisions."""
    folder = tmp_path_factory.mktemp("conformance")
    root, policy, configuration = folder / "root", folder / "policy.toml", folder / "http.toml"
    root.mkdir()
    policy.write_text(POLICY)
    configuration.write_text(CONFIGURATION)
    words = ("--root", root, "--profile", "all", "--ask", "sampling", "--policy", policy, "--config", configuration)
    with http_server(folder, *words, "--with", FIXTURE) as server:
        yield Served(server)


@contextmanager
def serving_tasks(folder: Path) -> Iterator[str]:
    """Serve the fixture of the tasks extension; yields the URL."""
    root, configuration = folder / "root", folder / "http.toml"
    root.mkdir()
    configuration.write_text(CONFIGURATION)
    words = ("--root", root, "--profile", "all", "--config", configuration, "--with", TASK_FIXTURE)
    with http_server(folder, *words) as server:
        yield server.url


@pytest.fixture(scope="session")
def node() -> Path:
    """The Node.js that comes with the suite."""
    found = NODE_FOLDER / "node_modules" / ".bin" / "node"
    if not found.exists():
        without("npm packages of the conformance suite: run `npm ci` in tests/conformance/node")
    return found
