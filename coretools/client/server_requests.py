"""What servers ask their client for: elicitation, sampling, roots; and the log messages that they send.

A request without a callback is refused, and the server is not told that it could be made.
"""

from dataclasses import dataclass
from typing import Protocol

import mcp_types as types
from mcp.client.session import ElicitationFnT, ListRootsFnT, LoggingFnT, SamplingFnT


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The callbacks of the SDK's client for one server; None refuses."""

    elicitation: ElicitationFnT | None = None
    sampling: SamplingFnT | None = None
    sampling_capabilities: types.SamplingCapability | None = None
    roots: ListRootsFnT | None = None
    log: LoggingFnT | None = None
    log_level: types.LoggingLevel | None = None
    """What to ask a server of the stateless era for; None for no messages."""


class ServerRequests(Protocol):
    """Answers the requests of servers."""

    def callbacks(self, server: str) -> Callbacks:
        """Return what answers the server of this name."""
        ...
