"""The commands of the replicas that `benchmarks.replicas` kills: those of the tests, and one that takes its time."""

import anyio

from coretools.operations.call import Call
from coretools.operations.declare import Effect
from tests.web.replicas.replicated import registry

STEP_SECONDS = 0.05
"""Between two messages of a call, so that a replica can be killed in the middle of it."""


@registry.tool(Effect.READ)
async def recite(word: str, steps: int, call: Call) -> str:
    """Log a word some times, then return it."""
    for step in range(steps):
        await call.log("info", f"{word} {step}")
        await anyio.sleep(STEP_SECONDS)
    return word
