"""What holds for all connections of a hub, and the states that a connection has."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from mcp.client.extension import ClientExtension

from coretools.client.configuration.launch import Launch, RemoteLaunch
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.connection.remote_transport import RETRY_SECONDS, RemoteCredentials
from coretools.client.connection.server_log import LogDirectory
from coretools.client.connection.server_requests import ServerRequests
from coretools.client.containment.containment import NO_CHOICES, Containment

CONNECT_SECONDS = 30.0
"""Until a server must have answered; the configuration or an option may say otherwise."""

CALL_SECONDS = 300.0
"""For one call."""

RECONNECT_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Pauses before further attempts, for programs that keep their connections."""

STEADY_SECONDS = 60.0
"""A connection that lasted so long has the full number of attempts again when it is lost."""


class State(StrEnum):
    """State of a connection."""

    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


Authorize = Callable[[ServerEntry, RemoteLaunch], RemoteCredentials | None]
"""Gives the credentials for a remote server, beside the headers of its entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """What holds for all connections; None leaves it to the configuration, or the usual limit."""

    connect_seconds: float | None = None
    call_seconds: float | None = None
    retry_seconds: tuple[float, ...] = RETRY_SECONDS
    reconnect_seconds: tuple[float, ...] = ()
    """Pauses before further attempts to connect to a server that was ready and is lost; then it has failed."""
    watches_lists: bool = False
    """Subscribe to changes of lists: for connections that last."""
    logs: LogDirectory | None = None
    """Keeps what servers log; None for nothing."""
    server_requests: ServerRequests | None = None
    """Answers what servers ask for; None refuses."""
    authorization: Authorize | None = None
    """None takes those that are stored or configured."""
    prepare_launch: Callable[[ServerEntry, Launch], Launch] | None = None
    """Completes how a server is started."""
    containment: Containment = NO_CHOICES
    """Which local servers are confined, and how."""
    extensions: tuple[ClientExtension, ...] = ()
    """Extensions of the protocol that are declared to servers."""
    on_tools_changed: Callable[[str], None] | None = None
    """Called with the name of a server that is ready, or says that its tools have changed."""
