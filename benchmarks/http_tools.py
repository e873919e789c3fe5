"""Tools that the HTTP server serves for the benchmarks, beside its own."""

import anyio

from benchmarks.workspace import sample_text
from coretools.operations.call import Call
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry


class Meeting:
    """A barrier for calls: none is answered before the given number of them is in flight."""

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
        """Return 4 KB, whatever the path."""
        del path
        return text

    @found.tool(Effect.READ)
    async def with_progress(call: Call) -> str:
        """Report progress, then return 4 KB."""
        await call.progress(1, 1, "read")
        return text

    @found.tool(Effect.READ)
    async def meet(count: int, word: str) -> str:
        """Wait until this many calls have arrived, then return the word."""
        return await meeting.join(count, word)

    return found


registry = _tools()
