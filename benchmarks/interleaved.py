"""Measure in turns (A B A B ...), so that other work on the machine affects both, and take medians, which ignore it."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One thing that is timed. `once` does it once and returns a value for each of its figures."""

    figures: tuple[str, ...]
    once: Callable[[], tuple[float, ...]]
    repeat: int = 1
    """Times in a row within one turn; the turn counts as their median. More for what is short."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one figure, one for each turn."""

    values: tuple[float, ...]

    @property
    def least(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def most(self) -> float:
        """The largest."""
        return max(self.values)


def measured(contenders: Sequence[Contender], *, rounds: int, is_smoke: bool) -> dict[str, Sample]:
    """The sample of every figure. One turn before the first round warms up and is not counted; a smoke run has none."""
    values: dict[str, list[float]] = {figure: [] for contender in contenders for figure in contender.figures}
    for number in range(1 if is_smoke else 0, rounds + 1):
        for contender in contenders:
            turn = _turn(contender, 1 if is_smoke else contender.repeat)
            if number > 0:
                for figure, value in zip(contender.figures, turn, strict=True):
                    values[figure].append(value)
    return {figure: Sample(tuple(taken)) for figure, taken in values.items()}


def _turn(contender: Contender, repeat: int) -> tuple[float, ...]:
    taken = [contender.once() for _ in range(repeat)]
    return tuple(statistics.median(column) for column in zip(*taken, strict=True))
