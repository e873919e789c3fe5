"""One call as a tool sees it. Each surface (MCP, command line, test) supplies its own."""

from typing import Protocol

import anyio.from_thread
from anyio import NoEventLoopError


class Call(Protocol):
    """What a tool may ask of its surface. A tool gets one by naming a parameter of this type."""

    @property
    def principal(self) -> str:
        """Who calls."""
        ...

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work is. Never blocks for long: a surface drops what comes too fast."""
        ...


class SilentCall:
    """A call on a surface that shows no progress."""

    def __init__(self, principal: str = "local") -> None:
        self._principal = principal

    @property
    def principal(self) -> str:
        """Who calls."""
        return self._principal

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Nobody looks."""


def check_cancelled() -> None:
    """Stop here if the call was cancelled. For the loops of plain `def` tools, which run in a worker thread.

    Outside a worker thread (a tool called directly) nothing can be cancelled and nothing happens.
    """
    try:
        anyio.from_thread.check_cancelled()
    except NoEventLoopError:
        return
