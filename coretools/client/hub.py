"""All connections of one process: started together, each on its own, and ended together."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
from anyio import to_thread

from coretools.client.configuration import ServerEntry
from coretools.client.connection import Connection, ConnectionOptions
from coretools.client.launch import RemoteLaunch, launch_of
from coretools.client.stdio import ChildTracker
from coretools.client.transports import RemoteCredentials
from coretools.errors import CoreError


@asynccontextmanager
async def open_hub(
    entries: Iterable[ServerEntry],
    environment: Mapping[str, str],
    *,
    inputs: Mapping[str, str] | None = None,
    options: ConnectionOptions | None = None,
) -> AsyncIterator[Mapping[str, Connection]]:
    """Connect to all servers at once; yield their connections by name, not yet settled.

    At the end every connection is closed, and no process that a local server started is left.
    """
    tracker = ChildTracker.create()
    options = options or ConnectionOptions()
    if options.authorization is None:
        options = replace(options, authorization=partial(_stored_credentials, environment))
    connections = {
        entry.name: Connection(entry, partial(launch_of, entry, environment, inputs or {}), tracker, options)
        for entry in entries
    }
    failure: CoreError | None = None
    try:
        async with anyio.create_task_group() as tasks:
            for connection in connections.values():
                tasks.start_soon(connection.run)
            try:
                yield connections
            except CoreError as error:  # raised below, where it does not become a group
                failure = error
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
    from coretools.client.authorization import ServerAuthorization

    return ServerAuthorization(entry.name, launch.url, launch.oauth, environment)
