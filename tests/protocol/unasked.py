"""The error for a client that cannot be asked: of the tool in the handshake era, of the request at 2026-07-28."""

from collections.abc import Awaitable
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError

from coretools.protocol.results import ERROR_KEY


async def unasked(era: str, call: Awaitable[Any], capability: str = "elicitation", kind: str = "answer-needed") -> str:
    """The message of the refusal; `kind` is its kind in the handshake era."""
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
