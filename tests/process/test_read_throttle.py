"""Reading output leaves time for other calls (docs/specs/process.md)."""

import pytest

from coretools.process.children.streams import BURST_SECONDS, SHARE, WAKE_SECONDS, ReadThrottle


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_a_flood_of_output_is_throttled() -> None:
    """process-27: whoever reads; after a pause a burst passes at once."""
    clock = Clock()
    throttle = ReadThrottle(clock)
    busy, began, pauses = 0.0, clock.now, []
    for _ in range(10_000):
        clock.now += 0.001
        busy += 0.001 + WAKE_SECONDS
        pauses.append(throttle.charge(0.001))
        clock.now += pauses[-1]
    assert pauses[0] == 0.0
    assert busy / (clock.now - began) == pytest.approx(SHARE, rel=0.01)
    clock.now += 10 * BURST_SECONDS
    assert throttle.charge(0.001) == 0.0
