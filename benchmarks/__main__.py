"""Measure and print. Ends with 1 when a ratio is over its bar; a smoke run, of one turn each, judges nothing."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from operator import attrgetter

from benchmarks.budgets import ROWS, Row, selected
from benchmarks.client_commands import client_commands
from benchmarks.confinement import can_hold, confined_starts
from benchmarks.contenders import calls, starts
from benchmarks.failure import NotMeasured
from benchmarks.file_servers import file_servers
from benchmarks.file_servers import missing_servers as missing_file_servers
from benchmarks.file_trees import file_trees
from benchmarks.git_servers import git_servers
from benchmarks.git_servers import missing_servers as missing_git_servers
from benchmarks.http_load import crowds, throughput
from benchmarks.http_soak import soaked
from benchmarks.interleaved import Contender, Sample, measured
from benchmarks.neighbours import calls_beside
from benchmarks.report import Measured, as_json, as_table
from benchmarks.scaling import can_search, history, large_files, large_tree
from benchmarks.stdio_client import Era
from benchmarks.supervision import supervised
from benchmarks.undo_costs import undo_costs
from benchmarks.waiting import commands_that_wait
from benchmarks.workspace import Workspace, workspace


@dataclass(frozen=True, slots=True)
class Rounds:
    """How many turns each contender gets."""

    of_starts: int
    of_calls: int
    of_floods: int
    of_crowds: int
    soak_seconds: float


FULL = Rounds(of_starts=25, of_calls=120, of_floods=25, of_crowds=5, soak_seconds=60.0)
"""Five to eight minutes with two processors."""

CROWDED = {
    "git": (git_servers, attrgetter("of_floods")),
    "files": (file_servers, attrgetter("of_floods")),
    "trees": (file_trees, attrgetter("of_crowds")),
    "undo": (undo_costs, attrgetter("of_calls")),
    "http": (throughput, attrgetter("of_floods")),
    "crowd": (crowds, attrgetter("of_crowds")),
    "search": (large_tree, attrgetter("of_crowds")),
    "neighbours": (calls_beside, attrgetter("of_floods")),
    "waiting": (commands_that_wait, attrgetter("of_crowds")),
}
"""What makes the contenders of a group that is smaller in a smoke run, and how many turns they have."""

MISSING = {"git": missing_git_servers, "files": missing_file_servers, "trees": missing_file_servers}
"""What lists the servers of a group that are not installed; their rows are left out."""

SMOKE = Rounds(of_starts=1, of_calls=1, of_floods=1, of_crowds=1, soak_seconds=4.0)


def main() -> None:
    """Entry point of `python -m benchmarks`."""
    options = _parser().parse_args()
    rows = selected(options.only)
    if not rows:
        sys.exit(f"benchmarks: no row is named {options.only}; there are {', '.join(row.name for row in ROWS)}")
    try:
        rounds = SMOKE if options.smoke else replace(FULL, soak_seconds=options.soak)
        found = measure(rows, rounds)
    except NotMeasured as error:
        sys.exit(f"benchmarks: {error}")
    print(as_json(found) if options.json else as_table(found))
    sys.exit(any(one.meets_bar is False for one in found))


def measure(rows: Sequence[Row], rounds: Rounds) -> list[Measured]:
    """Every row, group by group.

    Raises:
        NotMeasured: something that is timed did not work.
    """
    found: list[Measured] = []
    with workspace(is_smoke=rounds is SMOKE) as place:
        for group in dict.fromkeys(row.group for row in rows):
            if group == "confinement" and not can_hold():
                print("benchmarks: confinement is left out: this kernel cannot confine a child", file=sys.stderr)
                continue
            if group == "search" and not can_search():
                print("benchmarks: search is left out: there is no ripgrep here to compare with", file=sys.stderr)
                continue
            asked = [row for row in rows if row.group == group]
            for name in MISSING[group]() if group in MISSING else ():
                print(f"benchmarks: {name} is left out: it is not installed in benchmarks/peers", file=sys.stderr)
                asked = [row for row in asked if not row.name.endswith(f"/{name}")]
            samples = _samples(group, asked, place, rounds)
            found += [Measured(row, samples[row.subject], samples[row.baseline]) for row in asked]
    return found


def _samples(group: str, rows: Sequence[Row], place: Workspace, rounds: Rounds) -> dict[str, Sample]:
    is_smoke = rounds is SMOKE
    with ExitStack() as stack:
        if group == "start":
            return measured(starts(place), rounds=rounds.of_starts, is_smoke=is_smoke)
        if group == "soak":
            found = soaked(place, stack, rounds.soak_seconds).thirds()
            # A short run proves nothing about growth: one value is not judged.
            return {figure: Sample((sample.median,)) for figure, sample in found.items()} if is_smoke else found
        if group in CROWDED:
            make, turns_of = CROWDED[group]
            contenders, turns = make(place, stack, is_smoke=is_smoke), turns_of(rounds)
        elif group == "large":
            contenders, turns = large_files(place, stack), rounds.of_floods
        elif group == "client":
            contenders, turns = client_commands(place, stack), rounds.of_starts
        elif group == "history":
            contenders, turns = history(place, stack), rounds.of_calls
        elif group == "confinement":
            contenders, turns = [*confined_starts(place, stack), *supervised(place, stack)], rounds.of_calls
        else:
            contenders, turns = calls(place, Era(group), stack), rounds.of_calls
        return measured(_needed(contenders, rows), rounds=turns, is_smoke=is_smoke)


def _needed(contenders: Sequence[Contender], rows: Sequence[Row]) -> list[Contender]:
    """The samples that a row needs."""
    wanted = {figure for row in rows for figure in (row.subject, row.baseline)}
    return [contender for contender in contenders if wanted & set(contender.figures)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one turn each: shows that everything still runs")
    parser.add_argument(
        "--only", default="", metavar="NAME", help="only rows whose name starts with NAME, or contains it"
    )
    parser.add_argument(
        "--soak", type=float, default=FULL.soak_seconds, metavar="SECONDS", help="length of the soak [60]"
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    return parser


if __name__ == "__main__":
    main()
