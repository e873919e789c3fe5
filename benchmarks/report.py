"""The figures of a run as a table for a person and as JSON for a program."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from benchmarks.budgets import Row
from benchmarks.interleaved import Sample

HEADINGS = ("row", "ratio", "of least", "more", "bar", "", "min/median/max", "", "against", "min/median/max")


@dataclass(frozen=True, slots=True)
class Measured:
    """One row with its two samples."""

    row: Row
    subject: Sample
    baseline: Sample

    @property
    def ratio(self) -> float | None:
        """The subject's median over the baseline's; None where the baseline could not be measured."""
        return self.subject.median / self.baseline.median if self.baseline.median else None

    @property
    def ratio_of_least(self) -> float | None:
        """The ratio of the smallest values: where the other work of a busy machine shows least."""
        return self.subject.least / self.baseline.least if self.baseline.least else None

    @property
    def more(self) -> float:
        """The difference of the medians, in the row's unit."""
        return self.subject.median - self.baseline.median

    @property
    def meets_bar(self) -> bool | None:
        """Whether every bar is met; None without a bar, or after a single turn, which proves nothing."""
        row = self.row
        if len(self.subject.values) == 1 or (row.bar is not None and self.ratio is None):
            return None
        met = [
            figure <= most
            for figure, most in ((self.ratio, row.bar), (self.more, row.most_more), (self.subject.median, row.most))
            if figure is not None and most is not None
        ]
        return all(met) if met else None


def as_json(measured: Sequence[Measured]) -> str:
    """One object: where it was run, and the rows."""
    return json.dumps({"machine": _machine(), "rows": [_object(one) for one in measured]}, indent=1)


def as_table(measured: Sequence[Measured]) -> str:
    """One line a row, columns aligned."""
    lines = [HEADINGS, *(_cells(one) for one in measured)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    where = ", ".join(f"{name} {value}" for name, value in _machine().items())
    return "\n".join([*table, "", where])


def _cells(one: Measured) -> tuple[str, ...]:
    row = one.row
    aim = "" if row.target is None else f"(aim {row.target:.2f})"
    ratio = aim if row.bar is None else f"{row.bar:.2f} {aim}".rstrip()
    more_bar = "" if row.most_more is None else f"{row.most_more:+.2f}"
    most = "" if row.most is None else f"{row.most:.2f} {row.unit}"
    bar = " and ".join(part for part in (ratio, more_bar, most) if part)
    verdict = {None: "", True: "ok", False: "OVER"}[one.meets_bar]
    ratios = ("?" if ratio is None else f"{ratio:.2f}" for ratio in (one.ratio, one.ratio_of_least))
    more = f"{one.more:+.2f}"
    return row.name, *ratios, more, bar, verdict, _spread(one.subject), row.unit, row.baseline, _spread(one.baseline)


def _spread(sample: Sample) -> str:
    return "/".join(_figure(value) for value in (sample.least, sample.median, sample.most))


def _figure(value: float) -> str:
    """Three significant digits."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _object(one: Measured) -> dict[str, Any]:
    return {
        "name": one.row.name,
        "ratio": one.ratio,
        "ratio_of_least": one.ratio_of_least,
        "bar": one.row.bar,
        "target": one.row.target,
        "more": one.more,
        "most_more": one.row.most_more,
        "most": one.row.most,
        "meets_bar": one.meets_bar,
        "unit": one.row.unit,
        "turns": len(one.subject.values),
        "subject": {"name": one.row.subject, **_summary(one.subject)},
        "baseline": {"name": one.row.baseline, **_summary(one.baseline)},
    }


def _summary(sample: Sample) -> dict[str, float]:
    return {"min": sample.least, "median": sample.median, "max": sample.most}


def _machine() -> dict[str, str | int | None]:
    return {
        "python": platform.python_version(),
        "mcp": version("mcp"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": os.cpu_count(),
    }
