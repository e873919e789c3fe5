"""The proxy of one fork server: accepts on a listener that was made in the network namespace of its commands.

A socket stays in the namespace that it was made in, whoever accepts on it. So nothing of the proxy is in the
namespace, and nobody but the commands in it can reach it. Runs on the event loop of the server.
"""

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

from coretools.egress import http_messages
from coretools.egress.acceptor import MAX_CONNECTIONS, Acceptor, ConnectionSlots
from coretools.egress.allow_list import AllowList
from coretools.egress.approvals import HostApprovals
from coretools.egress.blocked_connections import Refusal, RefusalLog
from coretools.egress.connection import ConnectionLimits, ProxyConnection
from coretools.egress.connector import Connector

_BUSY = Refusal("busy")


class EgressGateway:
    """Opens a proxy for each network namespace; they share the list, the resolver and the limit of connections."""

    def __init__(self, connector: Connector, *, approvals: HostApprovals | None = None) -> None:
        """`approvals` decides for the connector about hosts that are not listed."""
        self.approvals = approvals or HostApprovals()
        self._connector = connector
        self._slots = ConnectionSlots()
        self._proxies: list[EgressProxy] = []

    @classmethod
    def of(cls, entries: Iterable[str]) -> Self:
        """Return a gateway to the listed hosts.

        Raises:
            ValueError: an entry is not valid.
        """
        approvals = HostApprovals()
        return cls(Connector(AllowList.parse(entries), decide=approvals.decide), approvals=approvals)

    def serve(self, listener: socket.socket) -> "EgressProxy":
        """Serve a listener from now on, on the running event loop; the proxy takes it over."""
        self._proxies = [proxy for proxy in self._proxies if not proxy.is_closed]
        proxy = EgressProxy(listener, self._connector, slots=self._slots)
        self._proxies.append(proxy)
        return proxy

    async def aclose(self) -> None:
        """Close every proxy."""
        for proxy in self._proxies:
            await proxy.aclose()


class EgressProxy:
    """Serves the clients of one listener. Create it on the event loop; `close` or `aclose` must be called."""

    def __init__(
        self,
        listener: socket.socket,
        connector: Connector,
        *,
        limits: ConnectionLimits | None = None,
        most: int = MAX_CONNECTIONS,
        slots: ConnectionSlots | None = None,
    ) -> None:
        """Take over the listener and start to accept."""
        self.refusals = RefusalLog()
        self._connector = connector
        self._limits = limits or ConnectionLimits()
        self._acceptor = Acceptor(listener, self._serve, turn_away=self._turn_away, most=most, slots=slots)

    @property
    def open_connections(self) -> int:
        """Number of connections now."""
        return self._acceptor.open_connections

    @property
    def is_closed(self) -> bool:
        """Whether it accepts no more."""
        return self._acceptor.is_closed

    def close(self) -> None:
        """End all connections soon. May be called from any thread, and more than once."""
        self._acceptor.close()

    async def aclose(self) -> None:
        """End all connections and wait until they are closed."""
        await self._acceptor.aclose()

    async def _serve(self, client: socket.socket) -> None:
        await ProxyConnection(client, self._connector, self._limits, self.refusals.add).run()

    def _turn_away(self, client: socket.socket) -> None:
        """Say so at once: a client that waits for a free connection looks like one that hangs."""
        self.refusals.add(_BUSY)
        with client, suppress(OSError):
            client.send(http_messages.error_response(503, _BUSY.sentence))
