"""The rate limiter: every implementation by the same rules (docs/specs/validation.md, 27 to 29)."""

from collections.abc import Callable

import pytest

from coretools.web.replicas.memory_stores import MemoryRateLimiter
from coretools.web.replicas.stores import RateLimiter


class Clock:
    """Time as the test has it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Factory = Callable[[Clock], RateLimiter]

FACTORIES: dict[str, Factory] = {"memory": lambda clock: MemoryRateLimiter(clock=clock)}
"""An engine that has a time of its own is tested elsewhere, without a clock of the test."""


@pytest.fixture(params=list(FACTORIES.values()), ids=list(FACTORIES))
def factory(request: pytest.FixtureRequest) -> Factory:
    found: Factory = request.param
    return found


async def taken(limiter: RateLimiter, key: str, *, per_second: float, burst: int, times: int) -> list[bool]:
    return [await limiter.take(key, per_second=per_second, burst=burst) == 0.0 for _ in range(times)]


async def test_a_burst_is_let_through_and_then_so_many_a_second(factory: Factory) -> None:
    """validation-27: after a quiet time a burst; on average the rate; what is refused is not counted."""
    clock = Clock()
    limiter = factory(clock)
    assert await taken(limiter, "a", per_second=10, burst=5, times=7) == [True] * 5 + [False] * 2
    clock.now += 0.1001
    assert await taken(limiter, "a", per_second=10, burst=5, times=2) == [True, False]
    clock.now += 60
    assert await taken(limiter, "a", per_second=10, burst=5, times=6) == [True] * 5 + [False]


async def test_over_a_minute_no_more_than_the_rate_comes_through(factory: Factory) -> None:
    """validation-27: however it is tried."""
    clock = Clock()
    limiter = factory(clock)
    passed = 0
    for _ in range(6000):
        passed += await limiter.take("a", per_second=5, burst=10) == 0.0
        clock.now += 0.01
    assert 5 * 60 <= passed <= 5 * 60 + 10


async def test_who_waits_as_long_as_he_is_told_is_let_through(factory: Factory) -> None:
    """validation-27: the answer is neither too short nor a fixed number."""
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


async def test_one_key_does_not_touch_another(factory: Factory) -> None:
    """validation-28: also where one begins with the other."""
    limiter = factory(Clock())
    assert await taken(limiter, "a", per_second=1, burst=1, times=2) == [True, False]
    for other in ("b", "a:b", "", "A"):
        assert await limiter.take(other, per_second=1, burst=1) == 0.0


async def test_no_rate_is_no_limit(factory: Factory) -> None:
    """validation-27: 0 per second, as the configuration says it."""
    limiter = factory(Clock())
    assert all(await taken(limiter, "a", per_second=0, burst=1, times=1000))


async def test_a_change_of_the_rate_counts_from_then_on(factory: Factory) -> None:
    """validation-27: a role's limits may be others after a restart of one replica."""
    clock = Clock()
    limiter = factory(clock)
    await taken(limiter, "a", per_second=1, burst=5, times=5)
    assert await limiter.take("a", per_second=1, burst=5) > 0
    assert await limiter.take("a", per_second=1, burst=10) == 0.0


async def test_keys_are_forgotten_once_they_owe_nothing() -> None:
    """validation-29: in memory; a hundred thousand keys leave nothing behind, and never are more than the most."""
    clock = Clock()
    limiter = MemoryRateLimiter(clock=clock, most_keys=1000)
    for number in range(100_000):
        await limiter.take(f"key {number}", per_second=10, burst=5)
        clock.now += 0.001
    assert len(limiter) <= 101
    for number in range(5000):
        await limiter.take(f"key {number}", per_second=0.001, burst=5)
    assert len(limiter) == 1000
