"""All connections of one process: started together, each on its own, and ended together."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Literal

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from coretools.client.approval.decisions import launch_digest
from coretools.client.common.failures import first_leaf
from coretools.client.configuration.launch import Launch, RemoteLaunch, launch_of
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.connection.options import ConnectionOptions
from coretools.client.connection.remote_transport import RemoteCredentials
from coretools.client.connection.server_connection import Connection
from coretools.client.connection.stdio import ChildTracker
from coretools.errors import CoreError

Change = Literal["started", "restarted", "stopped", "kept"]
"""What a refresh did with a server."""


class Connections(Mapping[str, Connection]):
    """The connections by name; each can be started, stopped and restarted on its own."""

    def __init__(
        self,
        environment: Mapping[str, str],
        inputs: Mapping[str, str],
        options: ConnectionOptions,
        tracker: ChildTracker,
        tasks: TaskGroup,
    ) -> None:
        """`environment` and `inputs` give variables their values; `tasks` runs the connections."""
        self._environment = environment
        self._inputs = inputs
        self.options = options
        self._tasks = tasks
        self._tracker = tracker
        self._connections: dict[str, Connection] = {}
        self._digests: dict[str, str] = {}
        self._changing = anyio.Lock()  # of two starts of a name the second waits for the first

    def __getitem__(self, name: str) -> Connection:
        return self._connections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._connections))

    def __len__(self) -> int:
        return len(self._connections)

    async def start(self, entry: ServerEntry, launch: Launch | None = None) -> Connection:
        """Connect to a server, not yet settled; one of this name that runs is stopped first.

        `launch` replaces what the entry says: the server runs in the background already.
        """
        start = partial(launch_of, entry, self._environment, self._inputs) if launch is None else lambda: launch
        return await self.start_as(entry.name, entry, start, self.options)

    async def start_as(
        self, key: str, entry: ServerEntry, launch: Callable[[], Launch], options: ConnectionOptions
    ) -> Connection:
        """Connect to a server under a name of its own."""
        async with self._changing:
            await self._stop(key)
            connection = Connection(entry, launch, self._tracker, options)
            self._connections[key] = connection
            self._digests[key] = launch_digest(entry, self._environment)
            self._tasks.start_soon(connection.run)
        return connection

    async def stop(self, name: str) -> None:
        """End a connection and its server, if there is one; it stays in the table as stopped."""
        async with self._changing:
            await self._stop(name)

    async def _stop(self, name: str) -> None:
        connection = self._connections.get(name)
        if connection is not None:
            connection.stop()
            await connection.wait_ended()

    async def restart(self, name: str) -> Connection:
        """Stop a server, and start it again with the same entry.

        Raises:
            KeyError: there is none of this name.
        """
        return await self.start(self._connections[name].entry)

    async def refresh(self, entries: Iterable[ServerEntry]) -> dict[str, Change]:
        """Follow a changed configuration; a server whose entry is unchanged keeps its connection and its state."""
        changes: dict[str, Change] = {}
        wanted = {entry.name: entry for entry in entries}
        for name in set(self._connections) - set(wanted):
            await self.stop(name)
            del self._connections[name], self._digests[name]
            changes[name] = "stopped"
        for name, entry in wanted.items():
            if name not in self._connections:
                changes[name] = "started"
            elif self._digests[name] != launch_digest(entry, self._environment):
                changes[name] = "restarted"
            else:
                changes[name] = "kept"
            if changes[name] != "kept":
                await self.start(entry)
        return changes


@asynccontextmanager
async def open_hub(
    entries: Iterable[ServerEntry],
    environment: Mapping[str, str],
    *,
    inputs: Mapping[str, str] | None = None,
    options: ConnectionOptions | None = None,
    attached: Mapping[str, Launch] | None = None,
) -> AsyncIterator[Connections]:
    """Connect to all servers at once; yield their connections by name, not yet settled.

    `attached` has the servers that run in the background already. At the end every connection is closed, and no process
    that a local server started is left.
    """
    options = options or ConnectionOptions()
    if options.authorization is None:
        options = replace(options, authorization=partial(_stored_credentials, environment))
    failure: BaseException | None = None
    tracker = ChildTracker.create()
    try:
        async with anyio.create_task_group() as tasks:
            connections = Connections(environment, inputs or {}, options, tracker, tasks)
            try:
                for entry in entries:
                    await connections.start(entry, (attached or {}).get(entry.name))
                yield connections
            except* CoreError as group:  # raised below, where it does not become a group
                failure = first_leaf(group)
            finally:
                for connection in connections.values():
                    connection.stop()
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(tracker.watchdog.close)
    if failure is not None:
        raise failure


def _stored_credentials(
    environment: Mapping[str, str], entry: ServerEntry, launch: RemoteLaunch
) -> RemoteCredentials | None:
    if launch.oauth is None:
        return None
    # Imported late: only remote servers need it, and it takes 60 ms.
    from coretools.client.authorization.credentials import ServerAuthorization

    return ServerAuthorization(entry.words, launch.url, launch.oauth, environment)
