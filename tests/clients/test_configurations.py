"""The configurations in docs/clients, started exactly as written (docs/specs/interoperability.md)."""

import json
import re
import shlex
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from coretools.client.installation.clients import CLIENTS
from tests.checkout import TREE
from tests.clients.conftest import without

CONFIGURATIONS = TREE / "docs" / "clients"
ENVIRONMENT = "/home/you/.coretools"
PROJECT = "/path/to/project"

KEYS = {"claude-desktop.json": "mcpServers", "cursor.json": "mcpServers", "vs-code.json": "servers"}
"""The key under which each client looks for its servers."""


def entry(name: str, text: str) -> dict[str, Any]:
    """The command and arguments that the client would start."""
    if name == "claude-code.sh":
        add, line = text.split(" -- ")
        assert add == "claude mcp add coretools"
        command, *args = shlex.split(line)
        return {"command": command, "args": args}
    configuration = json.loads(text)
    assert list(configuration) == [KEYS[name]]
    assert list(configuration[KEYS[name]]) == ["coretools"]
    server: dict[str, Any] = configuration[KEYS[name]]["coretools"]
    assert server.pop("type", "stdio") == "stdio"
    return server


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The environment, as after the README's commands, whatever this interpreter's is called."""
    if not Path(sysconfig.get_path("scripts"), "coretools-workstation").exists():
        without("console scripts: coretools is not installed for this interpreter")
    environment = tmp_path / "environment"
    environment.symlink_to(sys.prefix, target_is_directory=True)
    return environment


@pytest.mark.parametrize("name", [*KEYS, "claude-code.sh"])
def test_the_page_of_the_client_shows_its_configuration_word_for_word(name: str) -> None:
    """interoperability-4."""
    file = CONFIGURATIONS / name
    assert f"\n{file.read_text()}```" in file.with_suffix(".md").read_text()


async def test_each_configuration_starts_the_server_as_written(environment: Path, clone: Path, tmp_path: Path) -> None:
    """interoperability-4: with its two placeholders replaced and nothing else, from another working directory.

    What several configurations start with the same words is started once.
    """
    started: list[dict[str, Any]] = []
    for name in (*KEYS, "claude-code.sh"):
        text = (CONFIGURATIONS / name).read_text()
        one = entry(name, text.replace(ENVIRONMENT, str(environment)).replace(PROJECT, str(clone)))
        if one in started:
            continue
        started.append(one)
        async with Client(StdioServerParameters(**one, cwd=tmp_path)) as client:
            tools = await client.list_tools()
            result = await client.call_tool("git_current_branch", {})
        assert len(tools.tools) > 1, name
        assert not result.is_error, name
        assert "main" in str(result.content), name


def test_no_configuration_is_left_untested() -> None:
    """interoperability-4."""
    assert {path.name for path in CONFIGURATIONS.iterdir() if path.suffix != ".md"} == {*KEYS, "claude-code.sh"}


def test_the_index_of_the_clients_names_each_that_can_be_configured() -> None:
    """install-1: by its title and its name on the line."""
    index = (CONFIGURATIONS / "README.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| `([^|`]+)` \|", index, re.MULTILINE)
    assert rows == [(one.title, one.name) for one in CLIENTS]
    assert [
        one.name
        for one in CLIENTS
        if f"`{one.name}`" not in (TREE / "README.md").read_text() and one.name != "claude-code"
    ] == []
