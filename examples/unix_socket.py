"""One application for many clients on a Unix socket. They share its services, but not their calls.

python -m examples.unix_socket PATH
"""

import sys

import anyio
from anyio.abc import SocketStream, TaskStatus

from coretools import App, Call, Effect, MemoryServices, Services

app = App("counter", services=MemoryServices())


@app.tool(Effect.ADD)
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

    async def connected(stream: SocketStream) -> None:
        await app.streams(stream, stream)

    async with await anyio.create_unix_listener(path, mode=0o600) as listener:
        task_status.started()
        await listener.serve(connected)


if __name__ == "__main__":
    anyio.run(serve, sys.argv[1])
