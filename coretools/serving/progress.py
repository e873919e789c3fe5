"""A call that came over MCP, as its tool sees it: progress goes to the client that sent it, throttled."""

import time

from mcp.server.session import ServerSession

MOST_PER_SECOND = 20
"""More would let a client that reads slowly hold up the tool: the SDK sends each notification before it goes on."""


class ClientCall:
    """Progress of one request. Without a progress token from the client nothing is sent."""

    def __init__(self, session: ServerSession, principal: str = "local") -> None:
        self._session = session
        self._principal = principal
        self._next = 0.0
        self._done = -1.0

    @property
    def principal(self) -> str:
        """Who calls."""
        return self._principal

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Send how far the work is. Drops what comes too fast, unless it is the end, and what does not advance."""
        now = time.monotonic()
        if done <= self._done or (now < self._next and done != total):
            return
        self._done = done
        self._next = now + 1 / MOST_PER_SECOND
        await self._session.report_progress(done, total, message)
