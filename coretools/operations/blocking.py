"""Report code that blocks the event loop in an async command: no other call is answered meanwhile."""

import logging
import time
from collections.abc import Awaitable, Generator
from typing import Any

LONGEST_STEP_SECONDS = 0.25
"""Longest time between two waits that is not reported: a person notices a delay of that size."""

logger = logging.getLogger(__name__)


def watch_steps(work: Awaitable[object], name: str) -> Awaitable[object]:
    """Return an awaitable with the result of `work`, which logs the first time between two waits that is long."""
    return _Watched(work, name)


class _Watched(Generator[Any, Any, object]):
    """The steps of an awaitable, each with a look at the clock."""

    __slots__ = ("_is_reported", "_name", "_steps")

    def __init__(self, work: Awaitable[object], name: str) -> None:
        self._steps = work.__await__()
        self._name = name
        self._is_reported = False

    def __await__(self) -> Generator[Any, Any, object]:
        return self

    def send(self, value: Any) -> Any:
        """Run one step."""
        began = time.monotonic()
        try:
            return self._steps.send(value)
        finally:
            self._report(time.monotonic() - began)

    def throw(self, *error: Any) -> Any:
        """Run one step that begins with an exception, such as a cancellation."""
        began = time.monotonic()
        try:
            return self._steps.throw(*error)
        finally:
            self._report(time.monotonic() - began)

    def _report(self, seconds: float) -> None:
        if seconds <= LONGEST_STEP_SECONDS or self._is_reported:
            return
        self._is_reported = True
        logger.warning(
            "%s: blocked the event loop for %.1f s; no other call was answered. Use `def`, or wait with `await`",
            self._name,
            seconds,
        )
