"""Cancellation of calls that run in a worker thread."""

import anyio.from_thread
from anyio import NoEventLoopError


def check_cancelled() -> None:
    """Raise if the call was cancelled. For loops of plain `def` tools, which run in a worker thread.

    Outside a worker thread (a tool that is called directly) it does nothing.
    """
    try:
        anyio.from_thread.check_cancelled()
    except NoEventLoopError:
        return
