"""Commands that show on which replica they ran. Each replica serves them by `--with`."""

import os
from itertools import count

import anyio

from coretools.operations.call import Call
from coretools.operations.declare import Effect, asks
from coretools.operations.registry import Registry
from coretools.questions.kinds import AskConfirmation

HERE = os.environ.get("CORETOOLS_HTTP_REDIS__REPLICA", "")

registry = Registry()
_numbers = count(1)


@registry.tool(Effect.READ)
def where() -> str:
    """Name the replica."""
    return HERE


@registry.tool(Effect.CHANGE)
@asks("sure")
async def agree(call: Call) -> str:
    """Ask for a yes."""
    agreed = await call.ask(AskConfirmation(key="sure", message="Sure?"))
    return f"{agreed} on {HERE}"


@registry.tool(Effect.CHANGE)
def grow() -> str:
    """Add a command."""

    def another() -> str:
        """Do nothing."""
        return ""

    another.__name__ = f"another_{next(_numbers)}"
    registry.tool(Effect.READ)(another)
    return another.__name__


@registry.tool(Effect.READ)
async def linger(call: Call) -> str:
    """Say three things, and never come to an end."""
    for step in ("one", "two", "three"):
        await call.log("info", step)
    await anyio.sleep_forever()
    return ""


@registry.tool(Effect.READ)
async def recite(word: str, steps: int, call: Call) -> str:
    """Say a word some times, and at last once more."""
    for step in range(steps):
        await call.log("info", f"{word} {step}")
        await anyio.sleep(0.05)
    return word
