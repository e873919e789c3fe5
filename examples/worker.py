"""Letters that a tool puts into a queue and a worker sends: `python examples/worker.py work`, as often as you like.

With MAILER_SERVICES=redis://localhost:6379/1 server and workers are processes of their own, and no letter is lost
when one of them, or Redis, is killed.
"""

import json
import os
import sys
import uuid

import anyio

from coretools import App, Effect, Services, Unreachable, channels, dead_letters

app = App("mailer", services=os.environ.get("MAILER_SERVICES"))

SENT: list[str] = []


@app.tool(Effect.ADD)
async def send(to: str, text: str, services: Services) -> str:
    """Queue a letter."""
    letter = {"id": uuid.uuid4().hex, "to": to, "text": text}
    await services.queues.put("letters", json.dumps(letter).encode())
    return f"queued for {to}"


@app.tool(Effect.CHANGE)
@channels("command-line")
async def work(services: Services) -> None:
    """Send what is queued, until interrupted."""
    while True:
        try:
            item = await services.queues.get("letters", lease_seconds=60)
            try:
                await deliver(json.loads(item.data), services)
            except (ValueError, KeyError):
                await services.queues.reject(item)  # it will never succeed
            else:
                await services.queues.acknowledge(item)
        except Unreachable:
            await anyio.sleep(1)  # the store is away: the item comes again


async def deliver(letter: dict[str, str], services: Services) -> None:
    """Send a letter, unless it was sent: an item may come twice."""
    key = f"sent {letter['id']}"
    if await services.values.get(key) is None:
        SENT.append(letter["text"])  # a real one would talk to a mail server
        await services.values.set(key, b"", ttl_seconds=86_400)


@app.tool(Effect.READ)
async def failed(services: Services) -> int:
    """Count the letters that could not be sent."""
    return (await services.queues.counts(dead_letters("letters"))).waiting


if __name__ == "__main__":
    sys.exit(app.cli() if sys.argv[1:] else app.stdio())
