"""What a client learns that can't be asked: in the handshake era a tool's error, at 2026-07-28 one of the request."""

from collections.abc import Awaitable
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError

from coretools.protocol.results import ERROR_KEY


async def unasked(era: str, call: Awaitable[Any], capability: str = "elicitation", kind: str = "answer-needed") -> str:
    """The sentence of the refusal; `kind` is its kind in the handshake era."""
    if era == "legacy":
        result = await call
        assert result.is_error
        assert (result.meta or {})[ERROR_KEY] == kind
        return str(result.content[0].text)
    with pytest.raises(MCPError) as refused:
        await call
    assert refused.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refused.value.data == {"requiredCapabilities": {capability: {}}}
    return str(refused.value)
