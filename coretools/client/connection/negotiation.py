"""Find out which era of the protocol a server speaks, without waiting for a timeout, and begin the session.

The stateless era begins with `server/discover`, the older one with `initialize`. A server of the older era answers an
unknown method with an error, or, against JSON-RPC, not at all; the SDK then waits ten seconds. Here a `ping` follows
at once: a server that answers it but not the first request has no answer to the first one. Messages are handled before
the SDK's session exists.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from coretools.client.common.failures import first_leaf
from coretools.client.connection.stdio import Streams
from coretools.distribution import VERSION

SILENCE_SECONDS = 10.0
"""Without any answer the older handshake is tried: a server may ignore everything before it."""

HTTP_SECONDS = 2.0
"""The same over HTTP, where a request without an answer does not hold up the next one."""

PING_SECONDS = 1.0
"""For the answer to `server/discover` after that to the `ping`: a server may answer out of order."""

_DISCOVER = "coretools-discover"
_PING = "coretools-ping"

CLIENT_INFO = types.Implementation(name="coretools", version=VERSION)


@dataclass(frozen=True, slots=True)
class Era:
    """How to begin the session: the `mode` of the SDK's client, and the answer that it would ask for."""

    mode: str
    discovered: types.DiscoverResult | None = None
    is_guess: bool = False
    """Nothing was answered: a slow server may still turn out to be of the stateless era."""


LEGACY = Era("legacy")
MODERN = Era(LATEST_MODERN_VERSION)
AUTOMATIC = Era("auto")

NewClient = Callable[[AbstractAsyncContextManager[Any], Era], Client]
"""Makes the SDK's client for streams; entering it does the handshake."""


async def probe_http(streams: Any, patience: float | None, idle_seconds: Callable[[], float]) -> Era:
    """Ask a remote server for its era, with no more than one request; None waits as long as the deadline allows.

    The server has had `idle_seconds` to answer: before that the request waited for a token.

    Raises:
        EndOfStream, ClosedResourceError, BrokenResourceError: the connection was lost.
    """
    reading, writing = streams
    headers = {"mcp-protocol-version": LATEST_MODERN_VERSION, "mcp-method": "server/discover"}
    await writing.send(SessionMessage(_discover().message, ClientMessageMetadata(headers=headers)))
    while True:
        with anyio.move_on_after(patience):
            return _era(await _first_answer(reading))
        if patience is None or idle_seconds() >= patience:
            return Era("legacy", is_guess=True)


async def _first_answer(reading: Any) -> types.JSONRPCResponse | types.JSONRPCError:
    while True:
        item = await reading.receive()
        if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            return item.message


async def probe(streams: Streams, patience: float | None = SILENCE_SECONDS) -> Era:
    """Ask a local server for its era; None waits for the first answer as long as the deadline allows.

    Raises:
        EndOfStream, ClosedResourceError, BrokenResourceError: it ended, which some do on an unknown first request.
    """
    reading, writing = streams
    await writing.send(_discover())
    await writing.send(_request(_PING, "ping", None))
    has_ponged = False
    with anyio.move_on_after(patience) as waiting:
        while True:
            answer = (await reading.receive()).message  # type: ignore[union-attr]  # our transport sends no exceptions
            if not isinstance(answer, types.JSONRPCResponse | types.JSONRPCError):
                continue
            if answer.id == _DISCOVER:
                return _era(answer)
            if answer.id == _PING:
                waiting.deadline = anyio.current_time() + PING_SECONDS
                has_ponged = True
    return Era("legacy", is_guess=not has_ponged)


async def begun(
    stack: AsyncExitStack, new_client: NewClient, streams: AbstractAsyncContextManager[Any], era: Era
) -> Client | None:
    """Do the handshake; return None if the era was guessed and the server says that it is of the stateless one."""
    try:
        return await stack.enter_async_context(new_client(streams, era))
    except* MCPError as group:
        error = first_leaf(group)
        # The latter: `initialize` has none of the headers that a request of the stateless era needs.
        is_modern = isinstance(error, MCPError) and error.code in (
            types.UNSUPPORTED_PROTOCOL_VERSION,
            types.HEADER_MISMATCH,
        )
        if not (era.is_guess and is_modern):
            raise
    return None


def _era(answer: types.JSONRPCResponse | types.JSONRPCError) -> Era:
    if isinstance(answer, types.JSONRPCError):
        # The SDK asks once more with a revision that the server names.
        return AUTOMATIC if answer.error.code == types.UNSUPPORTED_PROTOCOL_VERSION else LEGACY
    try:
        discovered = types.DiscoverResult.model_validate(answer.result)
    except ValidationError:
        return LEGACY
    shared = [version for version in MODERN_PROTOCOL_VERSIONS if version in discovered.supported_versions]
    return Era(shared[-1], discovered) if shared else LEGACY


def _discover() -> SessionMessage:
    params = {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": LATEST_MODERN_VERSION,
            "io.modelcontextprotocol/clientInfo": CLIENT_INFO.model_dump(by_alias=True, mode="json", exclude_none=True),
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    }
    return _request(_DISCOVER, "server/discover", params)


def _request(name: str, method: str, params: dict[str, Any] | None) -> SessionMessage:
    return SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=name, method=method, params=params))
