"""Commands that report which replica runs them. Each replica serves them with `--with`."""

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
    """Log three messages, and never end."""
    for step in ("one", "two", "three"):
        await call.log("info", step)
    await anyio.sleep_forever()
    return ""
