"""Accepts connections on a listener and serves each in a task of its own, up to a limit."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
"""After an error of accept(2), such as a lack of descriptors."""

MAX_CONNECTIONS = 128
"""Connections of one listener at once; each takes two descriptors. npm opens 15, and pip, cargo and go fewer."""

MAX_CONNECTIONS_OF_ALL = 256
"""Connections of all listeners of a server: half of 1024 descriptors, the usual limit, is left for everything else."""

Serve = Callable[[socket.socket], Coroutine[None, None, None]]
"""Serves one client; its socket is closed afterwards."""


@dataclass(slots=True)
class ConnectionSlots:
    """Connections that are left for all listeners of a server."""

    most: int = MAX_CONNECTIONS_OF_ALL
    taken: int = field(default=0, init=False)


class Acceptor:
    """Serves the clients of one listener. Create it on the event loop; `close` or `aclose` must be called."""

    def __init__(
        self,
        listener: socket.socket,
        serve: Serve,
        *,
        turn_away: Callable[[socket.socket], None],
        most: int = MAX_CONNECTIONS,
        slots: ConnectionSlots | None = None,
    ) -> None:
        """Take over the listener and start to accept. `turn_away` gets the clients beyond the limits."""
        listener.setblocking(False)
        self._listener = listener
        self._serve = serve
        self._turn_away = turn_away
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
                self._start(client)

    def _start(self, client: socket.socket) -> None:
        with suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._serve(client))
        self._slots.taken += 1
        self._connections.add(task)
        task.add_done_callback(lambda done: self._ended(done, client))

    def _ended(self, task: asyncio.Task[None], client: socket.socket) -> None:
        client.close()  # for a task that was cancelled before it began
        self._connections.discard(task)
        self._slots.taken -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a connection to or from commands failed", exc_info=error)
