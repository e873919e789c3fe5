"""Keeps reading what children print to a share of the event loop's time, so that a flood does not hold up the calls.

A program that prints faster waits in its pipe, as it would for a slow terminal. Ordinary outputs never notice: only
more than a burst is held back.
"""

import time
from collections.abc import Callable

SHARE = 0.3
"""Of the loop's time, for the outputs of all children together. With one `yes` and no bound, a call of 1 ms took 8."""

BURST_SECONDS = 0.03
"""Owed before anybody waits: about 8 MB after a pause."""

WAKE_SECONDS = 0.0001
"""What the loop itself spends on waking a reader, measured with asyncio's selector loop."""


class Pace:
    """One for all outputs of a runner."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._paid_at = 0.0
        """When what was spent is paid for, at the rate of the share."""

    def spent(self, seconds: float) -> float:
        """Note that a piece took so long; how many seconds to leave the loop to others now."""
        now = self._clock()
        self._paid_at = max(self._paid_at, now) + (seconds + WAKE_SECONDS) / SHARE
        return max(0.0, self._paid_at - now - BURST_SECONDS)
