"""The servers of a run: each is connected when a step first names it, and stays connected."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.shared.dispatcher import ProgressFnT

from coretools.client.approval.decisions import server_digest
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.connection.options import State
from coretools.client.connection.server_connection import Connection
from coretools.errors import CoreError
from coretools.pipelines.runner import Caller

OWN = "coretools"
"""The name for our own tools, in this process; an entry of this name can't be used in a script."""

OpenServer = Callable[[ServerEntry], AbstractAsyncContextManager[Mapping[str, Connection]]]
OpenOwn = Callable[[], AbstractAsyncContextManager[Caller]]


class ConnectedServer:
    """A `Caller` for a connection; its tools are fetched once."""

    def __init__(self, connection: Connection, environment: Mapping[str, str]) -> None:
        self.connection = connection
        self.name = connection.name
        self.identity = server_digest(connection.entry, environment)
        self._tools: Sequence[types.Tool] | None = None

    async def tools(self) -> Sequence[types.Tool]:
        """Return its tools."""
        if self._tools is None:
            self._tools = await self.connection.tools()
        return self._tools

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: ProgressFnT | None = None
    ) -> types.CallToolResult:
        """Call a tool."""
        return await self.connection.call(tool, arguments, on_progress)


class _Holder:
    """A server that is kept open by a task of its own, so that servers end in any order."""

    def __init__(self) -> None:
        self.caller: Caller | None = None
        self.error: CoreError | None = None
        self.opened = anyio.Event()
        self.closing = anyio.Event()
        self.closed = anyio.Event()

    async def is_lost(self) -> bool:
        """Whether another connection is needed, once it is known whether this one is there."""
        await self.opened.wait()
        if self.error is not None or self.caller is None:
            return True
        if not isinstance(self.caller, ConnectedServer):
            return False
        return await self.caller.connection.wait_settled() is not State.READY

    async def hold(self, opening: AbstractAsyncContextManager[Caller]) -> None:
        """Open the server, and keep it open until `closing` is set."""
        try:
            async with opening as self.caller:
                self.opened.set()
                # Shielded: a cancelled call still needs the connection to notify the server.
                with anyio.CancelScope(shield=True):
                    await self.closing.wait()
        except CoreError as error:
            self.error = error
        finally:
            self.opened.set()
            self.closed.set()


class ServerPool:
    """The servers of one run. Use `open_pool`."""

    def __init__(
        self,
        tasks: TaskGroup,
        find: Callable[[str], ServerEntry],
        open_server: OpenServer,
        open_own: OpenOwn | None,
        environment: Mapping[str, str],
    ) -> None:
        self._tasks = tasks
        self._find = find
        self._open_server = open_server
        self._open_own = open_own
        self._environment = environment
        self._holders: dict[str, _Holder] = {}

    async def connected(self, name: str) -> Caller:
        """Return a server, connected; again, if its connection was lost.

        Raises:
            CoreError: it is not configured, not trusted, or can't be used.
        """
        holder = self._holders.get(name)
        if holder is not None and await holder.is_lost():
            holder.closing.set()
            await holder.closed.wait()
            holder = None
        holder = holder or self._open(name)
        await holder.opened.wait()
        if holder.error is not None or holder.caller is None:
            raise holder.error or CoreError(f"server {name!r} could not be opened")
        if isinstance(holder.caller, ConnectedServer):
            await holder.caller.connection.wait_settled()
        return holder.caller

    def _open(self, name: str) -> _Holder:
        own = self._open_own if name == OWN else None
        opening = self._opened(self._find(name)) if own is None else own()
        holder = self._holders[name] = _Holder()
        self._tasks.start_soon(holder.hold, opening)
        return holder

    def remarks(self) -> list[tuple[str, str]]:
        """Return what local servers wrote to standard output beside their messages, each with the server's name."""
        callers = [holder.caller for holder in self._holders.values()]
        return [
            (caller.name, text)
            for caller in callers
            if isinstance(caller, ConnectedServer)
            for text in caller.connection.remarks()
        ]

    def close(self) -> None:
        """Let all servers end."""
        for holder in self._holders.values():
            holder.closing.set()

    @asynccontextmanager
    async def _opened(self, entry: ServerEntry) -> AsyncIterator[Caller]:
        async with self._open_server(entry) as connections:
            yield ConnectedServer(connections[entry.name], self._environment)


@asynccontextmanager
async def open_pool(
    find: Callable[[str], ServerEntry],
    open_server: OpenServer,
    open_own: OpenOwn | None,
    environment: Mapping[str, str],
) -> AsyncIterator[ServerPool]:
    """Yield an empty pool. `find` returns the entry of a name if it may be started.

    At the end every server is closed, and no process that a local one started is left.
    """
    failure: CoreError | None = None
    async with anyio.create_task_group() as tasks:
        pool = ServerPool(tasks, find, open_server, open_own, environment)
        try:
            yield pool
        except CoreError as error:  # raised below, where it does not become a group
            failure = error
        finally:
            pool.close()
    if failure is not None:
        raise failure
