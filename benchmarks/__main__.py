"""Measure and print. Ends with 1 when a ratio is over its bar; a smoke run, of one turn each, judges nothing."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.confinement import can_hold, starts_held
from benchmarks.contenders import calls, starts
from benchmarks.failure import NotMeasured
from benchmarks.interleaved import Contender, Sample, measured
from benchmarks.peer import Era
from benchmarks.report import Measured, as_json, as_table
from benchmarks.rows import ROWS, Row, selected
from benchmarks.supervision import supervised
from benchmarks.workplace import Workplace, workplace


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often everyone has a turn."""

    of_starts: int
    of_calls: int


FULL = Rounds(of_starts=25, of_calls=120)
"""One and a half to three minutes with two processors."""

SMOKE = Rounds(of_starts=1, of_calls=1)


def main() -> None:
    """Entry point of `python -m benchmarks`."""
    options = _parser().parse_args()
    rows = selected(options.only)
    if not rows:
        sys.exit(f"benchmarks: no row is named {options.only}; there are {', '.join(row.name for row in ROWS)}")
    try:
        found = measure(rows, is_smoke=options.smoke)
    except NotMeasured as error:
        sys.exit(f"benchmarks: {error}")
    print(as_json(found) if options.json else as_table(found))
    sys.exit(any(one.meets_bar is False for one in found))


def measure(rows: Sequence[Row], *, is_smoke: bool) -> list[Measured]:
    """Every row, group by group.

    Raises:
        NotMeasured: something that is timed did not work.
    """
    found: list[Measured] = []
    with workplace() as place:
        for group in dict.fromkeys(row.group for row in rows):
            if group == "confinement" and not can_hold():
                print("benchmarks: confinement is left out: this kernel holds no child", file=sys.stderr)
                continue
            asked = [row for row in rows if row.group == group]
            samples = _samples(group, asked, place, is_smoke=is_smoke)
            found += [Measured(row, samples[row.subject], samples[row.baseline]) for row in asked]
    return found


def _samples(group: str, rows: Sequence[Row], place: Workplace, *, is_smoke: bool) -> dict[str, Sample]:
    rounds = SMOKE if is_smoke else FULL
    with ExitStack() as stack:
        if group == "start":
            return measured(starts(place), rounds=rounds.of_starts, is_smoke=is_smoke)
        if group == "confinement":
            contenders = _needed([*starts_held(place, stack), *supervised(place, stack)], rows)
            return measured(contenders, rounds=rounds.of_calls, is_smoke=is_smoke)
        contenders = _needed(calls(place, Era(group), stack), rows)
        return measured(contenders, rounds=rounds.of_calls, is_smoke=is_smoke)


def _needed(contenders: Sequence[Contender], rows: Sequence[Row]) -> list[Contender]:
    """Those that a row is about."""
    wanted = {figure for row in rows for figure in (row.subject, row.baseline)}
    return [contender for contender in contenders if wanted & set(contender.figures)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one turn each: shows that everything still runs")
    parser.add_argument("--only", default="", metavar="NAME", help="only rows whose name holds NAME")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    return parser


if __name__ == "__main__":
    main()
