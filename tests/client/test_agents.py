"""The tools of all servers in a program with a model (docs/specs/client.md)."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from coretools.client.agents import Hub, HubTool
from coretools.client.common.errors import NotApproved, NotTrusted, RefusedByPolicy, SchemaMismatch
from coretools.errors import BadSetting, CannotStart, UnknownTool, Unreachable
from tests.client.peers import misbehaving
from tests.client.remote import echo_server, served
from tests.variables import variables


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "home").mkdir()
    (tmp_path / "project" / ".git").mkdir(parents=True)
    of_others = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME"))
    with variables(HOME=str(tmp_path / "home"), **of_others), chdir(tmp_path / "project"):
        yield tmp_path / "home"


async def test_an_agent_gets_the_tools_of_all_servers_and_calls_them_with_approval(home: Path) -> None:
    """client-20: of a local, a remote and a broken server; what can't be used has a reason."""
    asked: list[tuple[str, Mapping[str, Any]]] = []

    async def approve(tool: HubTool, arguments: Mapping[str, Any]) -> bool:
        asked.append((tool.name, arguments))
        return arguments["text"] != "secret"

    async with served(echo_server().streamable_http_app()) as address:
        servers = {
            "local": misbehaving("ok"),
            "remote": {"type": "http", "url": f"{address}/mcp"},
            "broken": misbehaving("exits"),
            "absent": {"command": "no-such-program"},
            "wrong": {"command": 5},
        }
        (home / "mcp.json").write_text(json.dumps({"servers": servers}))
        (home.parent / "project" / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": misbehaving("ok")}}))
        async with Hub.from_config(approve=approve) as hub:
            tools = {tool.name: tool for tool in await hub.tools()}
            assert list(tools) == ["local__echo", "remote__echo"]
            definition = tools["local__echo"].for_openai()["function"]
            assert definition["parameters"] == tools["local__echo"].for_anthropic()["input_schema"]
            assert definition["parameters"]["required"] == ["text"]
            for name in tools:
                result = await hub.call(name, {"text": "hello"})
                assert result.content[0].text == "hello"  # type: ignore[union-attr]
            with pytest.raises(NotApproved):
                await hub.call("local__echo", {"text": "secret"})
            with pytest.raises(SchemaMismatch, match="server 'local': tool 'echo': text: is missing"):
                await hub.call("local__echo", {})
            with pytest.raises(UnknownTool):
                await hub.call("echo", {})
    assert asked == [(name, {"text": "hello"}) for name in tools] + [("local__echo", {"text": "secret"})]
    kinds = {name: type(error) for name, error in hub.failures.items()}
    assert kinds == {"theirs": NotTrusted, "wrong": BadSetting, "broken": Unreachable, "absent": CannotStart}


async def test_without_somebody_to_ask_nothing_is_called(home: Path) -> None:
    """client-20: names are unique and such that the APIs of models take them."""
    servers = {"a b": misbehaving("ok"), "a_b": misbehaving("escapes"), "x" * 128: misbehaving("ok")}
    (home / "mcp.json").write_text(json.dumps({"servers": servers}))
    async with Hub.from_config(str(home / "mcp.json")) as hub:
        names = [tool.name for tool in await hub.tools()]
        assert len(set(names)) == 4
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
        assert "a_b__echo" in names
        with pytest.raises(NotApproved, match="'a_b__echo' was not approved"):
            await hub.call("a_b__echo", {"text": "x"})


async def test_a_policy_decides_about_the_calls_of_a_program(home: Path) -> None:
    """pipelines-4: before its function is asked, and whatever that says."""
    (home / "mcp.json").write_text(json.dumps({"servers": {"a": misbehaving("ok")}}))
    rules = '[[rule]]\nserver = "a"\ntool = "echo"\nverdict = "allow"\narguments = { text = "h*" }\n'
    (home / "policy.toml").write_text(rules)

    async def approve(tool: HubTool, arguments: Mapping[str, Any]) -> bool:
        return True

    async with Hub.from_config(policy=str(home / "policy.toml")) as hub:
        assert not (await hub.call("a__echo", {"text": "hello"})).is_error
    async with Hub.from_config(policy=str(home / "policy.toml"), approve=approve) as hub:
        with pytest.raises(RefusedByPolicy, match=r"no rule of .*policy.toml allows it"):
            await hub.call("a__echo", {"text": "bye"})
