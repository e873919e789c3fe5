"""The application of the replicas: commands that take items from a queue and note each in a file."""

import os
from functools import cache

import anyio

from coretools import App, Effect, Services, Unreachable

QUEUE = "work"
NOTES = "SERVICES_NOTES"
"""The variable that names the file of a replica."""

AGAIN_SECONDS = 0.05
"""Before an operation is tried again whose store did not answer."""

app = App("worker")


@app.tool(Effect.CHANGE)
async def work(most: int, idle_seconds: float, lease_seconds: float, services: Services) -> int:
    """Take items, note each and acknowledge it, until none has come for some time. Returns their number."""
    done = 0
    while done < most:
        item = None
        with anyio.move_on_after(idle_seconds) as idle:
            try:
                item = await services.queues.get(QUEUE, lease_seconds=lease_seconds)
                _note(item.data)
                await services.queues.acknowledge(item)
                done += 1
            except Unreachable:
                await anyio.sleep(AGAIN_SECONDS)
        if item is None and idle.cancelled_caught:
            break
    return done


@app.tool(Effect.CHANGE)
async def hold(lease_seconds: float, services: Services) -> None:
    """Take an item, note it, and never acknowledge it: a worker that will be killed in the middle of its work."""
    _note((await services.queues.get(QUEUE, lease_seconds=lease_seconds)).data)
    await anyio.sleep_forever()


@cache
def _notes() -> int:
    return os.open(os.environ[NOTES], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _note(data: bytes) -> None:
    """One system call writes a record, so a killed process leaves a whole record or none."""
    os.write(_notes(), data + b"\n")
