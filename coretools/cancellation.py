"""Whether the call that a worker thread works for was cancelled."""

import anyio.from_thread
from anyio import NoEventLoopError


def check_cancelled() -> None:
    """Stop here if the call was cancelled. For the loops of plain `def` tools, which run in a worker thread.

    Outside a worker thread (a tool called directly) nothing can be cancelled and nothing happens.
    """
    try:
        anyio.from_thread.check_cancelled()
    except NoEventLoopError:
        return
