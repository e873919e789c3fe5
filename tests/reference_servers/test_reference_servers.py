"""Our client and servers that nobody here wrote: the reference servers, FastMCP, an example of the TypeScript SDK.

docs/specs/interoperability.md
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from coretools.client.agents import Hub, HubTool
from coretools.client.connection.options import ConnectionOptions
from coretools.client.containment.containment import Containment
from tests.checkout import TREE
from tests.clients.conftest import cloned
from tests.reference_servers.servers import local_servers, node, python, remote_servers

__all__ = ["node", "python"]

EVERYTHING = ("everything", "everything-http", "everything-sse")
FASTMCP = ("fastmcp", "fastmcp-http")


@dataclass(frozen=True)
class World:
    """The configuration with all servers, and what they serve."""

    configuration: Path
    folder: Path
    repository: Path
    page: str
    names: tuple[str, ...]


@pytest.fixture(scope="module")
def world(node: str, python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("reference")
    folder, pages = place / "files", place / "pages"
    folder.mkdir()
    pages.mkdir()
    (folder / "note.txt").write_text("buy tea\n")
    (pages / "index.html").write_text("<html><body><h1>Guests</h1><p>Ada comes at noon.</p></body></html>")
    repository = cloned(place)
    handler = partial(SimpleHTTPRequestHandler, directory=str(pages))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as web, remote_servers(node, python) as remote:
        Thread(target=web.serve_forever, daemon=True).start()
        servers = {**local_servers(node, python, folder, repository), **remote}
        configuration = place / "mcp.json"
        configuration.write_text(json.dumps({"mcpServers": servers}))
        page = f"http://127.0.0.1:{web.server_address[1]}/index.html"
        yield World(configuration, folder, repository, page, tuple(servers))
        web.shutdown()


@dataclass(frozen=True)
class Session:
    """All servers, connected."""

    hub: Hub
    tools: Mapping[str, HubTool]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        return await self.hub.call(self.tools[name].name, dict(arguments))

    async def text(self, name: str, arguments: Mapping[str, Any]) -> str:
        result = await self.call(name, arguments)
        text = "\n".join(part.text for part in result.content if isinstance(part, TextContent))
        assert not result.is_error, text
        return text


@pytest.fixture
async def session(world: World) -> AsyncIterator[Session]:
    async def approve(tool: HubTool, arguments: Mapping[str, Any]) -> bool:
        return True

    # Their programs lie in the checkout, so they would run confined to it.
    options = ConnectionOptions(containment=Containment(unconfined=frozenset(world.names)))
    async with Hub.from_config(str(world.configuration), approve=approve, options=options) as hub:
        tools = {f"{tool.server}/{tool.declaration.name}": tool for tool in await hub.tools()}
        assert hub.failures == {}
        yield Session(hub, tools)


def mcp(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "coretools.cli.main", "mcp", words[0], f"--config={world.configuration}", *words[1:]]
    environment = {**os.environ, "CORETOOLS_UNCONFINED": ";".join(world.names)}
    return subprocess.run(argv, cwd=TREE, env=environment, capture_output=True, text=True, check=False)


async def test_their_tools_are_called(world: World, session: Session) -> None:
    """interoperability-15: text, structured content, files, history, pages; refusals are results."""
    for server in EVERYTHING:
        assert "hello" in await session.text(f"{server}/echo", {"message": "hello"})
        assert "5" in await session.text(f"{server}/get-sum", {"a": 2, "b": 3})
        weather = await session.call(f"{server}/get-structured-content", {"location": "Chicago"})
        assert set(weather.structured_content or {}) == {"temperature", "conditions", "humidity"}
    for server in FASTMCP:
        greeted = await session.call(f"{server}/greet", {"name": "Ada", "times": 2})
        assert greeted.structured_content == {"greetings": ["Hello, Ada"] * 2}
    assert "Hello, Ada" in await session.text("typescript-http/greet", {"name": "Ada"})
    note, new = world.folder / "note.txt", world.folder / "new.txt"
    assert "buy tea" in await session.text("filesystem/read_text_file", {"path": str(note)})
    await session.text("filesystem/write_file", {"path": str(new), "content": "written\n"})
    assert new.read_text() == "written\n"
    ada = {"name": "Ada", "entityType": "guest", "observations": ["likes tea"]}
    await session.text("memory/create_entities", {"entities": [ada]})
    assert "likes tea" in await session.text("memory/read_graph", {})
    history = await session.text("git/git_log", {"repo_path": str(world.repository)})
    assert "greet by name" in history
    assert "Ada comes at noon" in await session.text("fetch/fetch", {"url": world.page})
    outside = await session.call("filesystem/read_text_file", {"path": "/etc/passwd"})
    assert outside.is_error
    not_served = await session.call("git/git_log", {"repo_path": str(world.folder)})
    assert not_served.is_error


CLI = (
    (("read", "everything", "demo://resource/static/document/architecture.md"), "Everything Server"),
    (("read", "fastmcp", "guests://Ada"), "Ada likes tea"),
    (("prompt", "fastmcp-http", "invite", "name=Ada"), "Write an invitation for Ada"),
    (("call", "typescript-http", "greet", "name=Ada", "--yes"), "Hello, Ada"),
)


def test_the_command_line_lists_reads_and_calls(world: World) -> None:
    """interoperability-15: all servers in one table; resources, templates, prompts, a tool over HTTP."""
    table = mcp(world, "list", "--output", "json")
    assert table.returncode == 0, table.stderr
    states = {one["name"]: one["state"] for one in json.loads(table.stdout)["servers"]}
    assert states == dict.fromkeys(world.names, "ready")
    for words, expected in CLI:
        done = mcp(world, *words)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
