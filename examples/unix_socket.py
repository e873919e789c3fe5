"""One server for many clients on a Unix socket. They share its services, but not their calls.

python -m examples.unix_socket PATH
"""

import sys

import anyio
from anyio.abc import SocketStream, TaskStatus

from coretools.hosting.serve import build, serve_streams
from coretools.operations.call import Call
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry
from coretools.services.interface import Services

registry = Registry()


@registry.tool(Effect.ADD)
async def count(steps: int, call: Call, services: Services) -> str:
    """Count to a number, step by step, and return how many clients have done so."""
    for step in range(1, steps + 1):
        await call.progress(step, steps, f"at {step}")
    while True:
        before = await services.values.get("counted")
        after = str(int(before or b"0") + 1).encode()
        if await services.values.compare_and_set("counted", before, after):
            return f"counted to {steps}; {after.decode()} have counted"


async def serve(path: str, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """Serve every client that connects, until it is cancelled."""
    server = build(registry)

    async def connected(stream: SocketStream) -> None:
        await serve_streams(server, stream, stream)

    async with await anyio.create_unix_listener(path, mode=0o600) as listener:
        task_status.started()
        await listener.serve(connected)


if __name__ == "__main__":
    anyio.run(serve, sys.argv[1])
