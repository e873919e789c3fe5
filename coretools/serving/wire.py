"""One server on the standard streams of its process, until its client or a signal ends it."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import anyio
from mcp.server.lowlevel import Server

from coretools.serving.ending import Ending, until_signalled
from coretools.serving.open_requests import OpenRequests
from coretools.serving.stdio import Wire, stdio_streams

Work = Callable[[], Coroutine[Any, Any, None]]


async def run_on_wire(
    server: Server[Any], wire: Wire, *, line_bytes: int, ending: Ending, beside: Sequence[Work] = ()
) -> None:
    """Serve until the client closes its end or SIGTERM or SIGINT comes; the end is bounded from then on.

    What is open then is answered. `beside` runs meanwhile and is cancelled at the end.
    """
    requests = OpenRequests(server.server_info_stamp)
    async with (
        until_signalled(ending, requests.finish),
        stdio_streams(wire, line_bytes, ending.begin) as streams,
        anyio.create_task_group() as tasks,
    ):
        for work in beside:
            tasks.start_soon(work)
        await server.run(*requests.around(*streams), server.create_initialization_options())
        tasks.cancel_scope.cancel()
    ending.begin()
