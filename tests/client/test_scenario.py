"""What the client is for, from the configuration to a program with a model (docs/specs/client.md)."""

import json
import sys
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from coretools.client.agents import Hub, HubTool
from coretools.client.connection.options import State
from tests.checkout import TREE
from tests.cli.terminal import terminal
from tests.client.peers import misbehaving
from tests.client.remote import OnlyOld, echo_server, served
from tests.variables import variables

COMMAND = ("-m", "coretools.cli.main", "mcp")


async def test_from_the_configuration_to_an_agent_and_a_changed_configuration(tmp_path: Path) -> None:
    """client-10, client-15, client-17, client-20, client-21: a local, a remote and a broken server."""
    file = tmp_path / ".config" / "coretools" / "mcp.json"
    file.parent.mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir(parents=True)
    names = {"HOME": str(tmp_path), "PYTHONPATH": str(TREE), "XDG_CONFIG_HOME": None, "XDG_STATE_HOME": None}
    async with (
        served(echo_server().streamable_http_app()) as stateless,
        served(OnlyOld(echo_server().streamable_http_app())) as old,
    ):
        servers: dict[str, Any] = {
            "local": misbehaving("ok"),
            "remote": {"type": "http", "url": f"{stateless}/mcp"},
            "old-remote": {"url": f"{old}/mcp"},
            "broken": misbehaving("exits"),
        }
        file.write_text(json.dumps({"servers": servers}))
        with variables(**names, XDG_RUNTIME_DIR=None, CODEX_HOME=None), chdir(tmp_path / "project"):
            await see_the_table(str(file))
            await to_thread.run_sync(approve_at_a_terminal, tmp_path)
            await hand_the_tools_to_an_agent(file, servers)


async def see_the_table(file: str) -> None:
    listed = await anyio.run_process([sys.executable, *COMMAND, "list"])
    heading, *rows = listed.stdout.decode().splitlines()
    assert heading.split() == ["SERVER", "STATE", "KIND", "TOOLS", "FILE", "REASON"]
    assert [row.split()[:5] for row in rows[:3]] == [
        ["local", "ready", "stdio", "1", file],
        ["remote", "ready", "http", "1", file],
        ["old-remote", "ready", "any-remote", "1", file],
    ]
    assert rows[3].split()[:4] == ["broken", "failed", "stdio", file]
    assert "it ended with exit code 4; its last words on standard error: no API key" in rows[3]


def approve_at_a_terminal(home: Path) -> None:
    """Call the tool of a remote server once, after its arguments were shown."""
    with terminal(*COMMAND, "call", "remote", "echo", "text=hello", cwd=home / "project") as person:
        assert 'remote: echo\r\n  text = "hello"' in person.wait_for("Call it?")
        person.type("once\n")
        assert person.end() == 0
        assert person.output.rstrip().endswith("hello")


async def hand_the_tools_to_an_agent(file: Path, servers: dict[str, Any]) -> None:
    asked: list[str] = []

    async def approve(tool: HubTool, arguments: Mapping[str, Any]) -> bool:
        asked.append(f"{tool.name} {arguments}")
        return True

    async with Hub.from_config(approve=approve) as hub:
        tools = [tool.for_anthropic() for tool in await hub.tools()]
        assert [tool["name"] for tool in tools] == ["local__echo", "remote__echo", "old-remote__echo"]
        for tool in tools:
            result = await hub.call(tool["name"], {"text": "hello"})
            assert result.content[0].text == "hello"  # type: ignore[union-attr]
        assert asked == [f"{tool['name']} {{'text': 'hello'}}" for tool in tools]
        assert "it ended with exit code 4" in str(hub.failures["broken"])
        changed = {"remote": servers["remote"], "broken": misbehaving("ok"), "new": misbehaving("fails")}
        await anyio.Path(file).write_text(json.dumps({"servers": changed}))
        assert await hub.refresh() == {
            "local": "stopped",
            "old-remote": "stopped",
            "remote": "kept",
            "broken": "restarted",
            "new": "started",
        }
        assert hub.states() == dict.fromkeys(("remote", "broken", "new"), State.READY)
        assert {tool.name for tool in await hub.tools()} == {"remote__echo", "broken__echo", "new__echo"}
        assert not (await hub.call("broken__echo", {"text": "repaired"})).is_error
