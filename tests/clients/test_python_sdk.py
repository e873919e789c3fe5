"""The Python SDK's client against the workstation server (docs/specs/interoperability.md)."""

from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from tests.checkout import TREE
from tests.clients.calls import CALLS, COMMAND, REFUSED, SETS, WORKSTATION
from tests.variables import NO_LOGIN_SHELL


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def workstation(root: Path) -> StdioServerParameters:
    return StdioServerParameters(command=COMMAND, args=[*WORKSTATION, str(root)], env=NO_LOGIN_SHELL, cwd=TREE)


def test_every_tool_set_is_called() -> None:
    """interoperability-1: the list of calls covers each set."""
    assert {call.tool_set for call in CALLS} == SETS


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_the_python_client_lists_the_tools_and_calls_each_set(clone: Path, mode: str, version: str) -> None:
    """interoperability-1, interoperability-3: over stdio, in both eras."""
    async with Client(workstation(clone), mode=mode) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        results = [await client.call_tool(call.name, call.arguments) for call in (*CALLS, REFUSED)]
        spoken = client.protocol_version
    assert spoken == version
    assert {call.name for call in CALLS} <= listed
    for call, result in zip(CALLS, results, strict=False):
        assert not result.is_error, text_of(result)
        assert call.expected in text_of(result)
    assert results[-1].is_error
    assert REFUSED.expected in text_of(results[-1])
