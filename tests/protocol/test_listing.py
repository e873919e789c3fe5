"""What a command can learn about its client (docs/specs/interoperability.md)."""

from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClientExtension

from coretools.errors import CapabilityMissing
from coretools.hosting.serve import build
from coretools.operations.call import Call, SilentCall
from coretools.operations.declare import Effect, tool
from coretools.operations.registry import Registry
from coretools.protocol.extensions import has_capability

EXTENSION = "org.example/extension"


class Curious:
    @tool(Effect.READ)
    async def look(self, capability: str, call: Call) -> str:
        """Say whether the client has it."""
        return str(call.has_capability(capability))

    @tool(Effect.READ)
    async def need(self, capability: str, call: Call) -> str:
        """Do nothing without it."""
        if not call.has_capability(capability):
            raise CapabilityMissing(capability)
        return "thanks"


class Extended(ClientExtension):
    identifier = EXTENSION


async def think(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    return types.CreateMessageResult(role="assistant", model="m", content=types.TextContent(type="text", text="-"))


def client(mode: str, **given: Any) -> Client:
    registry = Registry()
    registry.add_set("curious", Curious())
    return Client(build(registry), mode=mode, **given)  # type: ignore[arg-type]  # one of its modes


@pytest.mark.parametrize(
    ("capability", "able", "unable"),
    [
        ("sampling", "True", "False"),
        ("elicitation", "False", "False"),
        (EXTENSION, "True", "False"),
        ("model_fields", "False", "False"),
        ("", "False", "False"),
    ],
)
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_command_sees_what_its_client_declared(mode: str, capability: str, able: str, unable: str) -> None:
    """interoperability-11: a capability, or an extension; unknown ones are absent."""
    for given, expected in (({"sampling_callback": think, "extensions": [Extended()]}, able), ({}, unable)):
        async with client(mode, **given) as connected:
            result = await connected.call_tool("look", {"capability": capability})
        assert result.content == [types.TextContent(type="text", text=expected)]


@pytest.mark.parametrize(
    ("capability", "needed"),
    [("sampling", {"sampling": {}}), (EXTENSION, {"extensions": {EXTENSION: {}}})],
)
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_missing_capability_is_named(mode: str, capability: str, needed: dict[str, Any]) -> None:
    """interoperability-11: in the protocol's form, so that the client knows what to declare."""
    async with client(mode) as connected:
        with pytest.raises(MCPError) as refused:
            await connected.call_tool("need", {"capability": capability})
    assert refused.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refused.value.error.data == {"requiredCapabilities": needed}


def test_without_a_client_there_are_no_capabilities() -> None:
    """interoperability-11: nor for a client that declared none."""
    assert not SilentCall().has_capability("sampling")
    assert not has_capability(None, "sampling")
