"""How often somebody comes, in the memory of one process: the generic cell rate algorithm (ITU-T I.371, annex A)."""

import time
from collections import OrderedDict
from collections.abc import Callable

MOST_KEYS = 10_000
"""Remembered at once; beyond it whoever came longest ago is forgotten, and begins anew."""


class MemoryRateLimiter:
    """One time for each key: when everything that it was allowed so far will have been paid back."""

    def __init__(self, *, most_keys: int = MOST_KEYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_keys = most_keys
        self._clock = clock
        self._paid: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paid)

    async def take(self, key: str, *, per_second: float, burst: int) -> float:
        """Count one request. 0.0 when it is within the limit, otherwise the seconds until one would be."""
        if per_second <= 0:
            return 0.0
        now = self._clock()
        paid = max(self._paid.get(key, now), now)
        early = paid - now - (burst - 1) / per_second
        if early > 1e-9:
            return early
        self._paid[key] = paid + 1 / per_second
        self._paid.move_to_end(key)
        self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        while self._paid and (len(self._paid) > self._most_keys or next(iter(self._paid.values())) <= now):
            self._paid.popitem(last=False)
