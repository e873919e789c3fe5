"""The proxy of one fork server: accepts on a listener that was made in the network namespace of its commands.

A socket stays in the namespace that it was made in, whoever accepts on it. So nothing of the proxy is in the
namespace, and nobody but the commands in it can reach it. Runs on the event loop of the server.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from coretools.egress import http_messages
from coretools.egress.allow_list import AllowList
from coretools.egress.approvals import HostApprovals
from coretools.egress.connection import ConnectionLimits, ProxyConnection
from coretools.egress.connector import Connector
from coretools.egress.refusals import Refusal, RefusalLog

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 128
"""Connections of one namespace at once; each takes two descriptors. npm opens 15, and pip, cargo and go fewer."""

MAX_CONNECTIONS_OF_ALL = 256
"""Connections of all namespaces of a server: half of 1024 descriptors, the usual limit, is left for everything else."""

RETRY_SECONDS = 0.2
"""After an error of accept(2), such as a lack of descriptors."""

_BUSY = Refusal("busy")


@dataclass(slots=True)
class ConnectionSlots:
    """Connections that are left for all proxies of a server."""

    most: int = MAX_CONNECTIONS_OF_ALL
    taken: int = field(default=0, init=False)


class EgressGateway:
    """Opens a proxy for each network namespace; they share the list, the resolver and the limit of connections."""

    def __init__(
        self,
        connector: Connector,
        *,
        limits: ConnectionLimits | None = None,
        approvals: HostApprovals | None = None,
    ) -> None:
        """`approvals` decides for the connector about hosts that are not listed."""
        self.approvals = approvals or HostApprovals()
        self._connector = connector
        self._limits = limits
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
        proxy = EgressProxy(listener, self._connector, limits=self._limits, slots=self._slots)
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
        listener.setblocking(False)
        self.refusals = RefusalLog()
        self._listener = listener
        self._connector = connector
        self._limits = limits or ConnectionLimits()
        self._most = most
        self._slots = slots or ConnectionSlots()
        self._loop = asyncio.get_running_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting = self._loop.create_task(self._accept())
        self._accepting.add_done_callback(lambda _: listener.close())

    @property
    def open_connections(self) -> int:
        """Number of connections now."""
        return len(self._connections)

    @property
    def is_closed(self) -> bool:
        """Whether it accepts no more."""
        return self._accepting.done()

    def close(self) -> None:
        """End all connections soon. May be called from any thread, and more than once."""
        if self._loop.is_closed():
            self._listener.close()
            return
        with suppress(RuntimeError):  # closed meanwhile
            self._loop.call_soon_threadsafe(self._cancel)

    async def aclose(self) -> None:
        """End all connections and wait until they are closed."""
        tasks = [self._accepting, *self._connections]
        self._cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel(self) -> None:
        for task in (self._accepting, *self._connections):
            task.cancel()

    async def _accept(self) -> None:
        while True:
            try:
                client, _ = await self._loop.sock_accept(self._listener)
                await asyncio.sleep(0)  # accepts that succeed at once are no turns of the event loop
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EINVAL):  # closed
                    return
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if len(self._connections) >= self._most or self._slots.taken >= self._slots.most:
                self._turn_away(client)
            else:
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = ProxyConnection(client, self._connector, self._limits, self.refusals.add)
        task = self._loop.create_task(connection.run())
        self._slots.taken += 1
        self._connections.add(task)
        task.add_done_callback(lambda done: self._ended(done, client))

    def _ended(self, task: asyncio.Task[None], client: socket.socket) -> None:
        client.close()  # for a task that was cancelled before it began
        self._connections.discard(task)
        self._slots.taken -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a connection of the network proxy failed", exc_info=error)

    def _turn_away(self, client: socket.socket) -> None:
        """Say so at once: a client that waits for a free connection looks like one that hangs."""
        self.refusals.add(_BUSY)
        with client, suppress(OSError):
            client.send(http_messages.error_response(503, _BUSY.sentence))
