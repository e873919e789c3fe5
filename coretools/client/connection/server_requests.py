"""What servers ask their client for: elicitation, sampling, roots; and the log messages that they send.

A request without a callback is refused, and the server is not told that it could be made.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import mcp_types as types
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext, ElicitationFnT, ListRootsFnT, LoggingFnT, SamplingFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The callbacks of the SDK's client for one server; None refuses."""

    elicitation: ElicitationFnT | None = None
    sampling: SamplingFnT | None = None
    sampling_capabilities: types.SamplingCapability | None = None
    roots: ListRootsFnT | None = None
    log: LoggingFnT | None = None
    log_level: types.LoggingLevel | None = None
    """Minimum log level to request from the server; None requests no log messages."""

    def within(self, pause: Callable[[], AbstractContextManager[None]]) -> "Callbacks":
        """Return the same callbacks, with `pause` around those that wait for a person."""
        elicitation, sampling = self.elicitation, self.sampling

        async def elicit(
            context: ClientRequestContext, params: types.ElicitRequestParams
        ) -> types.ElicitResult | types.ErrorData:
            assert elicitation is not None
            with pause():
                return await elicitation(context, params)

        async def sample(
            context: ClientRequestContext, params: types.CreateMessageRequestParams
        ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
            assert sampling is not None
            with pause():
                return await sampling(context, params)

        return replace(self, elicitation=elicitation and elicit, sampling=sampling and sample)


class ServerRequests(Protocol):
    """Answers the requests of servers."""

    def callbacks(self, server: str) -> Callbacks:
        """Return what answers the server of this name."""
        ...


async def set_log_level(client: Client, callbacks: Callbacks) -> None:
    """Ask a server of the older era for its log messages; the stateless era asks with each request."""
    level = callbacks.log_level
    if level is None or client.server_capabilities.logging is None:
        return
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
        with suppress(MCPError):  # a server that refuses still works
            await client.session.send_request(request, types.EmptyResult)
