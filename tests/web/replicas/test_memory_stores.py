"""The rate limiter: the same rules for every implementation (docs/specs/validation.md, 27 to 29)."""

from collections.abc import Callable

import pytest

from coretools.web.replicas.memory_stores import MemoryRateLimiter
from coretools.web.replicas.stores import RateLimiter


class Clock:
    """Time that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Factory = Callable[[Clock], RateLimiter]

FACTORIES: dict[str, Factory] = {"memory": lambda clock: MemoryRateLimiter(clock=clock)}
"""An engine with a clock of its own is tested elsewhere."""


@pytest.fixture(params=list(FACTORIES.values()), ids=list(FACTORIES))
def factory(request: pytest.FixtureRequest) -> Factory:
    found: Factory = request.param
    return found


async def taken(limiter: RateLimiter, key: str, *, per_second: float, burst: int, times: int) -> list[bool]:
    return [await limiter.take(key, per_second=per_second, burst=burst) == 0.0 for _ in range(times)]


async def test_a_burst_is_allowed_and_then_the_rate(factory: Factory) -> None:
    """validation-27: after a quiet time a burst; on average the rate; refused requests are not counted."""
    clock = Clock()
    limiter = factory(clock)
    assert await taken(limiter, "a", per_second=10, burst=5, times=7) == [True] * 5 + [False] * 2
    clock.now += 0.1001
    assert await taken(limiter, "a", per_second=10, burst=5, times=2) == [True, False]
    clock.now += 60
    assert await taken(limiter, "a", per_second=10, burst=5, times=6) == [True] * 5 + [False]


async def test_over_a_minute_no_more_than_the_rate_is_allowed(factory: Factory) -> None:
    """validation-27: whatever the pattern of requests."""
    clock = Clock()
    limiter = factory(clock)
    passed = 0
    for _ in range(6000):
        passed += await limiter.take("a", per_second=5, burst=10) == 0.0
        clock.now += 0.01
    assert 5 * 60 <= passed <= 5 * 60 + 10


async def test_after_the_reported_wait_a_request_is_allowed(factory: Factory) -> None:
    """validation-27: the wait is neither too short nor a constant."""
    clock = Clock()
    limiter = factory(clock)
    for per_second in (0.5, 3.0, 100.0):
        key = f"at {per_second}"
        await taken(limiter, key, per_second=per_second, burst=3, times=3)
        for _ in range(20):
            wait = await limiter.take(key, per_second=per_second, burst=3)
            assert 0.0 < wait <= 1.001 / per_second
            clock.now += wait
            assert await limiter.take(key, per_second=per_second, burst=3) == 0.0


async def test_keys_are_independent(factory: Factory) -> None:
    """validation-28: also if one begins with the other."""
    limiter = factory(Clock())
    assert await taken(limiter, "a", per_second=1, burst=1, times=2) == [True, False]
    for other in ("b", "a:b", "", "A"):
        assert await limiter.take(other, per_second=1, burst=1) == 0.0


async def test_a_rate_of_zero_is_no_limit(factory: Factory) -> None:
    """validation-27: 0 per second in the configuration."""
    limiter = factory(Clock())
    assert all(await taken(limiter, "a", per_second=0, burst=1, times=1000))


async def test_a_changed_rate_applies_from_then_on(factory: Factory) -> None:
    """validation-27: a role's limits may change when one replica restarts."""
    clock = Clock()
    limiter = factory(clock)
    await taken(limiter, "a", per_second=1, burst=5, times=5)
    assert await limiter.take("a", per_second=1, burst=5) > 0
    assert await limiter.take("a", per_second=1, burst=10) == 0.0


async def test_keys_are_forgotten_when_their_burst_is_full_again() -> None:
    """validation-29: in memory; of a hundred thousand keys none is left, and there are never more than the limit."""
    clock = Clock()
    limiter = MemoryRateLimiter(clock=clock, most_keys=1000)
    for number in range(100_000):
        await limiter.take(f"key {number}", per_second=10, burst=5)
        clock.now += 0.001
    assert len(limiter) <= 101
    for number in range(5000):
        await limiter.take(f"key {number}", per_second=0.001, burst=5)
    assert len(limiter) == 1000
