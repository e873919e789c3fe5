"""Ports of the commands' loopback that the user's browser reaches on the loopback of the machine.

The other direction of the proxy: the server listens here, and connects each client with the port there.
"""

import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial

from coretools.egress.acceptor import Acceptor, ConnectionSlots
from coretools.egress.peer import Peer, Relay

logger = logging.getLogger(__name__)

IDLE_SECONDS = 24 * 3600.0
"""Without a byte in either direction: a page that waits for changes is silent for hours."""

HALF_CLOSED_SECONDS = 60.0

MAX_CONNECTIONS = 64
"""Connections of all ports at once. A page opens 6, and one more to be told of changes; together with those of the
proxy they leave a third of 1024 descriptors, the usual limit."""

LOOPBACK = ("127.0.0.1", "::1")
"""Browsers try both for localhost."""

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of no seconds: closing the socket resets the connection (socket(7))."""

Connect = Callable[[int], Awaitable[socket.socket | None]]
"""Connects to a port of the commands' loopback; None if nothing listens there."""


class ExposedPorts:
    """Listens on ports of loopback, as long as the server runs. `aclose` must be called."""

    def __init__(self, ports: Iterable[int], connect: Connect) -> None:
        self._connect = connect
        self._closed_ports = list(ports)
        self._acceptors: list[Acceptor] = []
        self._slots = ConnectionSlots(most=MAX_CONNECTIONS)
        self._reported: set[int] = set()

    def open(self) -> None:
        """Listen on the ports that are not open yet; one that another program has is tried again the next time."""
        for port in tuple(self._closed_ports):
            try:
                self._listen(port)
                self._closed_ports.remove(port)
            except OSError as error:
                if port not in self._reported:
                    logger.warning("port %d is not exposed: %s", port, error.strerror)
                self._reported.add(port)

    async def aclose(self) -> None:
        """Close the listeners and all connections."""
        for one in self._acceptors:
            await one.aclose()

    def _listen(self, port: int) -> None:
        """Listen on IPv4, and on IPv6 where there is one.

        Raises:
            OSError: the port is taken.
        """
        listeners = [socket.create_server((LOOPBACK[0], port))]
        with suppress(OSError):
            listeners.append(socket.create_server((LOOPBACK[1], port), family=socket.AF_INET6))
        for listener in listeners:
            serve = partial(self._pass_on, port)
            self._acceptors.append(Acceptor(listener, serve, turn_away=socket.socket.close, slots=self._slots))

    async def _pass_on(self, port: int, client: socket.socket) -> None:
        """Connect a client with the port of the commands. Where nothing listens its connection is reset."""
        with client:
            server = await self._connect(port)
            if server is None:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                return
            with server, suppress(OSError):
                relay = Relay(
                    Peer(client), Peer(server), idle_seconds=IDLE_SECONDS, half_closed_seconds=HALF_CLOSED_SECONDS
                )
                await relay.run()
