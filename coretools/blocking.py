"""Plain functions on the event loop, where that takes no waiting: one function, tried there first (ADR 0034).

A function that is declared `nonblocking` calls `require_thread()` before it waits for anything. On the event loop that
ends the attempt, and the dispatcher calls the function again in a worker thread, where nothing happens.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_MAY_BLOCK: ContextVar[bool] = ContextVar("coretools_may_block", default=True)


class WouldBlock(Exception):  # the field's name for it; no failure
    """The call has to wait for something, and stands on the event loop."""


def may_block() -> bool:
    """Whether the code that runs here may wait: everywhere but in the attempt on the event loop."""
    return _MAY_BLOCK.get()


def require_thread() -> None:
    """Go on in a worker thread only.

    Raises:
        WouldBlock: this is the attempt on the event loop.
    """
    if not _MAY_BLOCK.get():
        raise WouldBlock


def attempted(function: Callable[..., T], arguments: Mapping[str, Any]) -> T:
    """The result of a function that may not wait.

    Raises:
        WouldBlock: it would have to.
    """
    token = _MAY_BLOCK.set(False)
    try:
        return function(**arguments)
    finally:
        _MAY_BLOCK.reset(token)
