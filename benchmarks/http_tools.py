"""Tools that the HTTP server serves for its benchmarks beside its own: what no tool of ours does on demand."""

import anyio

from benchmarks.workplace import sample_text
from coretools.operations.call import Call
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry


class Meeting:
    """Calls that wait for each other: none is answered before as many as were said are there, at once."""

    def __init__(self) -> None:
        self._there = 0
        self._all_there = anyio.Event()

    async def join(self, count: int, word: str) -> str:
        """Wait for the others."""
        self._there += 1
        everybody = self._all_there
        if self._there == count:
            everybody.set()
            self._there, self._all_there = 0, anyio.Event()
        await everybody.wait()
        return word


def _tools() -> Registry:
    found = Registry()
    meeting = Meeting()
    text = sample_text()

    @found.tool(Effect.READ)
    async def echo(path: str) -> str:
        """Say 4 KB, whatever the path."""
        del path
        return text

    @found.tool(Effect.READ)
    async def told(call: Call) -> str:
        """Say how far it is, then 4 KB."""
        await call.progress(1, 1, "read")
        return text

    @found.tool(Effect.READ)
    async def meet(count: int, word: str) -> str:
        """Wait until so many calls are here, then say the word."""
        return await meeting.join(count, word)

    return found


registry = _tools()
